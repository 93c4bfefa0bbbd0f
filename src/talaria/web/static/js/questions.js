/**
 * Forms for approvals and questions, in a conversation and on Home. They are disabled for a moment after they appear.
 * @module
 */
import { h, useEffect, useLayoutEffect, useRef, useSignal } from "../vendor/preact.js";
import { button, code, div, form, input, label, p, pre, section } from "./elements.js";
import { renderMarkdown } from "./markdown.js";
import { attempt } from "./state.js";
import { diffView } from "./tool.js";

/** @import { Child } from "../vendor/preact.d.ts" */
/** @import { ApprovalEntry, QuestionEntry } from "./turn.js" */

/** Time for which a new question is disabled, so that nobody clicks on it by accident. */
const ARMING_MILLISECONDS = 700;

/** @type {{ answer: string, text: string }[]} */
const APPROVALS = [
  { answer: "once", text: "Allow once" },
  { answer: "session", text: "Allow in this conversation" },
  { answer: "always", text: "Always allow" },
  { answer: "no", text: "Don't allow" },
];

/** Tool name in the approval of a plan in plan mode. */
const PLAN = "the plan";

/** @type {{ answer: string, text: string }[]} */
const PLAN_ANSWERS = [{ answer: "once", text: "Carry out the plan" }, { answer: "no", text: "Keep planning" }];

/** Titles of approvals by tool. @type {Record<string, string>} */
const TITLES = { terminal: "Run this command?", [PLAN]: "Carry out the plan?" };

/** Whether the question is enabled, which it is a moment after it appears. */
function useArmed() {
  const armed = useSignal(false);
  useEffect(() => {
    const timer = setTimeout(() => (armed.value = true), ARMING_MILLISECONDS);
    return () => clearTimeout(timer);
  }, []);
  return armed.value;
}

/** Send an answer; a refusal may have a reason. @typedef {(text: string, reason?: string) => Promise<unknown>} SendAnswer */

/**
 * Approval form; with `keys`, Alt and a number answer the first one on the screen.
 * @type {(props: { entry: Omit<ApprovalEntry, "kind">, onAnswer: SendAnswer, keys?: boolean }) => Child}
 */
export function ApprovalView({ entry, onAnswer, keys = false }) {
  const armed = useArmed();
  const sent = useSignal(false);
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const confirming = useSignal(false);
  const explaining = useSignal(false);
  /** @type {(answer: string, reason?: string) => void} */
  const answer = (text, reason = "") => {
    if (!armed || sent.peek()) return;
    if (text === "always" && !confirming.peek()) {
      confirming.value = true;
      return;
    }
    sent.value = true;
    void attempt(() => onAnswer(text, reason)).then((done) => (sent.value = done));
  };
  const disabled = !armed || sent.value;
  const isPlan = entry.tool === PLAN;
  const answers = isPlan ? PLAN_ANSWERS : APPROVALS;
  useEffect(() => {
    if (!keys) return;
    /** @param {KeyboardEvent} event */
    const press = (event) => {
      const chosen = event.altKey && !event.repeat ? answers[Number(event.code.replace("Digit", "")) - 1] : undefined;
      if (!chosen || document.querySelector(".approval") !== box.current) return;
      event.preventDefault();
      answer(chosen.answer);
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  });
  return section(
    { class: "entry question approval", "aria-label": "Approval needed", ref: box },
    p({ class: "question-title" }, TITLES[entry.tool] ?? `Allow ${entry.tool}?`),
    pre({ tabIndex: 0 }, code(null, entry.summary)),
    entry.diff ? diffView(entry.diff) : null,
    entry.reason ? p({ class: "caption" }, entry.reason) : null,
    div(
      { class: "question-actions" },
      ...answers.map(({ answer: value, text }, index) =>
        button(
          {
            type: "button",
            class: value === "once" ? "primary" : value === "no" ? "danger" : "",
            disabled,
            title: keys ? `Alt+${index + 1}` : undefined,
            onClick: () => answer(value),
          },
          value === "always" && confirming.value ? "Click again to always allow" : text,
        )
      ),
      explaining.value ? null : button(
        { type: "button", class: "quiet", disabled, onClick: () => (explaining.value = true) },
        isPlan ? "Say what should change …" : "Say why not …",
      ),
    ),
    explaining.value
      ? h(TextForm, {
        field: `reason-${entry.id}`,
        text: isPlan ? "What should change" : "Why not",
        placeholder: "What should it do instead?",
        button: isPlan ? "Keep planning" : "Don't allow",
        disabled,
        onSend: (reason) => answer("no", reason),
      })
      : null,
  );
}

/**
 * Text field with a button that sends its text.
 * @type {(props: {
 *   field: string, text: string, placeholder: string, button: string, disabled: boolean, onSend: (text: string) => void, longest?: number, focus?: boolean,
 * }) => Child}
 */
function TextForm({ field, text, placeholder, button: send, disabled, onSend, longest = 2000, focus = true }) {
  const typed = useSignal("");
  const line = useRef(/** @type {HTMLElement | null} */ (null));
  useLayoutEffect(() => {
    if (focus) line.current?.focus();
  }, []);
  return form(
    {
      class: "question-form",
      onSubmit: (event) => {
        event.preventDefault();
        if (typed.peek().trim()) onSend(typed.peek().trim());
      },
    },
    label({ class: "offscreen", for: field }, text),
    input({
      id: field,
      type: "text",
      ref: line,
      placeholder,
      maxlength: longest,
      autocomplete: "off",
      value: typed.value,
      onInput: (event) => (typed.value = /** @type {HTMLInputElement} */ (event.target).value),
    }),
    button({ type: "submit", class: "primary", disabled: disabled || !typed.value.trim() }, send),
  );
}

/** @type {(props: { entry: Omit<QuestionEntry, "kind">, onAnswer: SendAnswer }) => Child} */
export function QuestionView({ entry, onAnswer }) {
  const armed = useArmed();
  const sent = useSignal(false);
  /** @type {(text: string) => void} */
  const answer = (text) => {
    if (!armed || sent.peek()) return;
    sent.value = true;
    void attempt(() => onAnswer(text)).then((done) => (sent.value = done));
  };
  return section(
    { class: "entry question", "aria-label": "Question" },
    div({ class: "question-title markdown" }, ...renderMarkdown(entry.question)),
    entry.choices.length
      ? div(
        { class: "question-actions" },
        ...entry.choices.map((choice) =>
          button({ type: "button", disabled: !armed || sent.value, onClick: () => answer(choice) }, choice)
        ),
      )
      : null,
    h(TextForm, {
      field: `answer-${entry.id}`,
      text: "Your answer",
      placeholder: entry.choices.length ? "Or type another answer" : "Your answer",
      button: "Answer",
      disabled: !armed || sent.value,
      onSend: answer,
      longest: 20_000,
      focus: false,
    }),
  );
}
