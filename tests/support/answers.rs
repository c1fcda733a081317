//! Answers as the providers give them.

use super::Step;

/// Paths of each dialect's chat call.
pub const CHAT: &str = "/v1/chat/completions";
pub const MESSAGES: &str = "/v1/messages";
pub const GEMINI: &str = "/v1beta/models/m:generateContent";

pub const CHAT_BODY: &str = r#"{"id":"c1","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12}}"#;
pub const MESSAGE_BODY: &str = r#"{"id":"msg_t1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"Hello"}],"stop_reason":"end_turn","usage":{"input_tokens":10,"output_tokens":7}}"#;
pub const GEMINI_BODY: &str =
    r#"{"candidates":[{"content":{"parts":[{"text":"Hello"}],"role":"model"},"finishReason":"STOP"}]}"#;
pub const LIMITED_BODY: &str =
    r#"{"error":{"message":"rate limit reached","type":"requests","param":null,"code":"rate_limit_exceeded"}}"#;
pub const BUSY_BODY: &str = r#"{"error":{"message":"busy","type":"server_error","param":null,"code":null}}"#;
/// A request of a chat.
pub const ASK: &str = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;

/// A good chat answer.
pub fn chat() -> Step {
    Step::json(200, CHAT_BODY)
}

/// A good answer of the messages API.
pub fn message() -> Step {
    Step::json(200, MESSAGE_BODY)
}

/// 429 with a wait in whole seconds.
pub fn limited(retry_after: &str) -> Step {
    Step::json(429, LIMITED_BODY).header("retry-after", retry_after)
}

/// 503 with the provider's own error: nothing was done.
pub fn busy() -> Step {
    Step::json(503, BUSY_BODY)
}
