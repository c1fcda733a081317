//! Errors that Backstop makes itself, in the shape from which each SDK raises its own exception.

use serde_json::json;

use super::Dialect;

/// The JSON body of an error of our own. `kind` is its name in our contract (`upstream_unreachable`); it stands where the
/// dialect's SDKs look: `type` and `code`, or `status` where `code` is the number.
pub fn render_error(dialect: Dialect, status: u16, kind: &str, message: &str) -> Vec<u8> {
    let body = match dialect {
        Dialect::Anthropic => json!({"type": "error", "error": {"type": kind, "message": message}}),
        Dialect::Gemini => json!({"error": {"code": status, "message": message, "status": kind}}),
        Dialect::OpenAi | Dialect::Generic => {
            json!({"error": {"message": message, "type": kind, "param": null, "code": kind}})
        }
    };
    body.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;
    use crate::wire::dialect::errors::ErrorFacts;

    #[test]
    fn our_own_errors_are_read_back_by_our_own_reader() {
        for dialect in Dialect::ALL {
            let body = render_error(dialect, 502, "upstream_unreachable", "no \"luck\"\n");
            let facts = ErrorFacts::read(&HeaderMap::new(), &body);
            assert!(facts.words.iter().any(|w| w == "upstream_unreachable"), "{dialect:?}");
            assert_eq!(facts.message, "no \"luck\"\n");
        }
    }

    #[test]
    fn shapes() {
        let json =
            |d| serde_json::from_slice::<serde_json::Value>(&render_error(d, 504, "upstream_timeout", "m")).unwrap();
        assert_eq!(json(Dialect::OpenAi)["error"]["param"], serde_json::Value::Null);
        assert_eq!(json(Dialect::Anthropic)["type"], "error");
        assert_eq!(json(Dialect::Gemini)["error"]["code"], 504);
    }
}
