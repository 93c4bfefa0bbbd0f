/**
 * Usage: cost, tokens and turns by day, model, surface and person.
 * @module
 */
import { h, useSignal } from "../../vendor/preact.js";
import { div, heading, li, p, section, span, table, tbody, td, th, thead, tr, ul } from "../elements.js";
import { me } from "../state.js";
import { BarChart, sumGroups } from "./chart.js";
import { emptyState, failureNotice, PageFrame, useLive } from "./frame.js";
import { formatCost, formatMoney, formatNumber } from "./format.js";
import { bar, conversationLink, link, moment, Segments, stat, surfaceLabel } from "./parts.js";

/** @import { Child } from "../../vendor/preact.d.ts" */
/** @import { Column } from "./chart.js" */
/** @import { DearSession, SpendingCap, UsageSeries, UsageTotals, UsageView } from "../wire.d.ts" */

/** @typedef {"7" | "30" | "90" | "365"} Period */
/** @typedef {"cost" | "tokens" | "turns"} Metric */
/** @typedef {"model" | "surface" | "owner"} Group */

const PERIODS = /** @type {const} */ ([["7", "7 days"], ["30", "30 days"], ["90", "90 days"], ["365", "1 year"]]);
const METRICS = /** @type {const} */ ([["cost", "Cost"], ["tokens", "Tokens"], ["turns", "Turns"]]);
const GROUPS = /** @type {const} */ ([["model", "Model"], ["surface", "Surface"], ["owner", "Person"]]);
const WEEKLY = 120; // number of days from which a bar is a week
const DAY = 86_400_000;

/** @type {(props: object) => Child} */
export function Page() {
  const period = useSignal(/** @type {Period} */ ("30"));
  const metric = useSignal(/** @type {Metric} */ ("cost"));
  const group = useSignal(/** @type {Group} */ ("model"));
  const { data, failure } = /** @type {import("./frame.js").Loaded<UsageView>} */ (
    useLive(`/web/usage?days=${period.value}&by=${group.value}`, "usage")
  );
  const groups = me.value?.owner ? GROUPS : GROUPS.filter(([key]) => key !== "owner");
  const view = data.value;
  return h(
    PageFrame,
    { title: "Usage", wide: true },
    failureNotice(failure.value),
    div(
      { class: "toolbar" },
      Segments({ label: "Period", value: period.value, options: PERIODS, onChange: (value) => (period.value = value) }),
      Segments({ label: "Show", value: metric.value, options: METRICS, onChange: (value) => (metric.value = value) }),
      Segments({ label: "By", value: group.value, options: groups, onChange: (value) => (group.value = value) }),
    ),
    view ? content(view, metric.value, group.value) : null,
  );
}

/** @type {(view: UsageView, metric: Metric, group: Group) => Child[]} */
function content(view, metric, group) {
  const caps = capsPanel(view.caps);
  if (!view.series.length) return [caps, emptyState("Nothing was used in this period.")];
  return [
    statistics(view),
    caps,
    section(
      { key: "chart", class: "work-panel", "aria-label": "Chart" },
      h(BarChart, {
        label: `${metric} by day and ${group}`,
        members: view.series.map((one) => ({
          name: memberName(one.name, group),
          values: byColumn(one[metric]),
          total: totalText(one.totals, metric),
        })),
        columns: makeColumns(view),
        format: metric === "cost" ? formatMoney : formatNumber,
      }),
    ),
    totalsTable(view.series, group),
    view.dearest.length ? dearestPanel(view.dearest) : null,
  ];
}

/** Spending of this month, compared with its caps. @type {(caps: SpendingCap[]) => Child} */
function capsPanel(caps) {
  const change = me.value?.owner ? link("/settings/budget", caps.length ? "Change the caps" : "Set a cap") : null;
  if (!caps.length && !change) return null;
  return section(
    { key: "caps", class: "work-panel work-stack", "aria-label": "Spending caps" },
    div(
      { class: "work-head" },
      heading(2, null, "Spending caps"),
      change ? span({ class: "caption push" }, change) : null,
    ),
    caps.length
      ? ul(
        { class: "spending-caps" },
        ...caps.map(({ name, limit, spent }) => {
          const text = `${formatMoney(spent)} of ${formatMoney(limit)} this month`;
          const who = name === "total" ? "All conversations" : me.value?.owner ? "Your conversations" : "You";
          return li(
            { key: name },
            div({ class: "work-head" }, span(null, who), span({ class: "push" }, text)),
            bar(spent / limit, `${who}: ${text}`),
          );
        }),
      )
      : p({ class: "caption" }, "There is no monthly cap. Models can spend as much as their providers allow."),
  );
}

