// The SDKs behind one face: each asks for an answer, whole or streamed, and raises its own exceptions.
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import Anthropic from "@anthropic-ai/sdk";
import { ApiError, GoogleGenAI } from "@google/genai";
import { APICallError, generateText, streamText } from "ai";
import OpenAI from "openai";

const user = (prompt) => [{ role: "user", content: prompt }];

/** The text of a stream, by the text of each of its chunks; also put into `got`, piece by piece. */
async function joined(chunks, text, got = []) {
  for await (const chunk of chunks) got.push(text(chunk) ?? "");
  return got.join("");
}

/** What OpenAI's and Anthropic's SDKs raise for a status, alike. */
const named = (sdk) => (status) =>
  ({ 400: sdk.BadRequestError, 401: sdk.AuthenticationError, 404: sdk.NotFoundError, 429: sdk.RateLimitError })[status] ?? sdk.InternalServerError;

// `name` is the dialect. `${form}-ok` and `${form}-stream` are the answers; of the events in the stream, `content` come
// before there is content. What an error event in a stream raises is `told`.
const openai = {
  name: "openai",
  form: "openai",
  content: 1,
  told: OpenAI.APIError,
  base: (url, prefix = true) => `${url}${prefix ? "/openai" : ""}/v1`,
  client: (baseURL, { retries = 0 } = {}) => new OpenAI({ baseURL, apiKey: "sk-test", maxRetries: retries }),
  raises: named(OpenAI),
  // a timeout is told to the server only when it is given with the call itself
  async ask(base, prompt = "hi", { timeout, ...options } = {}) {
    const body = { model: "gpt-test", messages: user(prompt) };
    return (await this.client(base, options).chat.completions.create(body, timeout && { timeout: timeout * 1000 })).choices[0].message.content;
  },
  async stream(base, got) {
    const body = { model: "gpt-test", messages: user("hi"), stream: true };
    return joined(await this.client(base).chat.completions.create(body), (chunk) => chunk.choices[0].delta.content, got);
  },
};

const responses = {
  ...openai,
  form: "responses",
  content: 3,
  async ask(base, prompt = "hi", options = {}) {
    return (await this.client(base, options).responses.create({ model: "gpt-test", input: prompt })).output_text;
  },
  async stream(base, got) {
    const events = await this.client(base).responses.create({ model: "gpt-test", input: "hi", stream: true });
    return joined(events, (event) => event.type === "response.output_text.delta" && event.delta || "", got);
  },
};

const anthropic = {
  name: "anthropic",
  form: "anthropic",
  content: 3,
  told: Anthropic.APIError,
  base: (url, prefix = true) => `${url}${prefix ? "/anthropic" : ""}`,
  client: (baseURL, { timeout = 30, retries = 0 } = {}) => new Anthropic({ baseURL, apiKey: "sk-ant-test", maxRetries: retries, timeout: timeout * 1000 }),
  raises: named(Anthropic),
  async ask(base, prompt = "hi", options = {}) {
    return (await this.client(base, options).messages.create({ model: "claude-test", max_tokens: 64, messages: user(prompt) })).content[0].text;
  },
  async stream(base, got) {
    const events = this.client(base).messages.stream({ model: "claude-test", max_tokens: 64, messages: user("hi") });
    return joined(events, (event) => event.delta?.text, got);
  },
};

const gemini = {
  name: "gemini",
  form: "gemini",
  content: 0,
  told: ApiError,
  base: (url, prefix = true) => `${url}${prefix ? "/gemini" : ""}`,
  client: (baseUrl, { timeout = 30, retries = 0 } = {}) => new GoogleGenAI({
    apiKey: "AIza-test",
    httpOptions: { baseUrl, timeout: timeout * 1000, ...(retries && { retryOptions: { attempts: retries + 1, initialDelay: 0.01 } }) },
  }),
  raises: () => ApiError,
  async ask(base, prompt = "hi", options = {}) {
    return (await this.client(base, options).models.generateContent({ model: "gemini-test", contents: prompt })).text;
  },
  async stream(base, got) {
    return joined(await this.client(base).models.generateContentStream({ model: "gemini-test", contents: "hi" }), (chunk) => chunk.text, got);
  },
};

/** Vercel's `ai` with one of its providers. Its errors in a stream are parts, not exceptions: this face throws them. */
const vercel = (sdk, label, model) => ({
  ...sdk,
  label,
  base: (url, prefix = true) => `${url}${prefix ? `/${sdk.name}` : ""}/v1`,
  raises: () => APICallError,
  told: Object,
  async ask(base, prompt = "hi") {
    return (await generateText({ model: model(base), prompt, maxRetries: 0, maxOutputTokens: 64 })).text;
  },
  async stream(base, got = []) {
    const { fullStream } = streamText({ model: model(base), prompt: "hi", maxRetries: 0, maxOutputTokens: 64, onError: () => {} });
    let failure;
    for await (const part of fullStream) {
      if (part.type === "text-delta") got.push(part.text);
      if (part.type === "error") failure = part.error;
      if (part.type === "finish" && part.finishReason !== (failure ? "error" : "stop")) throw new Error(`finished with ${part.finishReason}`);
    }
    if (failure) throw failure;
    return got.join("");
  },
});

const aiOpenai = (baseURL) => createOpenAI({ baseURL, apiKey: "sk-test" });
const ai = [
  vercel(openai, "ai, openai chat", (base) => aiOpenai(base).chat("gpt-test")),
  vercel(responses, "ai, openai responses", (base) => aiOpenai(base).responses("gpt-test")),
  vercel(anthropic, "ai, anthropic", (baseURL) => createAnthropic({ baseURL, apiKey: "sk-ant-test" })("claude-test")),
];

export const sdks = [openai, anthropic, gemini];
export { ai, anthropic, gemini, openai, responses };
