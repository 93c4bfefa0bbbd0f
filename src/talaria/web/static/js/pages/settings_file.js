/**
 * Editor for the settings file: its text is checked and compared before it is saved.
 * @module
 */
import { h, useEffect, useSignal } from "../../vendor/preact.js";
import { div, heading, label, p, pre, span, textarea } from "../elements.js";
import { get, post, request } from "../server.js";
import { attempt, toast } from "../state.js";
import { ActionButton, textOf } from "./controls.js";
import { faultsOf } from "./settings_data.js";

/** @import { Child } from "../../vendor/preact.d.ts" */
/** @import { ConfigTextCheck, ConfigTextView, FaultView, SettingsSaved } from "../wire.d.ts" */

/** @type {(props: { onSaved: () => Promise<void> }) => Child} */
export function SettingsFile({ onSaved }) {
  const file = useSignal(/** @type {ConfigTextView | null} */ (null));
  const text = useSignal("");
  const checked = useSignal(/** @type {ConfigTextCheck | null} */ (null));
  /** Load the file; replace the text in the field unless it differs from `known`. @param {string} [known] */
  const load = async (known) => {
    /** @type {ConfigTextView} */
    const loaded = await get("/web/settings/file");
    file.value = loaded;
    if (known !== undefined && text.peek() !== known) return;
    text.value = loaded.text;
    checked.value = null;
  };
  useEffect(() => void attempt(() => load()), []);
  const check = async () => {
    const typed = text.peek();
    /** @type {ConfigTextCheck} */
    const found = await post("/web/settings/file/check", { text: typed });
    if (typed === text.peek()) checked.value = found;
  };
  const save = async () => {
    const typed = text.peek();
    try {
      /** @type {SettingsSaved} */
      const saved = await request("PUT", "/web/settings/file", { text: typed, version: file.peek()?.version });
      toast.value = ["Saved.", ...saved.notes].join(" ").replaceAll("`", "");
      await load(typed);
      await onSaved();
    } catch (error) {
      const faults = faultsOf(error);
      if (!faults.length) throw error;
      checked.value = { faults, diff: checked.peek()?.diff ?? [] };
    }
  };
  const changed = file.value !== null && text.value !== file.value.text;
  const result = checked.value;
  return div(
    { class: "stack" },
    div({ class: "panel-head" }, heading(2, null, "File"), p({ class: "caption" }, file.value?.file ?? "")),
    label({ class: "offscreen", for: "settings-text" }, "Settings as TOML"),
    textarea({
      id: "settings-text",
      class: "code-editor",
      rows: 24,
      spellcheck: false,
      autocomplete: "off",
      disabled: file.value === null,
      value: text.value,
      onInput: (event) => {
        text.value = textOf(event);
        checked.value = null;
      },
    }),
    p({ class: "caption" }, "Secrets are shown as ****. They stay unchanged unless you type a new value."),
    result ? div({ class: "stack", role: "status" }, faultList(result.faults), diffView(result.diff)) : null,
    div(
      { class: "actions-row" },
      h(ActionButton, { label: "Check and compare", disabled: !changed, onRun: check }),
      h(ActionButton, {
        class: "primary",
        label: "Save",
        disabled: !changed || !result || result.faults.length > 0,
        onRun: save,
      }),
      h(ActionButton, { label: "Load again", onRun: () => load(), confirm: changed ? "Discard your changes?" : "" }),
    ),
  );
}

/** @type {(faults: FaultView[]) => Child} */
const faultList = (faults) =>
  faults.length
    ? div(
      { class: "notice error" },
      ...faults.map((one) => p(null, `${one.line ? `Line ${one.line}: ` : ""}${one.problem.replaceAll("`", "")}`)),
    )
    : p({ class: "notice" }, "No problems found.");

/** @type {(lines: string[]) => Child} */
const diffView = (lines) =>
  lines.length
    ? pre(
      { class: "diff", tabIndex: 0, "aria-label": "Changes" },
      ...lines.map((line) =>
        span(
          {
            class: line.startsWith("+")
              ? "diff-add"
              : line.startsWith("-")
              ? "diff-del"
              : line.startsWith("@")
              ? "diff-at"
              : "",
          },
          `${line}\n`,
        )
      ),
    )
    : p({ class: "caption" }, "Nothing changes.");
