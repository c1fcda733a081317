// What goes wrong inside a stream: unseen before content, the SDK's own exception after it.
import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { rig } from "./harness.mjs";
import { ai, responses, sdks } from "./sdks.mjs";

const GOOD = "héllo 世界 🦀";
const idle = ["timeouts.stream_idle=500ms", "timeouts.stream_first_event=500ms"];
const shield = ["stream.mode=shield"];
const NOTHING = -3; // content less this is no event at all

// After the events before content and `more`, `then` happens to the first attempt. It ends in the whole text after two
// attempts, or after one in an exception that says `says`.
const cases = [
  { what: "an error as the first event is got past", then: "error", more: NOTHING },
  { what: "an error right before content is got past", then: "error", more: 0 },
  { what: "a cut right before content is got past", then: "cut", more: 0 },
  { what: "a stall before the first event is got past", then: "stall", more: NOTHING, settings: idle },
  { what: "an error after content raises", then: "error", more: 2, says: /The server had an error/ },
  { what: "a cut after content raises", then: "cut", more: 2, says: /interrupted/ },
  { what: "an end without its marker raises", then: "end", more: 2, says: /interrupted/ },
  { what: "a stall after content raises", then: "stall", more: 2, says: /stalled/, settings: idle },
  { what: "shielded, a cut after content is got past", then: "cut", more: 2, settings: shield },
  { what: "shielded, an error after content is got past", then: "error", more: 2, settings: shield },
];

// These the OpenAI SDK would yield as events like any other.
const otherErrors = ["flat", "failed"].map((then) => ({ what: `an error of the form "${then}" before content is got past`, then, more: -2 }));

const every = [...sdks, responses, ...ai].map((sdk) => ({ label: sdk.form, ...sdk }));
for (const sdk of every) describe(sdk.label, { concurrency: 4 }, () => {
  const { label } = sdk;
  const good = `${sdk.form}-stream`;

  for (const { what, then, more, says, settings } of sdk.form === "responses" ? [...cases, ...otherErrors] : cases) {
    test(`${label}: ${what}`, async (t) => {
      const { upstream, backstop } = await rig(t, { settings });
      await upstream.play({ use: good, after: Math.max(sdk.content + more, 0), then }, good);
      const got = [];
      const call = sdk.stream(sdk.base(backstop.url), got);
      if (says) {
        const error = await call.then((text) => assert.fail(`answered ${text}`), (e) => e);
        assert.ok(error instanceof sdk.told, `raised ${error.constructor.name}: ${error.message}`);
        assert.match(error.message, says);
        assert.equal(got.join(""), "héllo 世界 ", "what came before is there");
      } else {
        assert.equal(await call, GOOD);
      }
      assert.equal((await upstream.seen()).length, says ? 1 : 2);
    });
  }

  test(`${label}: heartbeats disturb nothing, while the call waits and between events`, async (t) => {
    const { upstream, backstop } = await rig(t, { settings: ["stream.heartbeat=200ms"] });
    await upstream.play(`${sdk.name}-limited`, { use: good, after: sdk.content + 2, then: "pause" });
    assert.equal(await sdk.stream(sdk.base(backstop.url)), GOOD);
    assert.equal((await upstream.seen()).length, 2);
  });

  test(`${label}: what fails after a heartbeat is told in the stream`, async (t) => {
    const { upstream, backstop } = await rig(t, { settings: ["stream.heartbeat=200ms"] });
    await upstream.play(`${sdk.name}-limited`, `${sdk.name}-400`);
    await assert.rejects(sdk.stream(sdk.base(backstop.url)), /required|contents/);
  });
});
