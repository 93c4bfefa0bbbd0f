/**
 * Approvals and questions of a running turn. An answer takes a deliberate act: never in the first moment.
 * @module
 */
import { useEffect, useSignal } from "../vendor/preact.js";
import { button, code, div, form, input, label, p, pre, section } from "./elements.js";
import { renderMarkdown } from "./markdown.js";
import { attempt } from "./state.js";
import { diffView } from "./tool.js";

/** @import { Child } from "../vendor/preact.d.ts" */
/** @import { Conversation } from "./conversation.js" */
/** @import { ApprovalEntry, QuestionEntry } from "./turn.js" */

/** How long an answer can't be given after a question appears, so that nobody clicks on it by accident. */
const ARMING_MILLISECONDS = 700;

/** @type {{ answer: string, text: string }[]} */
const APPROVALS = [
  { answer: "once", text: "Allow once" },
  { answer: "session", text: "Allow in this conversation" },
  { answer: "always", text: "Always allow" },
  { answer: "no", text: "Don't allow" },
];

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
export function ApprovalView({ conversation, entry }) {
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
export function QuestionView({ conversation, entry }) {
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
