/**
 * Views of transcript entries: messages, replies, reasoning and tool calls.
 * @module
 */
import { h, useSignal } from "../vendor/preact.js";
import { a, audio, button, details, div, icon, img, lazy, li, p, span, summary } from "./elements.js";
import { renderBlocks, renderMarkdown } from "./markdown.js";
import { attempt, compose, navigateFromHere, runCommand } from "./state.js";
import { isSameEntry } from "./turn.js";

/** @import { Child, VNode } from "../vendor/preact.d.ts" */
/** @import { Conversation } from "./conversation.js" */
/** @import { FileView } from "./wire.d.ts" */
/** @import { Attributes, IconName } from "./elements.js" */
/** @import { QueuedMessage } from "./wire.d.ts" */
/** @import { Entry, FoldedEntry, ReasoningEntry, ToolEntry, UserEntry } from "./turn.js" */

/** Views of questions and approvals, loaded when one is shown. */
const questions = lazy(() => import("./questions.js"));
/** Body of a tool call, loaded when one is expanded. */
const tool = lazy(() => import("./tool.js"));
const COPIED_MILLISECONDS = 1500;
const TOOL_STATES = { running: "running", done: "done", failed: "failed", refused: "not allowed" };

/** `seq` is the number of the message, 0 while it is not stored; `last` marks the last exchange of an idle conversation. */
/** @typedef {{ conversation: Conversation, entry: Entry, seq: number, last: boolean }} EntryProps */

/** @type {(props: EntryProps) => Child} */
export function EntryView({ conversation, entry, seq, last }) {
  switch (entry.kind) {
    case "user":
      return userView(conversation, entry, seq, last);
    case "text":
      return div(
        { class: "entry reply" },
        div({ class: "markdown" }, ...renderBlocks(entry.blocks)),
        div(
          { class: "actions" },
          h(CopyButton, { text: entry.text, label: "Copy reply" }),
          last ? action("retry", "Retry", () => runCommand("/retry")) : null,
          canBranch(conversation, seq) ? action("branch", "Branch from here", () => branch(conversation, seq)) : null,
        ),
      );
    case "files":
      return div({ class: "entry" }, filesView(entry.files));
    case "reasoning":
      return h(ReasoningView, { conversation, entry });
    case "notice":
      return p({ class: `entry notice ${entry.tone}`, role: entry.tone === "error" ? "alert" : "status" }, entry.text);
    case "tool":
      return h(ToolView, { conversation, entry });
    case "approval":
      return questions(({ ApprovalView }) =>
        h(ApprovalView, {
          entry,
          keys: true,
          onAnswer: (text, reason) => conversation.answer(entry.id, text, reason),
        })
      );
    case "question":
      return questions(({ QuestionView }) =>
        h(QuestionView, { entry, onAnswer: (text) => conversation.answer(entry.id, text) })
      );
  }
}

/** List of files: images, audio players, and download links for everything but images. @type {(files: readonly FileView[]) => Child} */
export function filesView(files) {
  return div(
    { class: "files" },
    ...files.map((file) => {
      const href = `/web/files/${file.id}`;
      if (!file.id) return span({ class: "chip" }, file.name);
      if (/^image\/(png|jpeg|gif|webp)$/.test(file.media_type)) {
        return a({ href, target: "_blank", rel: "noopener" }, img({ src: href, alt: file.name, loading: "lazy" }));
      }
      const link = a({ class: "file", href, download: file.name }, icon("file"), file.name);
      if (!file.media_type.startsWith("audio/")) return link;
      return span(
        { class: "recording" },
        audio({ src: href, controls: true, preload: "metadata", "aria-label": file.name }),
        link,
      );
    }),
  );
}

/** @type {(conversation: Conversation, entry: UserEntry, seq: number, last: boolean) => Child} */
function userView(conversation, entry, seq, last) {
  const edit = () => Promise.resolve(conversation.editing.value = { seq, text: entry.text });
  return div(
    { class: "entry user" },
    span({ class: entry.author ? "caption" : "offscreen" }, entry.author || "You: "),
    entry.text ? div({ class: "bubble" }, entry.text) : null,
    entry.files?.length ? filesView(entry.files) : null,
    canBranch(conversation, seq)
      ? div(
        { class: "actions" },
        action("edit", "Edit in a branch", edit),
        last ? action("undo", "Undo", () => undo(entry.text)) : null,
      )
      : null,
  );
}

/** Whether messages can be edited and branches created now. @type {(one: Conversation, seq: number) => boolean} */
const canBranch = (one, seq) => seq > 0 && !one.running && one.detail.value?.elsewhere === false;

