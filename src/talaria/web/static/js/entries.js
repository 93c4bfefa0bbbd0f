/**
 * The entries of a conversation: what people said, replies, tool calls, questions and approvals.
 * @module
 */
import { h, useEffect, useSignal } from "../vendor/preact.js";
import { CopyButton } from "./code.js";
import {
  a,
  button,
  code,
  details,
  div,
  form,
  icon,
  img,
  input,
  label,
  p,
  pre,
  section,
  span,
  summary,
} from "./elements.js";
import { renderBlocks, renderMarkdown } from "./markdown.js";
import { attempt } from "./state.js";

/** @import { Child, VNode } from "../vendor/preact.d.ts" */
/** @import { Conversation } from "./conversation.js" */
/** @import { FileView } from "./wire.d.ts" */
/** @import { ApprovalEntry, Entry, QuestionEntry, ToolEntry } from "./turn.js" */

/** How long an answer can't be given after a question appears, so that nobody clicks on it by accident. */
const ARMING_MILLISECONDS = 700;
const MOST_SHOWN = 20_000;

/** @type {{ answer: string, text: string }[]} */
const APPROVALS = [
  { answer: "once", text: "Allow once" },
  { answer: "session", text: "Allow in this conversation" },
  { answer: "always", text: "Always allow" },
  { answer: "no", text: "Don't allow" },
];

/** @type {(props: { conversation: Conversation, entry: Entry }) => Child} */
export function EntryView({ conversation, entry }) {
  switch (entry.kind) {
    case "user":
      return div(
        { class: "entry user" },
        span({ class: "offscreen" }, "You: "),
        entry.text ? div({ class: "bubble" }, entry.text) : null,
        entry.files?.length ? filesView(entry.files) : null,
      );
    case "text":
      return div(
        { class: "entry reply" },
        div({ class: "markdown" }, ...renderBlocks(entry.blocks)),
        div({ class: "actions" }, h(CopyButton, { text: entry.text, label: "Copy reply" })),
      );
    case "files":
      return div({ class: "entry" }, filesView(entry.files));
    case "reasoning":
      return details(
        { class: "entry fold reasoning" },
        summary(null, "Reasoning"),
        div({ class: "fold-body markdown" }, ...renderMarkdown(entry.text)),
      );
    case "notice":
      return p({ class: `entry notice ${entry.tone}`, role: entry.tone === "error" ? "alert" : "status" }, entry.text);
    case "tool":
      return toolView(entry);
    case "approval":
      return h(ApprovalView, { conversation, entry });
    case "question":
      return h(QuestionView, { conversation, entry });
  }
}

/** Pictures, and links to all other files. @type {(files: readonly FileView[]) => VNode} */
function filesView(files) {
  return div(
    { class: "files" },
    ...files.map((file) => {
      const href = `/web/files/${file.id}`;
      if (!file.id) return span({ class: "chip" }, file.name);
      if (/^image\/(png|jpeg|gif|webp)$/.test(file.media_type)) {
        return a({ href, target: "_blank", rel: "noopener" }, img({ src: href, alt: file.name, loading: "lazy" }));
      }
      return a({ class: "file", href, download: file.name }, icon("file"), file.name);
    }),
  );
}

const TOOL_STATES = { running: "running", done: "done", failed: "failed", refused: "not allowed" };

/** @type {(entry: ToolEntry) => VNode} */
function toolView(entry) {
  const seconds = entry.seconds >= 0.95 ? `${Math.round(entry.seconds)} s` : "";
  return details(
    { class: "entry fold tool", "data-state": entry.state },
    summary(
      null,
      span({ class: "tool-name" }, icon("tool"), entry.name),
      span({ class: "tool-summary" }, withoutName(entry)),
      span({ class: "tool-state" }, seconds || TOOL_STATES[entry.state]),
    ),
    div(
      { class: "fold-body" },
      entry.input && entry.input !== "{}"
        ? [p({ class: "caption" }, "Input"), pre({ tabIndex: 0 }, code(null, pretty(entry.input)))]
        : null,
      entry.diff ? [p({ class: "caption" }, "Changes"), diffView(entry.diff)] : null,
      entry.output ? [p({ class: "caption" }, "Output"), pre({ tabIndex: 0 }, code(null, cut(entry.output)))] : null,
    ),
  );
}

/** The summary of a call without the name of its tool, which stands before it. @type {(entry: ToolEntry) => string} */
const withoutName = ({ name, summary }) => (summary.startsWith(`${name}: `) ? summary.slice(name.length + 2) : summary);

