/**
 * Layout of a timeline: the lane, start and end of each call.
 * @module
 */

/** @import { ModelSpan, ToolSpan } from "../wire.d.ts" */

/** @typedef {ModelSpan | ToolSpan} Span */
/** Times are seconds since the start of the turn; `first` is the time of a model's first text.
 * @typedef {{ span: Span, lane: number, start: number, end: number, first: number | null }} Placed */

/**
 * Place the calls of a turn: model calls in lane 0, tool calls below, in separate lanes where they overlap.
 * @param {Span[]} spans
 * @param {string} began
 * @returns {Placed[]}
 */
export function placeSpans(spans, began) {
  const zero = Date.parse(began);
  /** Time at which each tool lane is free again. @type {number[]} */
  const free = [];
  return spans.map((span) => {
    const start = Math.max(0, (Date.parse(span.started_at) - zero) / 1000);
    const end = Math.max(start, (Date.parse(span.ended_at) - zero) / 1000);
    if (span.type === "model") {
      const first = span.first_text_seconds;
      return { span, lane: 0, start, end, first: first === null ? null : Math.min(end, start + first) };
    }
    const found = free.findIndex((until) => until <= start);
    const lane = found < 0 ? free.length : found;
    free[lane] = end;
    return { span, lane: lane + 1, start, end, first: null };
  });
}

/** Compute round tick values for a time axis, in seconds. @type {(total: number) => number[]} */
export function timeTicks(total) {
  const rough = Math.max(total, 0.001) / 6;
  const sizes = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200];
  const step = sizes.find((one) => one >= rough) ?? 14_400;
  return Array.from({ length: Math.floor(total / step) + 1 }, (_, index) => index * step);
}
