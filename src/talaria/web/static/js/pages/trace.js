/**
 * Trace of a turn as a timeline: model calls with waiting time, tool calls in lanes, prompt prefix breaks.
 * @module
 */
import { h, useSignal } from "../../vendor/preact.js";
import {
  div,
  heading,
  label,
  li,
  option,
  p,
  pre,
  section,
  select,
  span,
  table,
  tbody,
  td,
  th,
  thead,
  tr,
  ul,
} from "../elements.js";
import { me, navigate, path, sessions } from "../state.js";
import { formatCost, formatDuration, formatNumber } from "./format.js";
import { emptyState, failureNotice, PageFrame, useLive } from "./frame.js";
import { placeSpans, timeTicks } from "./timeline.js";
import { conversationLink, link, moment, stat, stateChip } from "./parts.js";

/** @import { Child, Signal } from "../../vendor/preact.d.ts" */
/** @import { Placed } from "./timeline.js" */
/** @import { TraceView, TurnTraceView } from "../wire.d.ts" */

const WIDTH = 1000;
const LANE = 30;
const HEAD = 26;
const BAR = 20;

/** @type {(props: object) => Child} */
export function Page() {
  const [, , session = "", turn = ""] = path.value.split("/");
  return session ? h(SessionTrace, { key: session, session, turn }) : h(Chooser, {});
}

/** Recent conversations, to choose from. @type {(props: object) => Child} */
function Chooser() {
  const found = sessions.value;
  return h(
    PageFrame,
    { title: "Traces" },
    found.length
      ? ul(
        { class: "rows work-panel" },
        ...found.map((row) =>
          li(
            { key: row.id },
            span({ class: "row-text" }, link(`/trace/${row.id}`, row.title || "Untitled conversation")),
            span({ class: "caption" }, moment(row.updated_at)),
          )
        ),
      )
      : emptyState("There are no conversations yet."),
  );
}

/** @type {(props: { session: string, turn: string }) => Child} */
function SessionTrace({ session, turn }) {
  const chosen = useSignal(-1);
  const { data, failure } = /** @type {import("./frame.js").Loaded<TraceView>} */ (
    useLive(`/web/sessions/${session}/trace?turn=${encodeURIComponent(turn)}`, "home")
  );
  const view = data.value;
  return h(
    PageFrame,
    { title: "Trace", wide: true },
    failureNotice(failure.value),
    view ? content(view, chosen) : null,
  );
}

/** @type {(view: TraceView, chosen: Signal<number>) => Child} */
function content(view, chosen) {
  const { turn } = view;
  if (!turn) return emptyState("Nothing has run in this conversation yet.");
  const placed = placeSpans(turn.spans, turn.started_at);
  return [
    div(
      { key: "head", class: "toolbar" },
      span({ class: "trace-title" }, conversationLink(view.session_id, view.title)),
      stateChip(turn.state === "answered" ? "done" : turn.state, turn.state.replaceAll("_", " ")),
      turnChooser(view, turn, chosen),
      me.value?.owner ? link(`/logs/${view.session_id}`, "Log of this conversation") : null,
    ),
    statistics(turn),
    turn.error ? p({ key: "error", class: "notice error" }, turn.error) : null,
    section(
      { key: "timeline", class: "work-panel work-stack", "aria-label": "Timeline" },
      placed.length ? timeline(turn, placed, chosen) : p({ class: "caption" }, "No call has ended yet."),
      legend(turn),
      details(placed[chosen.value]),
    ),
    placed.length ? callTable(placed, chosen) : null,
  ];
}

/** @type {(view: TraceView, turn: TurnTraceView, chosen: Signal<number>) => Child} */
function turnChooser(view, turn, chosen) {
  return div(
    { class: "filter" },
    label({ class: "offscreen", for: "turn" }, "Turn"),
    select(
      {
        id: "turn",
        value: String(turn.number),
        onChange: (event) => {
          chosen.value = -1;
          navigate(`/trace/${view.session_id}/${/** @type {HTMLSelectElement} */ (event.target).value}`);
        },
      },
      ...view.turns.map((one) =>
        option(
          { key: one.id, value: one.number },
          `Turn ${one.number} · ${new Date(one.started_at).toLocaleString("en-GB")}`,
        )
      ),
    ),
  );
}

/** @type {(turn: TurnTraceView) => Child} */
function statistics(turn) {
  const models = turn.spans.flatMap((one) => (one.type === "model" ? [one] : []));
  /** @type {(name: "input_tokens" | "output_tokens" | "cache_read_tokens" | "cost_microdollars") => number} */
  const sum = (name) => models.reduce((total, one) => total + (one.usage[name] ?? 0), 0);
  const seconds = (Date.parse(turn.ended_at) - Date.parse(turn.started_at)) / 1000;
  const unpriced = models.filter((one) => !one.usage.cost_microdollars).length;
  const input = sum("input_tokens");
  return div(
    { key: "stats", class: "stats" },
    stat("Time", formatDuration(seconds)),
    stat("Model calls", String(models.length), `${turn.spans.length - models.length} tool calls`),
    stat(
      "Tokens in",
      formatNumber(input),
      input ? `${Math.round((100 * sum("cache_read_tokens")) / input)}% from the cache` : "",
    ),
    stat("Tokens out", formatNumber(sum("output_tokens"))),
    stat("Cost", formatCost(sum("cost_microdollars"), unpriced)),
  );
}

