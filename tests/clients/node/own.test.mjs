// What only one of the SDKs can ask for.
import assert from "node:assert/strict";
import { test } from "node:test";

import { rig } from "./harness.mjs";
import { anthropic, gemini, openai } from "./sdks.mjs";

const GOOD = "héllo 世界 🦀";
const parameters = { type: "object", properties: { city: { type: "string" } } };

/** A client of `sdk` and the upstream behind it, which fails twice before it gives the answer. */
async function failingTwice(t, sdk, answer) {
  const { upstream, backstop } = await rig(t);
  await upstream.play(`${sdk.name}-busy`, "reset", answer);
  return { client: sdk.client(sdk.base(backstop.url)), upstream };
}

test("openai: a tool call", async (t) => {
  const { client } = await failingTwice(t, openai, "openai-tool");
  const tools = [{ type: "function", function: { name: "weather", parameters } }];
  const answer = await client.chat.completions.create({ model: "gpt-test", messages: [{ role: "user", content: "weather?" }], tools });
  assert.deepEqual(JSON.parse(answer.choices[0].message.tool_calls[0].function.arguments), { city: "Zürich" });
});

test("openai: a response", async (t) => {
  const { client } = await failingTwice(t, openai, "responses-ok");
  assert.equal((await client.responses.create({ model: "gpt-test", input: "hi" })).output_text, GOOD);
});

test("openai: a streamed response", async (t) => {
  const { client } = await failingTwice(t, openai, "responses-stream");
  let text = "";
  for await (const event of await client.responses.create({ model: "gpt-test", input: "hi", stream: true })) {
    if (event.type === "response.output_text.delta") text += event.delta;
  }
  assert.equal(text, GOOD);
});

test("openai: embeddings", async (t) => {
  const { client } = await failingTwice(t, openai, "openai-embeddings");
  const answer = await client.embeddings.create({ model: "embed-test", input: "hi", encoding_format: "float" });
  assert.deepEqual(answer.data[0].embedding, [0.5, -0.25]);
});

test("openai: an uploaded file arrives whole and once", async (t) => {
  const { upstream, backstop } = await rig(t);
  await upstream.play("openai-file");
  const content = Buffer.from(Array.from({ length: 1 << 20 }, (_, n) => n & 255));
  const file = new File([content], "notes.bin");
  assert.equal((await openai.client(openai.base(backstop.url)).files.create({ file, purpose: "user_data" })).id, "file-1");
  const seen = await upstream.seen();
  assert.equal(seen.length, 1);
  assert.ok(Buffer.from(seen[0].body, "latin1").includes(content));
});

test("anthropic: a tool call", async (t) => {
  const { client } = await failingTwice(t, anthropic, "anthropic-tool");
  const tools = [{ name: "weather", input_schema: parameters }];
  const answer = await client.messages.create({ model: "claude-test", max_tokens: 64, messages: [{ role: "user", content: "weather?" }], tools });
  assert.deepEqual(answer.content[0].input, { city: "Zürich" });
});

test("anthropic: counting tokens", async (t) => {
  const { client, upstream } = await failingTwice(t, anthropic, "anthropic-count");
  const counted = await client.messages.countTokens({ model: "claude-test", messages: [{ role: "user", content: "hi" }] });
  assert.equal(counted.input_tokens, 42);
  assert.equal((await upstream.seen()).length, 3);
});

test("gemini: a tool call", async (t) => {
  const { client } = await failingTwice(t, gemini, "gemini-tool");
  const tools = [{ functionDeclarations: [{ name: "weather", parametersJsonSchema: parameters }] }];
  const answer = await client.models.generateContent({ model: "gemini-test", contents: "weather?", config: { tools } });
  assert.deepEqual(answer.functionCalls[0].args, { city: "Zürich" });
});

test("gemini: the credential reaches the upstream", async (t) => {
  const { client, upstream } = await failingTwice(t, gemini, "gemini-ok");
  await client.models.generateContent({ model: "gemini-test", contents: "hi" });
  for (const { headers } of await upstream.seen()) assert.equal(headers["x-goog-api-key"], "AIza-test");
});
