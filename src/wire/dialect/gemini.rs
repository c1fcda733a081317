//! Gemini and Vertex: the endpoints, which are verbs on a model.

use super::endpoints::Repeat::{Conditional, Creates, Safe};
use super::endpoints::{Endpoint, model, plain};

const VERBS: &[Endpoint] = &[
    model("generateContent", Safe),
    model("streamGenerateContent", Safe),
    model("embedContent", Safe),
    model("batchEmbedContents", Safe),
    model("predict", Safe),
    // Another family's body, under Vertex' path.
    model("rawPredict", Conditional),
    model("streamRawPredict", Conditional),
    plain("countTokens", Safe),
    plain("computeTokens", Safe),
    plain("cancel", Safe),
];

/// Models whose `predict` makes pictures: no lasting object, but each run is expensive.
const PICTURE_MODELS: [&str; 2] = ["imagen", "imagegeneration"];

/// The endpoint of the path behind its version.
pub(super) fn endpoint(segments: &[&str]) -> Option<Endpoint> {
    let last = segments.last()?;
    if segments == ["interactions"] {
        return Some(model("interactions", Conditional));
    }
    let (name, verb) = last.rsplit_once(':').or_else(|| last.rsplit_once("%3A")).or_else(|| last.rsplit_once("%3a"))?;
    let found = VERBS.iter().find(|e| e.path == verb).copied()?;
    if verb == "predict" && PICTURE_MODELS.iter().any(|m| name.starts_with(m)) {
        return Some(Endpoint { repeat: Creates, ..found });
    }
    Some(found)
}
