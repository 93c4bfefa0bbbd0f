/**
 * Controls shared by pages: panels, action buttons, switches, lists of texts and forms.
 * @module
 */
import { useEffect, useSignal } from "../../vendor/preact.js";
import { button, div, form, heading, icon, input, label, li, p, section, span, ul } from "../elements.js";
import { attempt } from "../state.js";

/** @import { Child, VNode } from "../../vendor/preact.d.ts" */

/** Time within which the second click must follow the first. */
const CONFIRM_MILLISECONDS = 4000;

/** Section of a page with a heading. @type {(title: string, about: Child, ...children: Child[]) => VNode} */
export const panel = (title, about, ...children) =>
  section(
    { class: "panel", "aria-label": title },
    div({ class: "panel-head" }, heading(2, null, title), about ? p({ class: "caption" }, about) : null),
    ...children,
  );

/** Value of the control that an event comes from. @type {(event: Event) => string} */
export const textOf = (event) => /** @type {HTMLInputElement} */ (event.target).value;

/**
 * Button that is disabled while its action runs and shows errors. With `confirm` it requires a second click.
 * @type {(props: {
 *   label: Child, onRun: () => Promise<unknown>, class?: string, confirm?: string, name?: string, disabled?: boolean,
 * }) => Child}
 */
export function ActionButton({ label: text, onRun, class: kind = "", confirm = "", name, disabled = false }) {
  const busy = useSignal(false);
  const confirming = useSignal(false);
  useEffect(() => {
    if (!confirming.value || busy.value) return;
    const timer = setTimeout(() => (confirming.value = false), CONFIRM_MILLISECONDS);
    return () => clearTimeout(timer);
  }, [confirming.value, busy.value]);
  const run = async () => {
    if (confirm && !confirming.peek()) {
      confirming.value = true;
      return;
    }
    busy.value = true;
    await attempt(onRun);
    busy.value = confirming.value = false;
  };
  return button(
    {
      type: "button",
      class: kind,
      disabled: disabled || busy.value,
      "aria-label": confirming.value ? undefined : name,
      "aria-busy": busy.value ? "true" : "false",
      onBlur: () => (confirming.value = false),
      onClick: () => void run(),
    },
    confirming.value ? confirm : text,
  );
}

/**
 * Switch with a label.
 * @type {(props: { label: string, on: boolean, onSwitch: (on: boolean) => void, id?: string, disabled?: boolean, describedBy?: string }) => Child}
 */
export function Switch({ label: text, on, onSwitch, id, disabled = false, describedBy }) {
  return button(
    {
      id,
      type: "button",
      class: "toggle",
      role: "switch",
      disabled,
      "aria-checked": on ? "true" : "false",
      "aria-label": text,
      "aria-describedby": describedBy,
      onClick: () => onSwitch(!on),
    },
    span({ class: "knob", "aria-hidden": "true" }),
  );
}

/** Row with text on the left and controls on the right. @type {(title: Child, about: Child, ...controls: Child[]) => VNode} */
export const settingRow = (title, about, ...controls) =>
  div(
    { class: "setting-row" },
    div({ class: "grow" }, p({ class: "row-name" }, title), about ? p({ class: "caption" }, about) : null),
    ...controls,
  );

/**
 * Editable list of texts.
 * @type {(props: {
 *   id: string, label: string, values: string[], onChange: (values: string[]) => unknown, about?: Child, placeholder?: string, disabled?: boolean,
 * }) => Child}
 */
export function ListEditor({ id, label: text, values, onChange, about = null, placeholder = "", disabled = false }) {
  const typed = useSignal("");
  const add = async () => {
    const one = typed.peek().trim();
    typed.value = "";
    if (!one || values.includes(one)) return;
    if (await onChange([...values, one]) === false && !typed.peek()) typed.value = one;
  };
  return form(
    {
      class: "list-editor",
      onSubmit: (event) => {
        event.preventDefault();
        void add();
      },
    },
    label({ for: id }, text),
    about ? p({ class: "caption", id: `${id}-about` }, about) : null,
    values.length
      ? ul(
        { class: "tags", "aria-label": text },
        ...values.map((one) =>
          li(
            { key: one, class: "tag" },
            span(null, one),
            disabled ? null : button(
              {
                type: "button",
                class: "quiet",
                "aria-label": `Remove ${one}`,
                onClick: () => onChange(values.filter((other) => other !== one)),
              },
              icon("close"),
            ),
          )
        ),
      )
      : null,
    disabled ? null : div(
      { class: "inline" },
      input({
        id,
        type: "text",
        value: typed.value,
        placeholder,
        autocomplete: "off",
        spellcheck: false,
        "aria-describedby": about ? `${id}-about` : undefined,
        onInput: (event) => (typed.value = textOf(event)),
      }),
      button({ type: "submit", disabled: !typed.value.trim() }, "Add"),
    ),
  );
}

/** Labelled text field. @type {(id: string, text: string, value: string, onInput: (text: string) => void, more?: object) => VNode} */
export const textField = (id, text, value, onInput, more = {}) =>
  div(
    { class: "field" },
    label({ for: id }, text),
    input({
      id,
      type: "text",
      autocomplete: "off",
      spellcheck: false,
      value,
      onInput: (event) => onInput(textOf(event)),
      ...more,
    }),
  );

/** Forms whose submission is being handled. @type {WeakSet<EventTarget>} */
const submitting = new WeakSet();

/** Form that ignores submissions while one is being handled. @type {(kind: string, onSubmit: () => unknown, ...children: Child[]) => VNode} */
export const plainForm = (kind, onSubmit, ...children) =>
  form(
    {
      class: kind,
      onSubmit: async (event) => {
        event.preventDefault();
        const { currentTarget: target } = event;
        if (!target || submitting.has(target)) return;
        submitting.add(target);
        try {
          await onSubmit();
        } finally {
          submitting.delete(target);
        }
      },
    },
    ...children,
  );