/** @type {(dearest: DearSession[]) => Child} */
function dearestPanel(dearest) {
  return section(
    { key: "dearest", class: "work-stack", "aria-label": "Most expensive conversations" },
    heading(2, { class: "section-title" }, "Most expensive conversations"),
    div(
      { class: "table", tabIndex: 0, role: "region", "aria-label": "Costs of conversations" },
      table(
        null,
        thead(
          null,
          tr(
            null,
            ...["Conversation", "Surface", "Last used"].map((text) => th({ scope: "col" }, text)),
            th({ scope: "col", class: "right" }, "Cost so far"),
          ),
        ),
        tbody(
          null,
          ...dearest.map((one) =>
            tr(
              { key: one.id },
              th({ scope: "row" }, conversationLink(one.id, one.title)),
              td(null, [surfaceLabel(one.source), one.owner].filter(Boolean).join(" · ")),
              td(null, moment(one.updated_at)),
              td({ class: "right" }, formatMoney(one.cost_microdollars)),
            )
          ),
        ),
      ),
    ),
  );
}

/** @type {(totals: UsageTotals, metric: Metric) => string} */
function totalText(totals, metric) {
  if (metric === "turns") return formatNumber(totals.turns);
  if (metric === "tokens") return formatNumber(totals.input_tokens + totals.output_tokens);
  return formatCost(totals.cost_microdollars, totals.unpriced_calls);
}

/** @type {(view: UsageView) => Child} */
function statistics({ totals, today }) {
  const share = totals.input_tokens ? Math.round((100 * totals.cache_read_tokens) / totals.input_tokens) : 0;
  return div(
    { key: "stats", class: "stats" },
    stat("Cost", knownCost(totals), unpricedNote(totals)),
    stat("Today", knownCost(today), unpricedNote(today) || `${formatNumber(today.turns)} turns`),
    stat("Tokens in", formatNumber(totals.input_tokens), `${share}% from the cache`),
    stat("Tokens out", formatNumber(totals.output_tokens), reasoningNote(totals)),
    stat("Turns", formatNumber(totals.turns), `${formatNumber(totals.calls)} model calls`),
  );
}

/** The part of the cost that is known. @type {(totals: UsageTotals) => string} */
const knownCost = (totals) =>
  totals.cost_microdollars ? formatMoney(totals.cost_microdollars) : formatCost(0, totals.unpriced_calls);

/** @type {(totals: UsageTotals) => string} */
const unpricedNote = (totals) =>
  totals.unpriced_calls ? `+ ${formatNumber(totals.unpriced_calls)} calls without a known price` : "";

/** @type {(totals: UsageTotals) => string} */
const reasoningNote = (totals) =>
  totals.reasoning_tokens ? `${formatNumber(totals.reasoning_tokens)} for reasoning` : "";

/** @type {(series: UsageSeries[], group: Group) => Child} */
function totalsTable(series, group) {
  const name = GROUPS.find(([key]) => key === group)?.[1] ?? "";
  return div(
    { key: "table", class: "table", tabIndex: 0, role: "region", "aria-label": `Totals by ${name.toLowerCase()}` },
    table(
      null,
      thead(
        null,
        tr(
          null,
          th({ scope: "col" }, name),
          ...["Turns", "Calls", "In", "Cached", "Out", "Cost"].map((text) =>
            th({ scope: "col", class: "right" }, text)
          ),
        ),
      ),
      tbody(
        null,
        ...series.map(({ name: key, totals }) =>
          tr(
            { key },
            th({ scope: "row" }, memberName(key, group)),
            ...[totals.turns, totals.calls, totals.input_tokens].map((value) =>
              td({ class: "right" }, formatNumber(value))
            ),
            td(
              { class: "right" },
              totals.input_tokens ? `${Math.round((100 * totals.cache_read_tokens) / totals.input_tokens)}%` : "",
            ),
            td({ class: "right" }, formatNumber(totals.output_tokens)),
            td({ class: "right" }, totals.calls ? formatCost(totals.cost_microdollars, totals.unpriced_calls) : ""),
          )
        ),
      ),
    ),
  );
}

/** @type {(name: string, group: Group) => string} */
function memberName(name, group) {
  if (group === "surface") return surfaceLabel(name);
  return name || (group === "owner" ? "You" : "Unknown model");
}

/** Values of days, or of weeks in a long period. @type {(values: number[]) => number[]} */
const byColumn = (values) => (values.length > WEEKLY ? sumGroups(values, 7) : values);

/** @type {(view: UsageView) => Column[]} */
function makeColumns(view) {
  const days = Math.round((Date.parse(view.last) - Date.parse(view.first)) / DAY) + 1;
  const size = days > WEEKLY ? 7 : 1;
  const count = Math.ceil(days / size);
  const every = Math.max(1, Math.ceil(count / (matchMedia("(max-width: 760px)").matches ? 5 : 10)));
  return Array.from({ length: count }, (_, index) => {
    const at = new Date(Date.parse(view.last) - (count - 1 - index) * size * DAY);
    const day = at.toLocaleDateString("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });
    const tick = (count - 1 - index) % every === 0 ? day : "";
    return { label: size > 1 ? `Week to ${day}` : day, tick };
  });
}
