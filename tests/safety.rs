//! Which requests may be repeated after their answer was lost: an allow-list, so the rows that say "creates" are examples.

use backstop::policy::safety::{Effect, effect, is_model_call};
use backstop::wire::dialect::Dialect::{self, Anthropic, Gemini, Generic, OpenAi};
use http::Method;

const PLAIN: &str = r#"{"model":"m","messages":[]}"#;

fn of(dialect: Dialect, method: &Method, path: &str, body: &str) -> Effect {
    effect(dialect, method, path, || Some(body.as_bytes().to_vec()))
}

#[test]
fn posts_that_make_nothing_lasting() {
    for (dialect, path) in [
        (OpenAi, "/v1/chat/completions"),
        (OpenAi, "/v1/responses"),
        (OpenAi, "/v1/completions"),
        (OpenAi, "/v1/embeddings"),
        (OpenAi, "/v1/moderations"),
        (OpenAi, "/v1/audio/transcriptions"),
        (OpenAi, "/v1/audio/speech"),
        (OpenAi, "/v1/responses/input_tokens"),
        (OpenAi, "/v1/responses/resp_1/cancel"),
        (OpenAi, "/v1/batches/batch_1/cancel"),
        (OpenAi, "/v1/threads/t/runs/r/cancel"),
        (OpenAi, "/v1/assistants/asst_1"),
        (OpenAi, "/v1/vector_stores/vs_1/search"),
        (OpenAi, "/openai/v1/chat/completions"),
        (OpenAi, "/api/v1/chat/completions"),
        (OpenAi, "/openai/deployments/d/chat/completions"),
        (OpenAi, "/chat/completions"),
        (OpenAi, "/v1/fim/completions"),
        (OpenAi, "/api/chat"),
        (OpenAi, "/api/generate"),
        (OpenAi, "/api/v1/messages"),
        (Anthropic, "/v1/messages"),
        (Anthropic, "/v1/messages/count_tokens"),
        (Anthropic, "/v1/messages/batches/b/cancel"),
        (Gemini, "/v1beta/models/m:generateContent"),
        (Gemini, "/v1beta/models/m:streamGenerateContent"),
        (Gemini, "/v1beta/models/m:countTokens"),
        (Gemini, "/v1beta/models/m%3AgenerateContent"),
        (Gemini, "/v1/projects/p/locations/l/publishers/g/models/m:generateContent"),
        (Gemini, "/v1/projects/p/locations/l/publishers/g/models/text-embedding-004:predict"),
        (Gemini, "/v1/projects/p/locations/l/batchPredictionJobs/j:cancel"),
        (Gemini, "/v1beta/interactions"),
        (Gemini, "/v1beta/openai/chat/completions"),
    ] {
        assert_eq!(of(dialect, &Method::POST, path, PLAIN), Effect::Repeatable, "{dialect:?} {path}");
    }
}

#[test]
fn posts_that_create() {
    for (dialect, path) in [
        (OpenAi, "/v1/files"),
        (OpenAi, "/v1/uploads/u/parts"),
        (OpenAi, "/v1/uploads/u/complete"),
        (OpenAi, "/v1/batches"),
        (OpenAi, "/v1/fine_tuning/jobs"),
        (OpenAi, "/v1/videos"),
        (OpenAi, "/v1/images/generations"),
        (OpenAi, "/v1/threads"),
        (OpenAi, "/v1/threads/runs"),
        (OpenAi, "/v1/threads/t/messages"),
        (OpenAi, "/v1/threads/t/runs"),
        (OpenAi, "/v1/threads/t/runs/r/submit_tool_outputs"),
        (OpenAi, "/v1/conversations/c/items"),
        (OpenAi, "/v1/conversations/c"),
        (OpenAi, "/v1/vector_stores/v/files"),
        (OpenAi, "/v1/realtime/sessions"),
        (OpenAi, "/v1/something/new"),
        (OpenAi, "/v1/cancel"),
        (OpenAi, "/api/create"),
        (OpenAi, "/"),
        (OpenAi, ""),
        (Anthropic, "/v1/messages/batches"),
        (Anthropic, "/v1/files"),
        (Anthropic, "/v1/organizations/o/invites"),
        (Gemini, "/v1beta/models/m:batchGenerateContent"),
        (Gemini, "/v1beta/models/veo-3:predictLongRunning"),
        (Gemini, "/v1beta/models/imagen-4:predict"),
        (Gemini, "/v1beta/cachedContents"),
        (Gemini, "/upload/v1beta/files"),
        (Generic, "/v1/chat/completions"),
    ] {
        assert_eq!(of(dialect, &Method::POST, path, PLAIN), Effect::Creates, "{dialect:?} {path}");
        assert_eq!(of(dialect, &Method::PATCH, path, PLAIN), Effect::Creates, "{dialect:?} PATCH {path}");
    }
}

#[test]
fn idempotent_methods_are_repeatable_anywhere() {
    for method in [Method::GET, Method::HEAD, Method::OPTIONS, Method::PUT, Method::DELETE] {
        for dialect in Dialect::ALL {
            assert_eq!(of(dialect, &method, "/v1/files/f", ""), Effect::Repeatable, "{method}");
        }
    }
}

#[test]
fn a_field_of_the_body_may_decide() {
    for (dialect, path, body) in [
        (OpenAi, "/v1/responses", r#"{"model":"m","background":true}"#),
        (OpenAi, "/v1/responses", r#"{"model":"m","conversation":"c"}"#),
        (OpenAi, "/v1/responses", r#"{"tools":[{"type":"computer_use_preview"}]}"#),
        (OpenAi, "/v1/chat/completions", r#"{"deferred":true}"#),
        (OpenAi, "/v1/chat/completions", "cut {"),
        (Anthropic, "/v1/messages", r#"{"mcp_servers":[{"name":"a"}]}"#),
        (Anthropic, "/v1/messages", r#"{"container":"c_1"}"#),
        (Gemini, "/v1beta/interactions", r#"{"background":true}"#),
    ] {
        assert_eq!(of(dialect, &Method::POST, path, body), Effect::Creates, "{path} {body}");
    }
    let unreadable = effect(OpenAi, &Method::POST, "/v1/responses", || None);
    assert_eq!(unreadable, Effect::Creates);
}

#[test]
fn the_body_is_asked_for_only_where_it_decides() {
    for (method, path) in
        [(Method::POST, "/v1/embeddings"), (Method::POST, "/v1/files"), (Method::GET, "/v1/responses/r")]
    {
        effect(OpenAi, &method, path, || panic!("{method} {path} needs no body"));
    }
}

#[test]
fn calls_that_ask_a_model() {
    for (dialect, path, want) in [
        (OpenAi, "/v1/chat/completions", true),
        (OpenAi, "/openai/deployments/d/embeddings", true),
        (OpenAi, "/v1/images/generations", true),
        (OpenAi, "/v1/files", false),
        (OpenAi, "/v1/responses/r/cancel", false),
        (Anthropic, "/v1/messages", true),
        (Anthropic, "/v1/messages/batches", false),
        (Gemini, "/v1beta/models/m:generateContent", true),
        (Gemini, "/v1beta/models/imagen-4:predict", true),
        (Gemini, "/v1beta/cachedContents", false),
        (Generic, "/v1/chat/completions", false),
    ] {
        assert_eq!(is_model_call(dialect, &Method::POST, path), want, "{dialect:?} {path}");
        assert!(!is_model_call(dialect, &Method::GET, path), "GET {path}");
    }
}
