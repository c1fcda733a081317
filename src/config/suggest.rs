//! "did you mean": the key that was meant, from the keys that exist.

use super::tree::Node;

/// Every section and key of the default file.
pub(super) struct Schema(Vec<(String, String)>);

impl Schema {
    /// The schema is what the default file holds.
    pub fn of(defaults: &Node) -> Self {
        let mut keys = Vec::new();
        collect(defaults, &mut keys);
        Schema(keys)
    }

    /// What to say of an unknown `key` in the section `path` that takes `known` keys.
    pub fn hint(&self, path: &str, key: &str, known: &[&str]) -> String {
        if let Some(near) = nearest(key, known.iter().copied()) {
            return format!("; did you mean `{near}`?");
        }
        let homes = self.homes(path, key, known);
        if !homes.is_empty() {
            return format!("; it belongs in {}", homes.join(" or "));
        }
        if path.is_empty() && !known.is_empty() {
            return format!("; the sections are {}", known.join(", "));
        }
        String::new()
    }

    /// The sections that have this very key.
    fn homes(&self, path: &str, key: &str, known: &[&str]) -> Vec<String> {
        let mut homes = Vec::new();
        for (section, name) in &self.0 {
            if name != key || section.is_empty() || section == path {
                continue;
            }
            let home = match section.strip_prefix("upstreams.") {
                Some(rest) => format!("[upstreams.NAME{}]", rest.find('.').map_or("", |dot| &rest[dot..])),
                None if known.contains(&section.as_str()) && !path.is_empty() => {
                    format!("[{path}.{section}]")
                }
                None => format!("[{section}]"),
            };
            if !homes.contains(&home) {
                homes.push(home);
            }
        }
        // A section inside this one is the likelier home.
        homes.sort_by_key(|home| !home.starts_with(&format!("[{path}.")));
        homes.truncate(3);
        homes
    }
}

fn collect(node: &Node, keys: &mut Vec<(String, String)>) {
    for (name, child) in node.table().into_iter().flatten() {
        keys.push((node.key.clone(), name.clone()));
        collect(child, keys);
    }
}

/// The nearest of `names`, if it is near. Jaro-Winkler likes common beginnings, as in `retries` and `retry`.
pub(super) fn nearest<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    const NEAR: f64 = 0.85;
    // The comparison takes time by the square of the length; no key is that long.
    if word.len() > 64 {
        return None;
    }
    let lower = word.to_ascii_lowercase().replace('-', "_");
    names
        .map(|name| (strsim::jaro_winkler(&lower, name), name))
        .filter(|(likeness, _)| *likeness >= NEAR)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_near_other_words_are_not() {
        let names = ["max_attempts", "max_delay", "jitter"];
        assert_eq!(nearest("max_atempts", names.into_iter()), Some("max_attempts"));
        assert_eq!(nearest("MAX-DELAY", names.into_iter()), Some("max_delay"));
        assert_eq!(nearest("burst", names.into_iter()), None);
        assert_eq!(nearest("retries", ["retry", "redis"].into_iter()), Some("retry"));
        assert_eq!(nearest("some", ["none", "full"].into_iter()), None);
        assert_eq!(nearest(&"x".repeat(1000), names.into_iter()), None);
    }
}
