/**
 * Form field of a setting: a control for its kind, the source of its value, and its error.
 * @module
 */
import { h } from "../../vendor/preact.js";
import { code, div, input, label, option, p, select, span, textarea } from "../elements.js";
import { ActionButton, Switch, textOf } from "./controls.js";
import { shown, shownLines } from "./setting_values.js";

/** @import { Child } from "../../vendor/preact.d.ts" */
/** @import { SettingView } from "../wire.d.ts" */

/**
 * @typedef {object} FieldProps
 * @property {SettingView} setting
 * @property {boolean} full Whether to show the full key.
 * @property {string} fault
 * @property {any} value Value of the control: the saved value, or the typed text.
 * @property {(value: unknown) => void} onEdit
 * @property {() => Promise<unknown>} onReset
 */

/** @type {(props: FieldProps) => Child} */
export function SettingField(props) {
  const { setting, full, fault, onReset } = props;
  const id = `set-${setting.key.replaceAll(/[^\w-]/g, "-")}`;
  const fixed = setting.source === "environment";
  return div(
    { class: `setting ${fault ? "wrong" : ""}` },
    div(
      { class: "setting-head" },
      label({ for: id, class: "row-name" }, wordsOf(setting.name)),
      code({ class: "key" }, full ? setting.key : setting.name),
      ...marks(setting),
      setting.source === "file"
        ? h(ActionButton, {
          class: "quiet small",
          label: "Reset",
          name: `Reset ${setting.key} to its default`,
          onRun: onReset,
        })
        : null,
    ),
    p({ class: "caption", id: `${id}-about` }, plain(setting.about)),
    control(id, props, fixed),
    fault ? p({ class: "fault", id: `${id}-fault`, role: "alert" }, plain(fault)) : hint(setting, fixed),
  );
}

/** @type {(setting: SettingView) => Child[]} */
const marks = (setting) => [
  setting.source === "environment" ? span({ class: "chip" }, "From the environment") : null,
  setting.source === "file" ? span({ class: "chip", title: setting.location }, "Changed") : null,
  setting.live ? null : span({ class: "chip faint" }, "Needs a restart"),
];

/** @type {(setting: SettingView, fixed: boolean) => Child} */
function hint(setting, fixed) {
  if (fixed) return p({ class: "caption" }, "Set by ", code(null, setting.variable), ". It can't be changed here.");
  const limits = setting.minimum !== null && setting.maximum !== null
    ? `${setting.minimum} to ${setting.maximum}. `
    : setting.minimum !== null
    ? `At least ${setting.minimum}. `
    : setting.maximum !== null
    ? `At most ${setting.maximum}. `
    : "";
  const usual = setting.source === "file" && !setting.secret ? `Default: ${shown(setting.default) || "empty"}.` : "";
  return limits || usual ? p({ class: "caption" }, limits, usual) : null;
}

/** @type {(id: string, props: FieldProps, fixed: boolean) => Child} */
function control(id, { setting, value, fault, onEdit }, fixed) {
  /** @type {import("../elements.js").Attributes} */
  const common = {
    id,
    disabled: fixed,
    "aria-describedby": fault ? `${id}-about ${id}-fault` : `${id}-about`,
    "aria-invalid": fault ? "true" : undefined,
  };
  /** @param {Event} event */
  const edit = (event) => onEdit(textOf(event));
  if (setting.kind === "switch" && !setting.optional) {
    return h(Switch, {
      id,
      label: setting.key,
      on: Boolean(value),
      disabled: fixed,
      describedBy: `${id}-about`,
      onSwitch: onEdit,
    });
  }
  if (setting.kind === "choice" || setting.kind === "switch") {
    const choices = setting.kind === "switch" ? ["", "true", "false"] : setting.choices;
    return select(
      { ...common, value: shown(value), onChange: edit },
      ...choices.map((one) => option({ key: one, value: one }, one || "(default)")),
    );
  }
  if (setting.kind === "list" || setting.kind === "table") {
    return textarea({
      ...common,
      rows: Math.min(8, Math.max(2, shownLines(setting, value).split("\n").length)),
      spellcheck: false,
      placeholder: setting.kind === "list" ? "One item per line" : "One name = value per line",
      value: shownLines(setting, value),
      onInput: edit,
    });
  }
  return input({
    ...common,
    type: "text",
    inputmode: setting.kind === "whole" ? "numeric" : setting.kind === "number" ? "decimal" : undefined,
    autocomplete: "off",
    spellcheck: false,
    placeholder: setting.secret ? setting.shown || "Not set" : "",
    value: shown(value),
    onInput: edit,
  });
}

/** Name of a setting as words. @type {(name: string) => string} */
const wordsOf = (name) => `${name[0]?.toUpperCase() ?? ""}${name.slice(1).replaceAll("_", " ").replaceAll(".", ": ")}`;

/** @type {(text: string) => string} */
const plain = (text) => text.replaceAll("`", "");
