// Vercel's `ai`, its own retries off, with nothing but the base URL changed. Its streams are in streams.test.mjs too.
import assert from "node:assert/strict";
import { test } from "node:test";

import { rig } from "./harness.mjs";
import { ai } from "./sdks.mjs";

const GOOD = "héllo 世界 🦀";

for (const sdk of ai) {
  for (const prefix of [true, false]) {
    for (const [call, answer] of [["ask", "ok"], ["stream", "stream"]]) {
      test(`${sdk.label}, ${prefix ? "prefix" : "bare"}: ${call} comes through an overload and a reset`, async (t) => {
        const { upstream, backstop } = await rig(t);
        await upstream.play(`${sdk.name}-busy`, "reset", `${sdk.form}-${answer}`);
        assert.equal(await sdk[call](sdk.base(backstop.url, prefix)), GOOD);
        assert.equal((await upstream.seen()).length, 3);
      });
    }
  }

  for (const call of ["ask", "stream"]) {
    for (const [what, status] of [["quota", 429], ["400", 400], ["401", 401]]) {
      test(`${sdk.label}: ${what} is passed on at once to ${call}`, async (t) => {
        const { upstream, backstop } = await rig(t);
        await upstream.play(`${sdk.name}-${what}`);
        const error = await sdk[call](sdk.base(backstop.url)).then((text) => assert.fail(`answered ${text}`), (e) => e);
        assert.ok(error instanceof sdk.raises(status), `raised ${error.constructor.name}: ${error.message}`);
        assert.equal(error.statusCode, status);
        assert.equal((await upstream.seen()).length, 1);
      });
    }
  }
}
