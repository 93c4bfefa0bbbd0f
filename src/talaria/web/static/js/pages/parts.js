/**
 * Small parts that several pages use: choices, numbers, states, links and bars.
 * @module
 */
import { h } from "../../vendor/preact.js";
import { a, button, code, details, div, p, span, summary, time } from "../elements.js";
import { followLink } from "../state.js";
import { formatMoment } from "./format.js";

/** @import { Child, Signal, VNode } from "../../vendor/preact.d.ts" */

/** @type {Record<string, string>} */
const SURFACES = { api: "API", cli: "Terminal", cron: "Schedule", delegate: "Delegated tasks", python: "Python" };

/** The name of a surface. @type {(name: string) => string} */
export const surfaceLabel = (name) => SURFACES[name] ?? name.charAt(0).toUpperCase() + name.slice(1);

/**
 * One choice out of a few.
 * @template {string} T
 * @param {{ label: string, value: T, options: readonly (readonly [T, string])[], onChange: (value: T) => void }} props
 * @returns {Child}
 */
export function Segments({ label, value, options, onChange }) {
  return div(
    { class: "segments", role: "group", "aria-label": label },
    ...options.map(([key, text]) =>
      button({
        key,
        type: "button",
        "aria-pressed": key === value ? "true" : "false",
        onClick: () => onChange(key),
      }, text)
    ),
  );
}

/** Something to unfold, which knows whether it is. @type {(open: Signal<boolean>, title: Child[], ...children: Child[]) => VNode} */
export const fold = (open, title, ...children) =>
  details(
    {
      class: "fold",
      open: open.value,
      onToggle: (event) => (open.value = /** @type {HTMLDetailsElement} */ (event.target).open),
    },
    summary(null, ...title),
    ...children,
  );

/** A number with what it means. @type {(label: string, value: Child, note?: Child) => Child} */
export const stat = (label, value, note = null) =>
  div(
    { class: "stat" },
    p({ class: "stat-label" }, label),
    p({ class: "stat-value" }, value),
    note ? p({ class: "caption" }, note) : null,
  );

/** A state as a coloured chip. @type {(state: string, text?: string) => Child} */
export const stateChip = (state, text = state) => span({ class: "state", "data-state": state }, text);

/** A link within the app. @type {(to: string, ...content: Child[]) => Child} */
export const link = (to, ...content) => a({ href: to, onClick: (event) => followLink(event, to) }, ...content);

/** A link to a conversation. @type {(id: string, title: string) => Child} */
export const conversationLink = (id, title) => link(`/c/${id}`, title || "Untitled conversation");

/** A sentence in which commands stand between backticks. @type {(text: string) => Child[]} */
export const withCode = (text) => text.split("`").map((part, place) => (place % 2 ? code({ key: place }, part) : part));

/** A moment, with its full form as a hint. @type {(at: string) => Child} */
export const moment = (at) => time({ datetime: at, title: new Date(at).toLocaleString() }, formatMoment(new Date(at)));

/** A bar for a share of something. @type {(share: number, label: string) => Child} */
export function bar(share, label) {
  const width = `${Math.round(Math.min(Math.max(share, 0), 1) * 1000) / 10}%`;
  const level = share >= 1 ? "full" : share >= 0.8 ? "high" : "";
  return h(
    "svg",
    { class: `bar ${level}`, role: "img", "aria-label": label, width: "100%", height: "6" },
    h("rect", { class: "bar-back", width: "100%", height: "6", rx: "3" }),
    h("rect", { class: "bar-fill", width, height: "6", rx: "3" }),
  );
}

/** A warning where others on the way can read along. @type {() => Child} */
export const insecureNotice = () =>
  isSecureContext
    ? null
    : p({ class: "notice" }, "This connection isn't encrypted. Use it only in a network that you trust.");
