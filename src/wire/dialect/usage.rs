//! Token counts, by whichever names they go.

use serde::de::MapAccess;

use crate::wire::loose::{Count, Loose, key, skip, value};

/// Tokens of one answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens in, all of them: those read from or written to a prompt cache too.
    pub input: u64,
    /// Tokens out, all that are billed as output: those spent on reasoning too.
    pub output: u64,
    /// The part of `input` that was read from a prompt cache.
    pub cached: u64,
}

impl Usage {
    /// In and out together.
    pub fn total(&self) -> u64 {
        self.input.saturating_add(self.output)
    }
}

/// Counts as they stand in a body. A stream tells them bit by bit, so they can be merged: the later word wins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// All tokens in.
    prompt: Option<u64>,
    /// Tokens in without those of a cache, if the cache's are told beside it.
    input: Option<u64>,
    output: Option<u64>,
    total: Option<u64>,
    /// Read from a cache, and part of the tokens in.
    cached: Option<u64>,
    /// Read from a cache, and not part of `input`.
    cache_read: Option<u64>,
    /// Written to a cache, and not part of `input`.
    cache_write: Option<u64>,
    /// Thoughts, and not part of `output`.
    thoughts: Option<u64>,
    /// What tools put into the prompt, and not part of `input`.
    tool_input: Option<u64>,
}

impl Counts {
    /// Takes over what `later` says.
    pub fn merge(&mut self, later: Counts) {
        let Counts { prompt, input, output, total, cached, cache_read, cache_write, thoughts, tool_input } = later;
        self.prompt = prompt.or(self.prompt);
        self.input = input.or(self.input);
        self.output = output.or(self.output);
        self.total = total.or(self.total);
        self.cached = cached.or(self.cached);
        self.cache_read = cache_read.or(self.cache_read);
        self.cache_write = cache_write.or(self.cache_write);
        self.thoughts = thoughts.or(self.thoughts);
        self.tool_input = tool_input.or(self.tool_input);
    }

    /// The sums, or nothing if neither input nor output was told.
    pub fn usage(&self) -> Option<Usage> {
        self.prompt.or(self.input).or(self.output)?;
        let sum = |parts: [Option<u64>; 3]| parts.into_iter().flatten().fold(0, u64::saturating_add);
        // A translating server may tell a whole prompt and, beside it, the cache's part under another family's name.
        let told = self.prompt.unwrap_or_else(|| sum([self.input, self.cache_read, self.cache_write]));
        let input = told.saturating_add(self.tool_input.unwrap_or(0));
        let output = sum([self.output, self.thoughts, None]);
        // Where reasoning is counted in neither, the total still has it (xAI).
        let output = output.max(self.total.map_or(0, |total| total.saturating_sub(input)));
        Some(Usage { input, output, cached: self.cached.or(self.cache_read).unwrap_or(0).min(input) })
    }

    /// Reads a field that holds a count outside a `usage` object (Ollama); `false` if it is none.
    pub fn top_level<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error> {
        match name {
            "prompt_eval_count" => self.prompt = count(map)?.or(self.prompt),
            "eval_count" => self.output = count(map)?.or(self.output),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn field<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "prompt_tokens" | "promptTokenCount" => self.prompt = count(map)?,
            "input_tokens" | "inputTokens" => self.input = count(map)?,
            "completion_tokens" | "output_tokens" | "candidatesTokenCount" | "outputTokens" => {
                self.output = count(map)?
            }
            "total_tokens" | "totalTokenCount" | "totalTokens" => self.total = count(map)?,
            "prompt_tokens_details" | "input_tokens_details" => self.cached = value::<Details, _>(map)?.0,
            "prompt_cache_hit_tokens" | "cachedContentTokenCount" => self.cached = count(map)?,
            "cache_read_input_tokens" | "cacheReadInputTokens" => self.cache_read = count(map)?,
            "cache_creation_input_tokens" | "cacheWriteInputTokens" => self.cache_write = count(map)?,
            "thoughtsTokenCount" => self.thoughts = count(map)?,
            "toolUsePromptTokenCount" => self.tool_input = count(map)?,
            _ => skip(map)?,
        }
        Ok(())
    }
}

