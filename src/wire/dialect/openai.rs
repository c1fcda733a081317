//! OpenAI, and everything compatible with it: the endpoints.

use super::endpoints::Repeat::{Conditional, Creates, Safe};
use super::endpoints::{Endpoint, model, plain};

/// Parts of the types of tools that act where the server runs them.
pub(super) const ACTING_TOOLS: &[&str] = &["mcp", "computer", "shell", "container"];

/// Endpoints in the first's favour: `threads/runs` stands before `threads/*`.
pub(super) const ENDPOINTS: &[Endpoint] = &[
    model("chat/completions", Conditional),
    model("responses", Conditional),
    model("completions", Safe),
    model("embeddings", Safe),
    model("moderations", Safe),
    model("audio/transcriptions", Safe),
    model("audio/translations", Safe),
    model("audio/speech", Safe),
    model("responses/compact", Safe),
    plain("responses/input_tokens", Safe),
    // No lasting object, but each run is expensive.
    model("images/generations", Creates),
    model("images/edits", Creates),
    model("images/variations", Creates),
    // Full-value updates by id: the same state again. Not `conversations/*`: at Mistral that appends.
    plain("threads/runs", Creates),
    plain("chat/completions/*", Safe),
    plain("assistants/*", Safe),
    plain("threads/*", Safe),
    plain("threads/*/messages/*", Safe),
    plain("threads/*/runs/*", Safe),
    plain("vector_stores/*", Safe),
    plain("vector_stores/*/search", Safe),
    // Compatible servers: Mistral, vLLM, llama.cpp, rerankers.
    model("fim/completions", Safe),
    model("ocr", Safe),
    model("chat/moderations", Safe),
    model("classifications", Safe),
    model("chat/classifications", Safe),
    model("rerank", Safe),
    model("score", Safe),
    model("pooling", Safe),
    model("completion", Safe),
    model("infill", Safe),
    model("embedding", Safe),
    plain("tokenize", Safe),
    plain("detokenize", Safe),
    plain("apply-template", Safe),
    // OpenRouter and local servers serve the other family's messages too.
    model("messages", Conditional),
    plain("messages/count_tokens", Safe),
    // Ollama
    model("api/chat", Safe),
    model("api/generate", Safe),
    model("api/embed", Safe),
    model("api/embeddings", Safe),
    plain("api/show", Safe),
    plain("api/pull", Safe),
];
