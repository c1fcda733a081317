// The SDKs behind one face: each asks for an answer, whole or streamed, and raises its own exceptions.
import Anthropic from "@anthropic-ai/sdk";
import { ApiError, GoogleGenAI } from "@google/genai";
import OpenAI from "openai";

const user = (prompt) => [{ role: "user", content: prompt }];

/** The text of a stream, by the text of each of its chunks. */
async function joined(chunks, text) {
  let all = "";
  for await (const chunk of chunks) all += text(chunk) ?? "";
  return all;
}

/** What OpenAI's and Anthropic's SDKs raise for a status, alike. */
const named = (sdk) => (status) =>
  ({ 400: sdk.BadRequestError, 401: sdk.AuthenticationError, 404: sdk.NotFoundError, 429: sdk.RateLimitError })[status] ?? sdk.InternalServerError;

const openai = {
  name: "openai",
  base: (url, prefix = true) => `${url}${prefix ? "/openai" : ""}/v1`,
  client: (baseURL, { retries = 0 } = {}) => new OpenAI({ baseURL, apiKey: "sk-test", maxRetries: retries }),
  raises: named(OpenAI),
  // a timeout is told to the server only when it is given with the call itself
  async ask(base, prompt = "hi", { timeout, ...options } = {}) {
    const body = { model: "gpt-test", messages: user(prompt) };
    return (await this.client(base, options).chat.completions.create(body, timeout && { timeout: timeout * 1000 })).choices[0].message.content;
  },
  async stream(base) {
    const body = { model: "gpt-test", messages: user("hi"), stream: true };
    return joined(await this.client(base).chat.completions.create(body), (chunk) => chunk.choices[0].delta.content);
  },
};

const anthropic = {
  name: "anthropic",
  base: (url, prefix = true) => `${url}${prefix ? "/anthropic" : ""}`,
  client: (baseURL, { timeout = 30, retries = 0 } = {}) => new Anthropic({ baseURL, apiKey: "sk-ant-test", maxRetries: retries, timeout: timeout * 1000 }),
  raises: named(Anthropic),
  async ask(base, prompt = "hi", options = {}) {
    return (await this.client(base, options).messages.create({ model: "claude-test", max_tokens: 64, messages: user(prompt) })).content[0].text;
  },
  async stream(base) {
    const events = this.client(base).messages.stream({ model: "claude-test", max_tokens: 64, messages: user("hi") });
    return joined(events, (event) => event.delta?.text);
  },
};

const gemini = {
  name: "gemini",
  base: (url, prefix = true) => `${url}${prefix ? "/gemini" : ""}`,
  client: (baseUrl, { timeout = 30, retries = 0 } = {}) => new GoogleGenAI({
    apiKey: "AIza-test",
    httpOptions: { baseUrl, timeout: timeout * 1000, ...(retries && { retryOptions: { attempts: retries + 1, initialDelay: 0.01 } }) },
  }),
  raises: () => ApiError,
  async ask(base, prompt = "hi", options = {}) {
    return (await this.client(base, options).models.generateContent({ model: "gemini-test", contents: prompt })).text;
  },
  async stream(base) {
    return joined(await this.client(base).models.generateContentStream({ model: "gemini-test", contents: "hi" }), (chunk) => chunk.text);
  },
};

export const sdks = [openai, anthropic, gemini];
export { openai, anthropic, gemini };