impl<'de> Loose<'de> for Counts {
    fn object<A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        let mut counts = Counts::default();
        while let Some(name) = key(&mut map)? {
            counts.field(&name, &mut map)?;
        }
        Ok(counts)
    }
}

fn count<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Option<u64>, A::Error> {
    value::<Count, _>(map).map(|c| c.0)
}

/// `prompt_tokens_details`.
#[derive(Default)]
struct Details(Option<u64>);

impl<'de> Loose<'de> for Details {
    fn object<A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        let mut details = Details::default();
        while let Some(name) = key(&mut map)? {
            match &*name {
                "cached_tokens" => details.0 = count(&mut map)?,
                _ => skip(&mut map)?,
            }
        }
        Ok(details)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::loose::Read;

    fn usage(json: &str) -> Option<(u64, u64, u64)> {
        let counts = serde_json::from_str::<Read<Counts>>(json).unwrap().0;
        counts.usage().map(|u| (u.input, u.output, u.cached))
    }

    #[test]
    fn by_every_name() {
        for (json, want) in [
            // OpenAI chat, Responses, embeddings
            (
                r#"{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,"prompt_tokens_details":{"cached_tokens":4}}"#,
                (10, 5, 4),
            ),
            (
                r#"{"input_tokens":7,"output_tokens":5,"total_tokens":12,"input_tokens_details":{"cached_tokens":2}}"#,
                (7, 5, 2),
            ),
            (r#"{"prompt_tokens":8,"total_tokens":8}"#, (8, 0, 0)),
            // DeepSeek; xAI, whose reasoning is only in the total
            (r#"{"prompt_tokens":10,"completion_tokens":5,"prompt_cache_hit_tokens":6}"#, (10, 5, 6)),
            (r#"{"prompt_tokens":10,"completion_tokens":5,"total_tokens":40}"#, (10, 30, 0)),
            // Anthropic: the cache's tokens come on top
            (
                r#"{"input_tokens":3,"cache_read_input_tokens":100,"cache_creation_input_tokens":20,"output_tokens":9}"#,
                (123, 9, 100),
            ),
            // a translating server that tells both
            (r#"{"prompt_tokens":123,"cache_read_input_tokens":100,"completion_tokens":9}"#, (123, 9, 100)),
            // Gemini: thoughts are billed as output
            (
                r#"{"promptTokenCount":10,"candidatesTokenCount":5,"thoughtsTokenCount":7,"totalTokenCount":22,"cachedContentTokenCount":4}"#,
                (10, 12, 4),
            ),
            // Bedrock
            (r#"{"inputTokens":1,"outputTokens":2,"cacheReadInputTokens":3,"cacheWriteInputTokens":4}"#, (8, 2, 3)),
        ] {
            assert_eq!(usage(json), Some(want), "{json}");
        }
    }

    #[test]
    fn nulls_and_nonsense_are_no_usage() {
        for json in [
            "null",
            "{}",
            "[]",
            "3",
            r#"{"prompt_tokens":null,"completion_tokens":null,"total_tokens":0}"#,
            r#"{"prompt_tokens":"7"}"#,
        ] {
            assert_eq!(usage(json), None, "{json}");
        }
    }

    #[test]
    fn the_later_word_wins() {
        let read = |json| serde_json::from_str::<Read<Counts>>(json).unwrap().0;
        let mut counts: Counts = read(r#"{"input_tokens":12,"output_tokens":1,"cache_read_input_tokens":3}"#);
        counts.merge(read(r#"{"output_tokens":50}"#));
        assert_eq!(counts.usage(), Some(Usage { input: 15, output: 50, cached: 3 }));
    }
}