/** @type {(turn: TurnTraceView, placed: Placed[], chosen: Signal<number>) => Child} */
function timeline(turn, placed, chosen) {
  const total = Math.max(
    (Date.parse(turn.ended_at) - Date.parse(turn.started_at)) / 1000,
    ...placed.map((one) => one.end),
    0.001,
  );
  const lanes = Math.max(...placed.map((one) => one.lane)) + 1;
  const height = HEAD + lanes * LANE + 6;
  /** @type {(seconds: number) => number} */
  const x = (seconds) => (seconds / total) * WIDTH;
  return div(
    { class: "timeline", tabIndex: 0, role: "region", "aria-label": "Timeline of the turn" },
    h(
      "svg",
      {
        viewBox: `0 0 ${WIDTH} ${height}`,
        role: "img",
        "aria-label": `Timeline of turn ${turn.number}: ${placed.length} calls in ${formatDuration(total)}`,
      },
      ...timeTicks(total).map((at) =>
        h(
          "g",
          { key: `t${at}` },
          h("line", { class: "grid", x1: x(at), x2: x(at), y1: HEAD - 6, y2: height }),
          h("text", { class: "tick", x: x(at) + 3, y: 14 }, formatDuration(at)),
        )
      ),
      ...placed.map((one, index) => bars(one, index, x, chosen)),
      ...turn.breaks.map((one) => {
        const at = x(Math.max(0, (Date.parse(one.at) - Date.parse(turn.started_at)) / 1000));
        return h(
          "path",
          { key: one.at, class: "break", d: `M${at} ${HEAD - 6}l5 -8h-10zM${at} ${HEAD - 6}V${height}` },
          h("title", null, one.reason),
        );
      }),
    ),
  );
}

/** @type {(one: Placed, index: number, x: (seconds: number) => number, chosen: Signal<number>) => Child} */
function bars(one, index, x, chosen) {
  const y = HEAD + one.lane * LANE + (LANE - BAR) / 2;
  const width = Math.max(2.5, x(one.end) - x(one.start));
  const kind = one.span.type === "model" ? "model" : `tool ${one.span.state}`;
  const name = one.span.type === "model" ? one.span.model : one.span.name;
  const first = one.first === null ? null : Math.max(0, x(one.first) - x(one.start));
  return h(
    "g",
    {
      key: index,
      class: `span ${kind} ${chosen.value === index ? "chosen" : ""}`,
      onClick: () => (chosen.value = index),
    },
    h("title", null, `${name}, ${formatDuration(one.end - one.start)}`),
    h("rect", { class: "span-bar", x: x(one.start), y, width, height: BAR, rx: 3 }),
    first === null
      ? null
      : h("rect", { class: "span-wait", x: x(one.start), y, width: Math.min(first, width), height: BAR, rx: 3 }),
    width > 60 ? h("text", { class: "span-name", x: x(one.start) + 6, y: y + 14 }, shorten(name, width)) : null,
  );
}

/** @type {(name: string, width: number) => string} */
function shorten(name, width) {
  const fits = Math.floor((width - 10) / 7.5);
  return name.length <= fits ? name : `${name.slice(0, Math.max(1, fits - 1))}…`;
}

/** @type {(turn: TurnTraceView) => Child} */
function legend(turn) {
  return ul(
    { class: "legend" },
    li(null, span({ class: "swatch wait" }), "Waiting for the model"),
    li(null, span({ class: "swatch answer" }), "Model answers"),
    li(null, span({ class: "swatch tool" }), "Tools"),
    turn.breaks.length ? li(null, span({ class: "swatch broken" }), `${turn.breaks.length} prefix breaks`) : null,
    ...turn.breaks.map((one) => li({ key: one.at, class: "caption" }, one.reason)),
  );
}

/** Details of the selected call. @type {(one: Placed | undefined) => Child} */
function details(one) {
  if (!one) return p({ class: "caption" }, "Select a call in the timeline or the table to see its details.");
  const { span: call } = one;
  if (call.type === "model") {
    const { usage } = call;
    return p(
      { class: "notice" },
      `${call.model}: ${formatNumber(usage.input_tokens ?? 0)} tokens in (${
        formatNumber(usage.cache_read_tokens ?? 0)
      } cached), ${formatNumber(usage.output_tokens ?? 0)} out, `,
      `first text after ${call.first_text_seconds === null ? "–" : formatDuration(call.first_text_seconds)}, context ${
        formatNumber(call.context)
      } tokens.`,
    );
  }
  return div(
    { class: "work-stack" },
    heading(2, null, call.name),
    pre({ tabIndex: 0 }, call.summary),
    call.failure ? p({ class: "notice error" }, call.failure) : null,
    p(
      { class: "caption" },
      `${formatNumber(call.arguments_size)} characters of arguments, ${formatNumber(call.result_size ?? 0)} of results`,
    ),
  );
}

/** @type {(placed: Placed[], chosen: Signal<number>) => Child} */
function callTable(placed, chosen) {
  return div(
    { key: "table", class: "table", tabIndex: 0, role: "region", "aria-label": "Calls" },
    table(
      null,
      thead(null, tr(null, ...["Call", "Starts at", "Takes", "State"].map((text) => th({ scope: "col" }, text)))),
      tbody(
        null,
        ...placed.map((one, index) =>
          tr(
            { key: index },
            th(
              { scope: "row" },
              h("button", {
                type: "button",
                class: "quiet call",
                "aria-pressed": chosen.value === index ? "true" : "false",
                onClick: () => (chosen.value = index),
              }, one.span.type === "model" ? one.span.model : one.span.name),
            ),
            td(null, formatDuration(one.start)),
            td(null, formatDuration(one.end - one.start)),
            td(null, one.span.type === "model" ? "" : stateChip(one.span.state)),
          )
        ),
      ),
    ),
  );
}
