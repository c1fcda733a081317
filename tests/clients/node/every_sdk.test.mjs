// What holds for every SDK, with nothing but its base URL changed.
import assert from "node:assert/strict";
import { request } from "node:http";
import { test } from "node:test";

import { rig } from "./harness.mjs";
import { openai, sdks } from "./sdks.mjs";

const GOOD = "héllo 世界 🦀"; // what the good answers in answers.json say
const MAX_ATTEMPTS = 5; // retry.max_attempts as shipped

/** The exception that a failing call raises: the SDK's own class for that status. */
async function failure(sdk, base, status, options) {
  const error = await sdk.ask(base, "hi", options).then((text) => assert.fail(`answered ${text}`), (e) => e);
  assert.ok(error instanceof sdk.raises(status), `raised ${error.constructor.name}: ${error.message}`);
  assert.equal(error.status, status);
  return error;
}

for (const sdk of sdks) {
  const { name } = sdk;
  const overloaded = name === "anthropic" ? 529 : 503;

  for (const prefix of [true, false]) {
    const form = prefix ? "prefix" : "bare";

    test(`${name}, ${form}: an answer comes through an overload and a reset`, async (t) => {
      const { upstream, backstop } = await rig(t);
      await upstream.play(`${name}-busy`, "reset", `${name}-ok`);
      assert.equal(await sdk.ask(sdk.base(backstop.url, prefix), "grüezi 🌍"), GOOD);
      const bodies = (await upstream.seen()).map(({ body }) => Buffer.from(body, "latin1").toString());
      assert.equal(bodies.length, 3);
      assert.equal(new Set(bodies).size, 1, "the same bytes on every attempt");
      assert.ok(bodies[0].includes("grüezi 🌍"));
    });

    test(`${name}, ${form}: a stream comes through an overload and a reset`, async (t) => {
      const { upstream, backstop } = await rig(t);
      await upstream.play(`${name}-busy`, "reset", `${name}-stream`);
      assert.equal(await sdk.stream(sdk.base(backstop.url, prefix)), GOOD);
      assert.equal((await upstream.seen()).length, 3);
    });
  }

  test(`${name}: the metrics tell the retries`, async (t) => {
    const { upstream, backstop } = await rig(t);
    await upstream.play(`${name}-busy`, "reset", `${name}-ok`);
    await sdk.ask(sdk.base(backstop.url));
    assert.equal(await backstop.metric("backstop_retries_total", { upstream: name, reason: "overloaded" }), 1);
    assert.equal(await backstop.metric("backstop_retries_total", { upstream: name, reason: "reset" }), 1);
    assert.equal(await backstop.metric("backstop_requests_total", { upstream: name, outcome: "success", status: "200" }), 1);
  });

  test(`${name}: a rate limit is waited out for as long as the provider says`, async (t) => {
    const { upstream, backstop } = await rig(t);
    await upstream.play(`${name}-limited`, `${name}-ok`);
    assert.equal(await sdk.ask(sdk.base(backstop.url)), GOOD);
    const [first, second] = await upstream.seen();
    assert.ok(second.at - first.at >= 1 && second.at - first.at < 5);
  });

  for (const [what, status] of [["quota", 429], ["400", 400], ["401", 401], ["404", 404]]) {
    test(`${name}: ${what} is passed on at once`, async (t) => {
      const { upstream, backstop } = await rig(t);
      await upstream.play(`${name}-${what}`);
      await failure(sdk, sdk.base(backstop.url), status);
      assert.equal((await upstream.seen()).length, 1);
    });
  }

  test(`${name}: exhausted attempts end in the last answer`, async (t) => {
    const { upstream, backstop } = await rig(t);
    await upstream.play(`${name}-busy`);
    const error = await failure(sdk, sdk.base(backstop.url), overloaded);
    assert.match(error.message, /overloaded/i, "the provider's own words");
    assert.equal((await upstream.seen()).length, MAX_ATTEMPTS);
  });

  test(`${name}: the SDK's own retries do not multiply`, async (t) => {
    const { upstream, backstop } = await rig(t);
    await upstream.play(`${name}-busy`);
    await failure(sdk, sdk.base(backstop.url), overloaded, { retries: 2 });
    // @google/genai knows no x-should-retry: each of its two repeats gets one attempt, not five
    assert.equal((await upstream.seen()).length, MAX_ATTEMPTS + (name === "gemini" ? 2 : 0));
  });

  test(`${name}: an upstream that refuses raises a readable server error`, async (t) => {
    const { backstop } = await rig(t, { refused: true });
    const error = await failure(sdk, sdk.base(backstop.url), 502);
    assert.match(error.message, /upstream_unreachable|refused/);
    assert.match(error.message, new RegExp(MAX_ATTEMPTS));
  });

  test(`${name}: a hanging upstream is given up before the client's own timeout`, async (t) => {
    const { upstream, backstop } = await rig(t);
    await upstream.play("hang");
    await failure(sdk, sdk.base(backstop.url), 504, { timeout: 2 });
  });

  test(`${name}: twenty calls at once all come through`, async (t) => {
    const { upstream, backstop } = await rig(t);
    await upstream.play({ new: `${name}-busy`, again: `${name}-ok` });
    const calls = Array.from({ length: 20 }, (_, n) => sdk.ask(sdk.base(backstop.url), `call ${n}`));
    assert.deepEqual(await Promise.all(calls), Array(20).fill(GOOD));
    assert.equal((await upstream.seen()).length, 40);
  });
}

test("openai: a long held call is kept alive by interim answers", async (t) => {
  const { upstream, backstop } = await rig(t);
  await upstream.play({ hold: "openai-ok" });
  const call = openai.ask(openai.base(backstop.url));
  const interim = await new Promise((resolve, reject) => {
    const raw = request(`${backstop.url}/openai/v1/chat/completions`, { method: "POST", headers: { "user-agent": "node" } });
    raw.on("information", (info) => { resolve(info.statusCode); raw.destroy(); });
    raw.on("response", () => reject(new Error("answered before an interim answer"))).on("error", reject);
    raw.end("{}");
  });
  assert.equal(interim, 102);
  await upstream.release();
  assert.equal(await call, GOOD);
});
