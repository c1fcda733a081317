//! Anthropic: the endpoints.

use super::endpoints::Repeat::{Conditional, Safe};
use super::endpoints::{Endpoint, model, plain};

/// Parts of the types of tools that act where the server runs them. The computer, shell and editor tools are run by the
/// client here.
pub(super) const ACTING_TOOLS: &[&str] = &["mcp"];

pub(super) const ENDPOINTS: &[Endpoint] = &[
    model("messages", Conditional),
    plain("messages/count_tokens", Safe),
    model("complete", Safe),
    model("chat/completions", Conditional),
    // Bedrock's runtime
    model("model/*/invoke", Conditional),
    model("model/*/invoke-with-response-stream", Conditional),
    model("model/*/converse", Safe),
    model("model/*/converse-stream", Safe),
];
