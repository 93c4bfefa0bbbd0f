import {
  applyEvents,
  entriesOf,
  isSameEntry,
  summarise,
  withNotices,
} from "../../../src/talaria/web/static/js/turn.js";
import { assertEquals } from "./assert.js";

/** @import { Entry, FoldedEntry } from "../../../src/talaria/web/static/js/turn.js" */
/** @import { NoticeView, TurnEvent } from "../../../src/talaria/web/static/js/wire.d.ts" */

/** @type {TurnEvent[]} */
const EVENTS = [
  { type: "began", turn_id: "t1", text: "Hello", route: null, items: [] },
  { type: "reasoning", text: "Hm" },
  { type: "text", text: "I'll " },
  { type: "text", text: "look." },
  {
    type: "tool_called",
    call: { type: "tool_call", id: "c1", name: "terminal", arguments: '{"command":"ls"}' },
    summary: "ls",
  },
  { type: "approval_asked", id: "q1", tool: "terminal", summary: "ls", reason: "It runs a program.", diff: "" },
  { type: "question_closed", id: "q1" },
  { type: "tool_progressed", call_id: "c1", text: "a.txt\n", step: false },
  {
    type: "tool_answered",
    result: { type: "tool_result", call_id: "c1", text: "a.txt" },
    name: "terminal",
    seconds: 2,
    diff: "",
  },
  { type: "text", text: "Done." },
  { type: "model_called", model: "m", usage: {}, context: 10, context_limit: 100 },
  { type: "answered", text: "Done." },
];

/** @type {(events: TurnEvent[]) => unknown} */
const kinds = (events) => applyEvents(null, events)?.entries.map((one) => [one.kind, "text" in one ? one.text : ""]);

Deno.test("a turn has an entry for each event", () => {
  const turn = applyEvents(null, EVENTS);
  assertEquals(turn?.entries.map((one) => one.kind), ["user", "reasoning", "text", "tool", "text"]);
  assertEquals(turn?.over, true);
  assertEquals(turn?.model, "m");
});

Deno.test("events in several batches give the same turn as all at once", () => {
  for (let cut = 1; cut < EVENTS.length; cut++) {
    const turn = applyEvents(applyEvents(null, EVENTS.slice(0, cut)), EVENTS.slice(cut));
    assertEquals(turn?.entries.map((one) => [one.kind, "text" in one ? one.text : ""]), kinds(EVENTS));
  }
});

Deno.test("events without the beginning of their turn are ignored", () => {
  assertEquals(applyEvents(null, EVENTS.slice(1)), null);
});

Deno.test("an open question ends with its turn", () => {
  const turn = applyEvents(null, [...EVENTS.slice(0, 6), { type: "stopped" }]);
  assertEquals(turn?.entries.map((one) => one.kind), ["user", "reasoning", "text", "tool", "notice"]);
});

Deno.test("a file is shown after the call that sent it", () => {
  /** @type {(id: string, files: number, text?: string) => NoticeView} */
  const notice = (id, files, text = "") => ({
    id,
    after: 3,
    at: "2026-01-01T00:00:00Z",
    text,
    files: Array.from({ length: files }, () => ({ type: "file", id: "f", name: "a.png", media_type: "image/png" })),
  });
  const call = (/** @type {string} */ id, name = "send_file", text = "Sending a.png to this chat.") => [
    { type: "tool_called", call: { type: "tool_call", id, name, arguments: "{}" }, summary: "" },
    {
      type: "tool_answered",
      result: { type: "tool_result", call_id: id, text },
      name,
      seconds: 0,
      diff: "",
    },
  ];
  const events = /** @type {TurnEvent[]} */ ([
    { type: "began", turn_id: "t", text: "Draw" },
    ...call("c1"),
    { type: "text", text: "One." },
    ...call("c2", "image_generate", "Saved /a.png. Sending a.png to this chat."),
    { type: "text", text: "Two." },
  ]);
  const entries = applyEvents(null, events)?.entries ?? [];
  const kinds = (/** @type {NoticeView[]} */ ...notices) =>
    withNotices(entries, notices).map((one) => one.entry.kind).join(" ");
  assertEquals(kinds(notice("1", 1), notice("2", 1)), "user tool files text tool files text");
  assertEquals(kinds(notice("1", 1)), "user tool files text tool text");
  assertEquals(kinds(notice("1", 0, "A job is done.")), "user tool text tool text text");
  const keys = withNotices(entries, [notice("1", 1), notice("2", 2)]).map((one) => one.key);
  assertEquals(new Set(keys).size, keys.length);
});

Deno.test("results of the transcript belong to their calls", () => {
  const at = "2026-01-01T00:00:00Z";
  const found = entriesOf([
    { seq: 1, role: "user", at, model: "", author: "", parts: [{ type: "text", text: "Hi" }] },
    {
      seq: 2,
      role: "assistant",
      at,
      model: "m",
      author: "",
      parts: [{ type: "text", text: "Yes" }, { type: "tool_call", id: "c", name: "t", arguments: '{"a":"b"}' }],
    },
    {
      seq: 3,
      role: "tool",
      at,
      model: "",
      author: "",
      parts: [{ type: "tool_result", call_id: "c", text: "out", failed: true }],
    },
  ]);
  assertEquals(found.map((one) => [one.seq, one.entry.kind]), [[1, "user"], [2, "text"], [2, "tool"]]);
  const tool = found[2]?.entry;
  assertEquals(tool?.kind === "tool" && [tool.output, tool.state, tool.summary], ["out", "failed", "b"]);
});

Deno.test("live entries are recognised in the transcript", () => {
  /** @type {(entry: Entry) => entry is FoldedEntry} */
  const isFolded = (entry) => entry.kind === "tool" || entry.kind === "reasoning";
  const turn = applyEvents(null, EVENTS.slice(0, 5));
  const [live, liveCall] = turn?.entries.filter(isFolded) ?? [];
  applyEvents(turn, EVENTS.slice(6));
  const call = { type: /** @type {const} */ ("tool_call"), id: "c1", name: "terminal", arguments: '{"command":"ls"}' };
  const parts = [{ type: /** @type {const} */ ("reasoning"), text: "Hm\n" }, call, { ...call, arguments: "{}" }];
  const at = "2026-01-01T00:00:00Z";
  const stored = entriesOf([{ seq: 2, role: "assistant", at, model: "", author: "", parts }])
    .map((one) => one.entry).filter(isFolded);
  assertEquals(stored.map((one) => live && isSameEntry(live, one)), [true, false, false]);
  assertEquals(stored.map((one) => liveCall && isSameEntry(liveCall, one)), [false, true, false]);
});

Deno.test("a summary is one line", () => {
  assertEquals(summarise('{"command":"first\\nsecond"}'), "first");
  assertEquals(summarise("broken"), "broken");
});

Deno.test("a question that arrives twice is asked once", () => {
  const turn = applyEvents(null, [...EVENTS.slice(0, 6), ...EVENTS.slice(5, 6)]);
  assertEquals(turn?.entries.filter((one) => one.kind === "approval").length, 1);
});
