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

/** Display name of a surface. @type {(name: string) => string} */
export const surfaceLabel = (name) => SURFACES[name] ?? name.charAt(0).toUpperCase() + name.slice(1);

/**
 * Control to choose one of a few options.
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

/** Collapsible section bound to an open/closed signal. @type {(open: Signal<boolean>, title: Child[], ...children: Child[]) => VNode} */
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

/** Number with a label. @type {(label: string, value: Child, note?: Child) => Child} */
export const stat = (label, value, note = null) =>
  div(
    { class: "stat" },
    p({ class: "stat-label" }, label),
    p({ class: "stat-value" }, value),
    note ? p({ class: "caption" }, note) : null,
  );

/** State as a coloured chip. @type {(state: string, text?: string) => Child} */
export const stateChip = (state, text = state) => span({ class: "state", "data-state": state }, text);

/** A link within the app. @type {(to: string, ...content: Child[]) => Child} */
export const link = (to, ...content) => a({ href: to, onClick: (event) => followLink(event, to) }, ...content);

/** A link to a conversation. @type {(id: string, title: string) => Child} */
export const conversationLink = (id, title) => link(`/c/${id}`, title || "Untitled conversation");

/** Sentence with commands between backticks, shown as code. @type {(text: string) => Child[]} */
export const withCode = (text) => text.split("`").map((part, index) => (index % 2 ? code({ key: index }, part) : part));

/** Relative time, with the full date as a tooltip. @type {(at: string) => Child} */
export const moment = (at) => time({ datetime: at, title: new Date(at).toLocaleString() }, formatMoment(new Date(at)));

/** Bar that shows a share. @type {(share: number, label: string) => Child} */
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

/** Warning on connections without encryption. @type {() => Child} */
export const insecureNotice = () =>
  isSecureContext
    ? null
    : p({ class: "notice" }, "This connection isn't encrypted. Use it only in a network that you trust.");
