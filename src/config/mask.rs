//! What must not be shown: which keys hold secrets, and the config with them masked.

use toml::Value;

pub(super) use crate::wire::dialect::credential::is_secret_name;

/// Stands where a secret stood.
pub(super) const HIDDEN: &str = "***";

/// The keys that hold URLs.
const URLS: [&str; 3] = ["base_url", "url", "otlp_endpoint"];

/// A value at this key may be, or hold, a secret: it is in no fault. Generous, because a key may be misspelt.
pub(super) fn is_secret(key: &str) -> bool {
    // `max_tokens` counts tokens, it is none.
    let key = key.to_ascii_lowercase().replace("tokens", "");
    is_secret_name(&key) || ["url", "header", "webhook", "endpoint", "env"].iter().any(|word| key.contains(word))
}

/// At most 60 characters of a text.
pub(super) fn short(text: &str) -> &str {
    text.char_indices().nth(60).map_or(text, |(end, _)| &text[..end])
}

/// The first few of many names.
pub(super) fn short_list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    const SHOWN: usize = 20;
    let mut names: Vec<&str> = names.take(SHOWN + 1).collect();
    if names.len() > SHOWN {
        names[SHOWN] = "…";
    }
    names.join(", ")
}

/// The part of a broken `KEY=VALUE` that can only be a key.
pub(super) fn argument_key(arg: &str) -> &str {
    let end = arg.find(|c: char| !(c.is_ascii_alphanumeric() || "_.-\"'".contains(c))).unwrap_or(arg.len());
    short(&arg[..end])
}

/// The document with secrets masked: headers that hold credentials, and what stands in front of the host of a URL or behind its `?`.
pub(super) fn document(mut table: toml::Table) -> toml::Table {
    for (key, value) in &mut table {
        mask_value(key, value);
    }
    table
}

fn mask_value(key: &str, value: &mut Value) {
    match value {
        Value::String(text) if key == "webhook" && !text.is_empty() => HIDDEN.clone_into(text),
        Value::String(text) if URLS.contains(&key) => *text = mask_url(text),
        Value::Array(items) => items.iter_mut().for_each(|item| mask_value(key, item)),
        Value::Table(table) if key == "headers" => table.iter_mut().for_each(|(name, value)| mask_header(name, value)),
        Value::Table(table) => table.iter_mut().for_each(|(key, value)| mask_value(key, value)),
        _ => {}
    }
}

fn mask_header(name: &str, value: &mut Value) {
    match value {
        Value::String(text) if !is_secret_name(name) => *text = mask_url(text),
        other => *other = HIDDEN.into(),
    }
}

/// `scheme://***@host/path?***` for a URL with userinfo and query; any other text as it is.
fn mask_url(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    let (rest, query) = match rest.split_once('?') {
        Some((rest, _)) => (rest, format!("?{HIDDEN}")),
        None => (rest, String::new()),
    };
    // A password with a stray `/` or `@` in it must not show its tail: all up to the last `@` goes.
    match rest.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://{HIDDEN}@{host}{query}"),
        None => format!("{scheme}://{rest}{query}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn userinfo_and_query_of_a_url_are_masked() {
        assert_eq!(mask_url("http://u:p@h:1/x?key=k"), "http://***@h:1/x?***");
        assert_eq!(mask_url("redis://:p/q@r@h:1/0"), "redis://***@h:1/0");
        assert_eq!(mask_url("https://h/v1"), "https://h/v1");
        assert_eq!(mask_url("a@b"), "a@b");
    }

    #[test]
    fn headers_with_credentials_are_masked_others_are_not() {
        let table: toml::Table = toml::from_str(
            "[upstreams.x.headers]\nauthorization='a'\nX-Api-Key='b'\ncookie='c'\nx-team='blue'\nx-goog-token=3\n",
        )
        .unwrap();
        let text = document(table).to_string();
        assert!(text.contains("blue"));
        assert_eq!(text.matches("***").count(), 4, "{text}");
    }

    #[test]
    fn an_argument_that_is_no_assignment_shows_its_key_alone() {
        assert_eq!(argument_key("retry"), "retry");
        assert_eq!(argument_key("headers.authorization:Bearer x"), "headers.authorization");
        assert_eq!(short(&"é".repeat(100)).chars().count(), 60);
    }
}