/** @type {(json: string) => string} */
function pretty(json) {
  try {
    const values = Object.entries(JSON.parse(json));
    return cut(
      values.map(([key, value]) => `${key}: ${typeof value === "string" ? value : JSON.stringify(value)}`).join("\n"),
    );
  } catch {
    return cut(json);
  }
}

/** @type {(text: string) => string} */
const cut = (text) => (text.length > MOST_SHOWN ? `${text.slice(0, MOST_SHOWN)}\n…` : text);

/** A unified diff in colours. @type {(diff: string) => VNode} */
function diffView(diff) {
  const lines = cut(diff).split("\n");
  /** @type {(line: string) => string} */
  const kind = (line) =>
    line.startsWith("@@") ? "diff-at" : line.startsWith("+") ? "diff-add" : line.startsWith("-") ? "diff-del" : "";
  return pre(
    { class: "diff", tabIndex: 0 },
    code(null, ...lines.map((line) => span({ class: kind(line) }, `${line}\n`))),
  );
}

/** Whether answers may be given: not in the first moment after the question appeared. */
function useArmed() {
  const armed = useSignal(false);
  useEffect(() => {
    const timer = setTimeout(() => (armed.value = true), ARMING_MILLISECONDS);
    return () => clearTimeout(timer);
  }, []);
  return armed.value;
}

/** @type {(props: { conversation: Conversation, entry: ApprovalEntry }) => Child} */
function ApprovalView({ conversation, entry }) {
  const armed = useArmed();
  const sent = useSignal(false);
  const confirming = useSignal(false);
  /** @type {(answer: string) => void} */
  const answer = (text) => {
    if (!armed || sent.peek()) return;
    if (text === "always" && !confirming.peek()) {
      confirming.value = true;
      return;
    }
    sent.value = true;
    void attempt(() => conversation.answer(entry.id, text)).then((done) => (sent.value = done));
  };
  useEffect(() => {
    /** @param {KeyboardEvent} event */
    const press = (event) => {
      const chosen = event.altKey && !event.repeat ? APPROVALS[Number(event.code.replace("Digit", "")) - 1] : undefined;
      if (!chosen) return;
      event.preventDefault();
      answer(chosen.answer);
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  });
  return section(
    { class: "entry asked", "aria-label": "Approval needed" },
    p({ class: "asked-title" }, entry.tool === "terminal" ? "Run this command?" : `Allow ${entry.tool}?`),
    pre({ tabIndex: 0 }, code(null, entry.summary)),
    entry.diff ? diffView(entry.diff) : null,
    entry.reason ? p({ class: "caption" }, entry.reason) : null,
    div(
      { class: "asked-actions" },
      ...APPROVALS.map(({ answer: value, text }, index) =>
        button(
          {
            type: "button",
            class: value === "once" ? "primary" : value === "no" ? "danger" : "",
            disabled: !armed || sent.value,
            title: `Alt+${index + 1}`,
            onClick: () => answer(value),
          },
          value === "always" && confirming.value ? "Click again to always allow" : text,
        )
      ),
    ),
  );
}

/** @type {(props: { conversation: Conversation, entry: QuestionEntry }) => Child} */
function QuestionView({ conversation, entry }) {
  const armed = useArmed();
  const sent = useSignal(false);
  const typed = useSignal("");
  /** @type {(text: string) => void} */
  const answer = (text) => {
    if (!armed || sent.peek() || !text.trim()) return;
    sent.value = true;
    void attempt(() => conversation.answer(entry.id, text)).then((done) => (sent.value = done));
  };
  const field = `answer-${entry.id}`;
  return section(
    { class: "entry asked", "aria-label": "Question" },
    div({ class: "asked-title markdown" }, ...renderMarkdown(entry.question)),
    entry.choices.length
      ? div(
        { class: "asked-actions" },
        ...entry.choices.map((choice) =>
          button({ type: "button", disabled: !armed || sent.value, onClick: () => answer(choice) }, choice)
        ),
      )
      : null,
    form(
      {
        class: "asked-form",
        onSubmit: (event) => {
          event.preventDefault();
          answer(typed.peek());
        },
      },
      label({ class: "offscreen", for: field }, "Your answer"),
      input({
        id: field,
        type: "text",
        placeholder: entry.choices.length ? "Or type another answer" : "Your answer",
        autocomplete: "off",
        value: typed.value,
        onInput: (event) => (typed.value = /** @type {HTMLInputElement} */ (event.target).value),
      }),
      button({ type: "submit", class: "primary", disabled: !armed || sent.value || !typed.value.trim() }, "Answer"),
    ),
  );
}
