import { placeSpans, timeTicks } from "../../../src/talaria/web/static/js/pages/timeline.js";
import { assertEquals } from "./assert.js";

/** @type {(second: number) => string} */
const at = (second) => new Date(Date.UTC(2026, 0, 1, 0, 0, 0, second * 1000)).toISOString();
/** @type {(start: number, end: number) => any} */
const tool = (start, end) => ({ type: "tool", name: "t", started_at: at(start), ended_at: at(end) });
/** @type {(start: number, end: number, first: number | null) => any} */
const model = (start, end, first) => ({
  type: "model",
  model: "m",
  started_at: at(start),
  ended_at: at(end),
  first_text_seconds: first,
});

Deno.test("tools that run in parallel are in separate lanes", () => {
  const placed = placeSpans([model(0, 2, 1), tool(2, 5), tool(2, 3), tool(3, 4), model(5, 6, null)], at(0));
  assertEquals(placed.map((one) => one.lane), [0, 1, 2, 2, 0]);
  assertEquals(placed.map((one) => [one.start, one.end]), [[0, 2], [2, 5], [2, 3], [3, 4], [5, 6]]);
  assertEquals(placed.map((one) => one.first), [1, null, null, null, null]);
});

Deno.test("a time axis has few round ticks", () => {
  assertEquals(timeTicks(10), [0, 2, 4, 6, 8, 10]);
  for (const total of [0.02, 0.9, 7, 61, 4000, 90_000]) {
    const ticks = timeTicks(total);
    if (ticks.length < 2 || ticks.length > 8) throw new Error(`${total}: ${ticks}`);
  }
});
