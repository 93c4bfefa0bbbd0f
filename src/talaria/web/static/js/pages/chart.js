/**
 * Bars over days, drawn as SVG: a scale, stacked members, and the day under the pointer.
 * @module
 */
import { h, useEffect, useSignal } from "../../vendor/preact.js";
import { div, li, p, span, ul } from "../elements.js";

/** @import { Child } from "../../vendor/preact.d.ts" */

/** Series of the chart, with its total as text. @typedef {{ name: string, values: number[], total: string }} Member */
/** @typedef {{ label: string, tick: string }} Column */

const WIDE = 960;
const NARROW = 480;
const HEIGHT = 260;
const LEFT = 64;
const BOTTOM = 28;
const TOP = 10;
const LINES = 4;
/** Number of members with a colour of their own; the rest are combined. */
export const MOST_MEMBERS = 7;

/** Compute a scale from zero: the distance between its lines, and their number.
 * @type {(most: number) => { step: number, lines: number }} */
export function makeScale(most) {
  if (most <= 0) return { step: 1, lines: 1 };
  const rough = most / LINES;
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * size).find((one) => one >= rough * 0.999) ?? 10 * size;
  return { step, lines: Math.ceil((most * 0.999) / step) };
}

/** Return the largest members, and all others combined.
 * @type {(members: Member[], format: (value: number) => string) => Member[]} */
export function limitMembers(members, format) {
  const sorted = [...members].sort((one, other) => sum(other.values) - sum(one.values));
  if (sorted.length <= MOST_MEMBERS + 1) return sorted;
  const rest = sorted.slice(MOST_MEMBERS);
  const values = (rest[0]?.values ?? []).map((_, index) => sum(rest.map((one) => one.values[index] ?? 0)));
  return [...sorted.slice(0, MOST_MEMBERS), { name: "Others", values, total: format(sum(values)) }];
}

/** Sum groups of adjacent values, counted from the end. @type {(values: number[], size: number) => number[]} */
export function sumGroups(values, size) {
  /** @type {number[]} */
  const sums = [];
  for (let end = values.length; end > 0; end -= size) sums.unshift(sum(values.slice(Math.max(0, end - size), end)));
  return sums;
}

/** @type {(values: number[]) => number} */
export const sum = (values) => values.reduce((total, value) => total + value, 0);

/**
 * A chart of stacked bars with its legend.
 * @type {(props: { label: string, members: Member[], columns: Column[], format: (value: number) => string }) => Child}
 */
export function BarChart({ label, members, columns, format }) {
  const pointed = useSignal(-1);
  const shown = limitMembers(members, format);
  const width = useWidth();
  const totals = columns.map((_, index) => sum(shown.map((one) => one.values[index] ?? 0)));
  const scale = makeScale(Math.max(...totals, 0));
  const end = scale.step * scale.lines;
  const step = (width - LEFT) / Math.max(columns.length, 1);
  const height = HEIGHT - BOTTOM - TOP;
  return div(
    { class: "chart" },
    h(
      "svg",
      { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": label, onMouseLeave: () => (pointed.value = -1) },
      gridLines(scale, height, width, format),
      ...columns.flatMap((column, index) => {
        const x = LEFT + index * step;
        const bars = stack(shown, index, end, height).map((one) =>
          h("rect", {
            key: one.series,
            class: `series-${one.series}`,
            x: x + step * 0.12,
            y: one.y,
            width: step * 0.76,
            height: one.height,
            rx: Math.min(2, step * 0.2),
          })
        );
        return [
          ...bars,
          column.tick
            ? h("text", { class: "tick", x: x + step / 2, y: HEIGHT - 8, "text-anchor": "middle" }, column.tick)
            : null,
          h("rect", {
            class: index === pointed.value ? "column pointed" : "column",
            x,
            y: TOP,
            width: step,
            height,
            onMouseEnter: () => (pointed.value = index),
          }),
        ];
      }),
    ),
    readout(columns[pointed.value], shown, pointed.value, totals, format),
    ul(
      { class: "legend" },
      ...shown.map((one, index) =>
        li(
          { key: one.name },
          span({ class: `swatch series-${index}` }),
          one.name,
          span({ class: "caption" }, one.total),
        )
      ),
    ),
  );
}

/** @type {(members: Member[], index: number, end: number, height: number) => { series: number, y: number, height: number }[]} */
function stack(members, index, end, height) {
  let top = TOP + height;
  return members.flatMap((one, series) => {
    const size = ((one.values[index] ?? 0) / end) * height;
    if (size <= 0) return [];
    top -= size;
    return [{ series, y: top, height: Math.max(size - 0.5, 0.8) }];
  });
}

/** Width of the drawing, smaller on a small screen so that its text stays readable. @type {() => number} */
function useWidth() {
  const query = matchMedia("(max-width: 760px)");
  const narrow = useSignal(query.matches);
  useEffect(() => {
    const listen = () => (narrow.value = query.matches);
    query.addEventListener("change", listen);
    return () => query.removeEventListener("change", listen);
  }, []);
  return narrow.value ? NARROW : WIDE;
}

/** @type {(scale: { step: number, lines: number }, height: number, width: number, format: (value: number) => string) => Child[]} */
function gridLines({ step, lines }, height, width, format) {
  return Array.from({ length: lines + 1 }, (_, line) => {
    const y = TOP + height - (line / lines) * height;
    return h(
      "g",
      { key: line },
      h("line", { class: line ? "grid" : "grid base", x1: LEFT, x2: width, y1: y, y2: y }),
      h("text", { class: "tick", x: LEFT - 10, y: y + 4, "text-anchor": "end" }, format(step * line)),
    );
  });
}

/** @type {(column: Column | undefined, members: Member[], index: number, totals: number[], format: (value: number) => string) => Child} */
function readout(column, members, index, totals, format) {
  if (!column) return p({ class: "readout caption" }, "\u00a0");
  const parts = members
    .filter((one) => (one.values[index] ?? 0) > 0)
    .map((one) => `${one.name} ${format(one.values[index] ?? 0)}`);
  return p(
    { class: "readout caption" },
    `${column.label}: ${format(totals[index] ?? 0)}`,
    parts.length > 1 ? ` (${parts.join(", ")})` : "",
  );
}