/** @type {(name: IconName, label: string, run: () => Promise<unknown>) => Child} */
const action = (name, label, run) =>
  button(
    { class: "quiet", type: "button", "aria-label": label, title: label, onClick: () => void attempt(run) },
    icon(name),
  );

/** @type {(conversation: Conversation, seq: number) => Promise<void>} */
async function branch(conversation, seq) {
  const go = navigateFromHere();
  const { session_id } = await conversation.branch(seq);
  if (session_id) go(`/c/${session_id}`);
}

/** Undo the last exchange and put its text into the composer. @param {string} text */
async function undo(text) {
  await runCommand("/undo");
  compose.value = text;
}

/** Message that the server may not have yet. @type {(text: string, key?: string) => VNode} */
export const messageView = (text, key = "message") =>
  li({ key }, div({ class: "entry user" }, span({ class: "offscreen" }, "You: "), div({ class: "bubble" }, text)));

/** Message waiting for its turn. @type {(conversation: Conversation, message: QueuedMessage) => VNode} */
export function queuedView(conversation, message) {
  if (!message.id) return messageView(message.text, `queued.${message.text}`);
  const withdraw = () => conversation.withdraw(message);
  const edit = async () => {
    await withdraw();
    compose.value = message.text;
  };
  return li(
    { key: `queued.${message.id || message.text}` },
    div(
      { class: "entry user queued" },
      div({ class: "bubble" }, message.text),
      div(
        { class: "queued-actions" },
        span({ class: "chip" }, "Queued"),
        message.own
          ? [
            button({ class: "quiet small", type: "button", onClick: () => void attempt(edit) }, "Edit"),
            button({ class: "quiet small", type: "button", onClick: () => void attempt(withdraw) }, "Withdraw"),
          ]
          : null,
      ),
    ),
  );
}

/** State of a `details` element, stored in the conversation so that it outlives the component. @type {(conversation: Conversation, entry: FoldedEntry) => Attributes} */
function useFold(conversation, entry) {
  const open = useSignal(conversation.expanded.some((one) => isSameEntry(one, entry)));
  const onToggle = (/** @type {Event} */ event) => {
    open.value = /** @type {HTMLDetailsElement} */ (event.currentTarget).open;
    const others = conversation.expanded.filter((one) => !isSameEntry(one, entry));
    conversation.expanded = open.value ? [...others, entry] : others;
  };
  return { open: open.value, onToggle };
}

/** @type {(props: { conversation: Conversation, entry: ReasoningEntry }) => Child} */
function ReasoningView({ conversation, entry }) {
  const fold = useFold(conversation, entry);
  return details(
    { class: "entry fold reasoning", ...fold },
    summary(null, "Reasoning"),
    fold.open ? div({ class: "fold-body markdown" }, ...renderMarkdown(entry.text)) : null,
  );
}

/** @type {(props: { conversation: Conversation, entry: ToolEntry }) => Child} */
function ToolView({ conversation, entry }) {
  const fold = useFold(conversation, entry);
  const seconds = entry.seconds >= 0.95 ? `${Math.round(entry.seconds)} s` : "";
  return details(
    { class: "entry fold tool", "data-state": entry.state, ...fold },
    summary(
      null,
      span({ class: "tool-name" }, icon("tool"), entry.name),
      span({ class: "tool-summary" }, withoutName(entry)),
      span({ class: "tool-state" }, seconds || TOOL_STATES[entry.state]),
    ),
    fold.open ? tool(({ ToolBody }) => h(ToolBody, { conversation, entry })) : null,
  );
}

/** Summary of a call without the name of its tool, which is shown before it. @type {(entry: ToolEntry) => string} */
const withoutName = ({ name, summary }) => (summary.startsWith(`${name}: `) ? summary.slice(name.length + 2) : summary);

/** @type {(props: { text: string, label?: string }) => Child} */
export function CopyButton({ text, label = "Copy code" }) {
  const copied = useSignal(false);
  const copy = async () => {
    if (!(await writeClipboard(text))) return;
    copied.value = true;
    setTimeout(() => (copied.value = false), COPIED_MILLISECONDS);
  };
  return button(
    { class: "quiet", type: "button", "aria-label": copied.value ? "Copied" : label, onClick: () => void copy() },
    icon(copied.value ? "check" : "copy"),
  );
}

/**
 * Write to the clipboard; without HTTPS browsers support only the deprecated way.
 * @param {string} text
 * @returns {Promise<boolean>}
 */
async function writeClipboard(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "offscreen";
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}
