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

/// Paths of calls that are answered in a stream.
pub const RESPONSES: &str = "/v1/responses";
pub const GEMINI_STREAM: &str = "/v1beta/models/m:streamGenerateContent?alt=sse";
/// A request of a stream.
pub const ASK_STREAM: &str = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;

/// A piece of text in a chat stream.
pub fn chat_piece(text: &str) -> String {
    format!(
        "data: {{\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"model\":\"m\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}},\"finish_reason\":null}}]}}\n\n"
    )
}

/// The start of a chat stream, without content.
pub const CHAT_START: &str = "data: {\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n";
pub const CHAT_STOP: &str = "data: {\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
pub const CHAT_USAGE: &str = "data: {\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"model\":\"m\",\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":2,\"total_tokens\":12}}\n\n";
pub const DONE: &str = "data: [DONE]\n\n";

/// A whole chat stream: so many pieces of text, why it stops, its tokens, the end marker.
pub fn chat_stream(pieces: usize) -> Vec<String> {
    let mut events: Vec<String> = (0..pieces).map(|n| chat_piece(&format!("é{n} "))).collect();
    events.extend([CHAT_STOP, CHAT_USAGE, DONE].map(String::from));
    events
}

/// An event of the messages API: its name stands in it twice.
pub fn message_event(name: &str, rest: &str) -> String {
    format!("event: {name}\ndata: {{\"type\":\"{name}\"{rest}}}\n\n")
}

/// The start of a stream of the messages API, without content.
pub fn message_start() -> Vec<String> {
    vec![
        message_event(
            "message_start",
            r#","message":{"id":"msg_t1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"usage":{"input_tokens":10,"output_tokens":1}}"#,
        ),
        message_event("ping", ""),
        message_event("content_block_start", r#","index":0,"content_block":{"type":"text","text":""}"#),
    ]
}

pub fn message_piece(text: &str) -> String {
    message_event(
        "content_block_delta",
        &format!(",\"index\":0,\"delta\":{{\"type\":\"text_delta\",\"text\":\"{text}\"}}"),
    )
}

/// A whole stream of the messages API.
pub fn message_stream(pieces: usize) -> Vec<String> {
    let mut events = message_start();
    events.extend((0..pieces).map(|n| message_piece(&format!("é{n} "))));
    events.extend([
        message_event("content_block_stop", ",\"index\":0"),
        message_event("message_delta", r#","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":7}"#),
        message_event("message_stop", ""),
    ]);
    events
}

/// A chunk of Gemini's; `finish` as it stands in the JSON.
pub fn gemini_piece(text: &str, finish: Option<&str>, output: usize) -> String {
    let finish = finish.map_or(String::new(), |reason| format!(",\"finishReason\":\"{reason}\""));
    format!(
        "data: {{\"candidates\":[{{\"content\":{{\"parts\":[{{\"text\":\"{text}\"}}],\"role\":\"model\"}}{finish},\"index\":0}}],\"usageMetadata\":{{\"promptTokenCount\":10,\"candidatesTokenCount\":{output},\"totalTokenCount\":{}}},\"modelVersion\":\"m\"}}\r\n\r\n",
        10 + output
    )
}

/// A whole stream of Gemini's.
pub fn gemini_stream(pieces: usize) -> Vec<String> {
    let mut events: Vec<String> = (0..pieces).map(|n| gemini_piece(&format!("é{n} "), None, n + 1)).collect();
    events.push(gemini_piece("", Some("STOP"), pieces));
    events
}

/// The start of a stream of the Responses API, without content.
pub fn responses_start() -> Vec<String> {
    let response =
        r#""response":{"id":"resp_1","object":"response","status":"in_progress","model":"m","output":[],"usage":null}"#;
    vec![
        format!(
            "event: response.created\ndata: {{\"type\":\"response.created\",\"sequence_number\":0,{response}}}\n\n"
        ),
        format!(
            "event: response.in_progress\ndata: {{\"type\":\"response.in_progress\",\"sequence_number\":1,{response}}}\n\n"
        ),
    ]
}

pub fn responses_piece(number: usize, text: &str) -> String {
    format!(
        "event: response.output_text.delta\ndata: {{\"type\":\"response.output_text.delta\",\"sequence_number\":{number},\"item_id\":\"i\",\"output_index\":0,\"content_index\":0,\"delta\":\"{text}\"}}\n\n"
    )
}

/// A whole stream of the Responses API.
pub fn responses_stream(pieces: usize) -> Vec<String> {
    let mut events = responses_start();
    events.extend((0..pieces).map(|n| responses_piece(n + 2, &format!("é{n} "))));
    events.push(format!(
        "event: response.completed\ndata: {{\"type\":\"response.completed\",\"sequence_number\":{},\"response\":{{\"id\":\"resp_1\",\"object\":\"response\",\"status\":\"completed\",\"model\":\"m\",\"output\":[{{\"type\":\"message\",\"content\":[{{\"type\":\"output_text\",\"text\":\"hi\"}}]}}],\"usage\":{{\"input_tokens\":10,\"output_tokens\":5,\"total_tokens\":15}}}}}}\n\n",
        pieces + 2
    ));
    events
}

/// A family of streams.
pub struct Family {
    pub path: &'static str,
    /// What comes before its first content.
    pub start: Vec<String>,
    /// A whole stream of three pieces of text.
    pub whole: Vec<String>,
    /// "Overloaded" as an event, and the status that it comes to.
    pub busy: (String, u16),
    /// What no stream that was lost may hold.
    pub end: &'static str,
}

impl Family {
    /// Bytes up to the middle of its last piece of text.
    pub fn amid(&self) -> usize {
        self.whole.concat().find("é2 ").expect("a last piece")
    }

    /// What comes before its last piece of text.
    pub fn before(&self) -> String {
        self.whole.iter().take_while(|event| !event.contains("é2 ")).map(String::as_str).collect()
    }

    /// What comes up to and with its last piece of text: no end of any kind.
    pub fn endless(&self) -> String {
        self.before() + self.whole.iter().find(|event| event.contains("é2 ")).expect("a last piece")
    }
}

/// Chat completions, Messages, Gemini, Responses.
pub fn families() -> [Family; 4] {
    let error = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let failed = r#"{"type":"response.failed","sequence_number":2,"response":{"id":"resp_1","object":"response","status":"failed","error":{"code":"server_is_overloaded","message":"m"},"output":[],"usage":null}}"#;
    [
        Family {
            path: CHAT,
            start: vec![CHAT_START.into()],
            whole: [vec![CHAT_START.into()], chat_stream(3)].concat(),
            busy: ("data: {\"error\":{\"message\":\"busy\",\"type\":\"server_error\",\"code\":503}}\n\n".into(), 503),
            end: "[DONE]",
        },
        Family {
            path: MESSAGES,
            start: message_start(),
            whole: message_stream(3),
            busy: (format!("event: error\ndata: {error}\n\n"), 529),
            end: "message_stop",
        },
        Family {
            path: GEMINI_STREAM,
            start: vec![gemini_piece("", None, 0)],
            whole: gemini_stream(3),
            busy: ("data: {\"error\":{\"code\":503,\"message\":\"m\",\"status\":\"UNAVAILABLE\"}}\r\n\r\n".into(), 503),
            end: "finishReason",
        },
        Family {
            path: RESPONSES,
            start: responses_start(),
            whole: responses_stream(3),
            busy: (format!("event: response.failed\ndata: {failed}\n\n"), 503),
            end: "response.completed",
        },
    ]
}
