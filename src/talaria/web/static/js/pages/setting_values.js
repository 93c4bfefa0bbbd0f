/**
 * Conversion of settings to text in forms, and of typed text to changes.
 * @module
 */

/** @import { SettingView } from "../wire.d.ts" */

/** @type {(value: any) => string} */
export function shown(value) {
  if (value === null || value === undefined) return "";
  return Array.isArray(value) ? value.join(", ") : typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** Format a list or table as lines; typed text is returned unchanged. @type {(setting: SettingView, value: any) => string} */
export function shownLines(setting, value) {
  if (typeof value === "string") return value;
  if (setting.kind === "list") return (value ?? []).join("\n");
  return Object.entries(value ?? {}).map(([name, one]) => `${name} = ${setting.secret ? "****" : shown(one)}`).join(
    "\n",
  );
}

/**
 * Compute the values to send for the edits of a form, by key. Of a table, only the changed entries.
 * @type {(fields: SettingView[], edits: Record<string, unknown>) => Record<string, unknown>}
 */
export function changesOf(fields, edits) {
  /** @type {Record<string, unknown>} */
  const values = {};
  for (const setting of fields) {
    if (!(setting.key in edits)) continue;
    const typed = edits[setting.key];
    if (setting.kind === "list") {
      const items = String(typed).split("\n").map((one) => one.trim()).filter(Boolean);
      if (items.join("\n") !== shownLines(setting, setting.value)) values[setting.key] = items;
    } else if (setting.kind === "table") Object.assign(values, tableChanges(setting, String(typed)));
    else if (setting.secret ? typed !== "" : shown(typed) !== shown(setting.value)) {
      values[setting.key] = typed === "" && (setting.optional || setting.kind !== "text") ? null : typed;
    }
  }
  return values;
}

/** @type {(setting: SettingView, text: string) => Record<string, unknown>} */
function tableChanges(setting, text) {
  /** @type {Record<string, unknown>} */
  const values = {};
  const lines = new Map(
    text.split("\n").filter((line) => line.includes("=")).map((line) => {
      const at = line.indexOf("=");
      return /** @type {[string, string]} */ ([line.slice(0, at).trim(), line.slice(at + 1).trim()]);
    }),
  );
  const before = /** @type {Record<string, unknown>} */ (setting.value ?? {});
  for (const name of Object.keys(before)) if (!lines.has(name)) values[entryKey(setting, name)] = null;
  for (const [name, value] of lines) {
    const old = setting.secret ? "****" : shown(before[name]);
    if (!(name in before) || value !== old) {
      values[entryKey(setting, name)] = setting.item === "list" ? value.split(",").map((one) => one.trim()) : value;
    }
  }
  return values;
}

/** @type {(setting: SettingView, name: string) => string} */
const entryKey = (setting, name) => `${setting.key}.${/^[\w-]+$/.test(name) ? name : `"${name}"`}`;
