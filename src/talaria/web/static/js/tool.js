/**
 * Body of a tool call: its input, its changes as a coloured diff, and its output.
 * @module
 */
import { h, useSignal } from "../vendor/preact.js";
import { button, code, div, p, pre, span } from "./elements.js";
import { filesView } from "./entries.js";
import { get } from "./server.js";
import { attempt } from "./state.js";

/** @import { Child, VNode } from "../vendor/preact.d.ts" */
/** @import { Conversation } from "./conversation.js" */
/** @import { ToolEntry } from "./turn.js" */

const MOST_SHOWN = 20_000;
/** Output of a tool that has changed a file. */
const DIFF = /^(?:.+:\n)?@@ -\d+(?:,\d+)? \+\d+/;
/** Note in an output that was too long for the model, with the file that has all of it. */
const OMITTED = /\[… [^\]]* omitted; .* is in \S*?([\w-]+\.txt); use read_file …\]/;

/** @type {(props: { conversation: Conversation, entry: ToolEntry }) => Child} */
export function ToolBody({ conversation, entry }) {
  const isDiff = DIFF.test(entry.output);
  const { input, diff } = splitInput({ input: entry.input, diff: entry.diff || (isDiff ? entry.output : "") });
  return div(
    { class: "fold-body" },
    input ? [caption("Input"), textView(input)] : null,
    diff ? [caption("Changes"), diffView(diff)] : null,
    entry.output && !isDiff ? [caption("Output"), h(Output, { conversation, output: entry.output })] : null,
    entry.files?.length ? filesView(entry.files) : null,
  );
}

/** @type {(props: { conversation: Conversation, output: string }) => Child} */
function Output({ conversation, output }) {
  const whole = useSignal("");
  const file = OMITTED.exec(output)?.[1];
  const show = async () => {
    /** @type {{ text: string }} */
    const { text } = await get(`/web/sessions/${conversation.id}/outputs/${file}`);
    whole.value = text;
  };
  if (whole.value) return pre({ tabIndex: 0 }, code(null, whole.value));
  return [
    textView(output),
    file
      ? button({ type: "button", class: "small", onClick: () => void attempt(show) }, "Show the whole output")
      : output.length > MOST_SHOWN
      ? button({ type: "button", class: "small", onClick: () => (whole.value = output) }, "Show the whole output")
      : null,
  ];
}

/** @type {(text: string) => VNode} */
const caption = (text) => p({ class: "caption" }, text);

/** @type {(text: string) => VNode} */
const textView = (text) => pre({ tabIndex: 0 }, code(null, cut(text)));

/**
 * Split the arguments of a call into text and a diff. The diff is the one that the tool reported, or one made from the
 * arguments, because the transcript has no other.
 * @param {{ input: string, diff: string }} entry
 */
export function splitInput({ input, diff }) {
  /** @type {Record<string, unknown>} */
  let values;
  try {
    values = JSON.parse(input || "{}");
  } catch {
    return { input, diff };
  }
  const { old_text, new_text, patch, ...others } = values;
  const isEdit = typeof patch === "string" && patch ? true : typeof old_text === "string" && old_text !== "";
  const shown = isEdit ? others : values;
  return {
    input: describeValues(shown),
    diff: diff || (isEdit ? String(patch || "") || change(old_text, new_text) : ""),
  };
}

/** @type {(before: unknown, after: unknown) => string} */
function change(before, after) {
  /** @type {(mark: string, text: unknown) => string[]} */
  const marked = (mark, text) => (text ? String(text).replace(/\n$/, "").split("\n").map((line) => mark + line) : []);
  return [...marked("-", before), ...marked("+", after)].join("\n");
}

/** @type {(values: Record<string, unknown>) => string} */
function describeValues(values) {
  return Object.entries(values)
    .map(([key, value]) => `${key}: ${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join("\n");
}

/** @type {(text: string) => string} */
const cut = (text) => (text.length > MOST_SHOWN ? `${text.slice(0, MOST_SHOWN)}\n…` : text);

/** A unified diff in colours. @type {(diff: string) => VNode} */
export function diffView(diff) {
  return pre({ class: "diff", tabIndex: 0 }, code(null, ...diffLines(cut(diff))));
}

/** The lines of a unified diff in colours. @type {(diff: string) => VNode[]} */
export function diffLines(diff) {
  const lines = diff.replace(/\n$/, "").split("\n");
  return lines.map((line) => span({ class: lineKind(line) }, `${line}\n`));
}

/** @type {(line: string) => string} */
export function lineKind(line) {
  if (line.startsWith("@@") || line.startsWith("+++ ") || line.startsWith("--- ")) return "diff-at";
  return line.startsWith("+") ? "diff-add" : line.startsWith("-") ? "diff-del" : "";
}
