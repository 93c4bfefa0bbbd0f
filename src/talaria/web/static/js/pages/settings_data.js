/**
 * Access to the settings: loaded once per page, saved together, and never overwriting a concurrent change.
 * @module
 */
import { useEffect, useRef, useSignal } from "../../vendor/preact.js";
import { describe, get, request, RequestFailed } from "../server.js";
import { toast } from "../state.js";
import { acceptInOrder } from "./request_order.js";

/** @import { Signal } from "../../vendor/preact.d.ts" */
/** @import { FaultView, SettingsSaved, SettingsView, SettingView } from "../wire.d.ts" */

/**
 * @typedef {object} SettingsAccess
 * @property {Signal<SettingsView | null>} view
 * @property {Signal<string>} failure Error message if they could not be loaded.
 * @property {Signal<Map<string, string>>} faults Errors of values that were not saved, by key.
 * @property {() => Promise<void>} reload
 * @property {(values: Record<string, unknown>) => Promise<boolean>} save Save values by key; `null` restores a default.
 * @property {(key: string) => SettingView | undefined} find
 * @property {(key: string) => string[]} list Items of a setting that is a list.
 */

/** Load the settings when a page opens. @returns {SettingsAccess} */
export function useSettings() {
  const view = useSignal(/** @type {SettingsView | null} */ (null));
  const failure = useSignal("");
  const faults = useSignal(/** @type {Map<string, string>} */ (new Map()));
  const startRequest = useRef(acceptInOrder()).current;
  const reload = async () => {
    const isNewer = startRequest();
    try {
      /** @type {SettingsView} */
      const found = await get("/web/settings");
      if (!isNewer()) return;
      view.value = found;
      failure.value = "";
    } catch (error) {
      if (isNewer()) failure.value = describe(error);
    }
  };
  /** @param {Record<string, unknown>} values */
  const save = async (values) => {
    faults.value = new Map();
    try {
      /** @type {SettingsSaved} */
      const saved = await request("PATCH", "/web/settings", { values, version: view.peek()?.version ?? "" });
      toast.value = ["Saved.", ...saved.notes].join(" ").replaceAll("`", "");
      await reload();
      return true;
    } catch (error) {
      if (error instanceof RequestFailed && error.code === "settings_changed") {
        await reload();
        toast.value = "The settings were changed in the meantime and are loaded again. Save once more.";
        return false;
      }
      const found = faultsOf(error);
      faults.value = new Map(found.map((one) => [one.key ?? "", one.problem]));
      toast.value = found.length ? "Nothing was saved. See the marked fields." : describe(error);
      return false;
    }
  };
  /** @param {string} key */
  const find = (key) => view.value?.sections.flatMap((one) => one.settings).find((one) => one.key === key);
  /** @param {string} key @returns {string[]} */
  const list = (key) => /** @type {string[]} */ (find(key)?.value ?? []);
  useEffect(() => void reload(), []);
  return { view, failure, faults, reload, save, find, list };
}

/** Faults listed in an error response. @type {(error: unknown) => FaultView[]} */
export const faultsOf = (error) => (error instanceof RequestFailed ? error.answer?.faults ?? [] : []);
