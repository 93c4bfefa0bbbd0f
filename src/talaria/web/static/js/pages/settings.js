/**
 * Settings: a form for each section, generated from the schema, with search; and an editor for the file.
 * @module
 */
import { h, useSignal } from "../../vendor/preact.js";
import { a, button, div, heading, icon, input, label, li, nav, p, span, ul } from "../elements.js";
import { followLink, path } from "../state.js";
import { ActionButton, plainForm, textField, textOf } from "./controls.js";
import { emptyState, failureNotice, PageFrame } from "./frame.js";
import { SettingField } from "./setting_field.js";
import { changesOf } from "./setting_values.js";
import { useSettings } from "./settings_data.js";
import { SettingsFile } from "./settings_file.js";

/** @import { Child } from "../../vendor/preact.d.ts" */
/** @import { SettingSection, SettingsView, SettingView } from "../wire.d.ts" */
/** @import { SettingsAccess } from "./settings_data.js" */

const FILE = "file";

/** @type {(props: object) => Child} */
export function Page() {
  const settings = useSettings();
  const query = useSignal("");
  const view = settings.view.value;
  const chosen = path.value.split("/")[2] ?? "";
  const section = view?.sections.find((one) => one.name === chosen);
  return h(
    PageFrame,
    { title: "Settings", wide: true },
    failureNotice(settings.failure.value),
    view ? notices(view) : null,
    div(
      { class: `split ${chosen ? "opened" : ""}` },
      div(
        { class: "split-list" },
        div(
          { class: "search flat" },
          icon("search"),
          label({ class: "offscreen", for: "settings-search" }, "Search settings"),
          input({
            id: "settings-search",
            type: "search",
            placeholder: "Search settings",
            value: query.value,
            onInput: (event) => (query.value = textOf(event)),
          }),
        ),
        view ? sectionList(view, chosen) : null,
      ),
      div(
        { class: "split-detail" },
        chosen ? backLink() : null,
        query.value.trim() && view
          ? h(SearchResults, { view, settings, query: query.value })
          : chosen === FILE
          ? h(SettingsFile, { onSaved: settings.reload })
          : section
          ? h(SectionForm, { key: section.name, section, settings })
          : view
          ? emptyState(chosen ? "There is no such section." : "Choose a section, or search.")
          : null,
      ),
    ),
  );
}

/** @type {(view: SettingsView) => Child} */
function notices(view) {
  return div(
    { class: "stack" },
    view.restart.length
      ? p(
        { class: "notice", role: "status" },
        `After a restart of the server, these take effect: ${view.restart.join(", ")}.`,
      )
      : null,
    ...view.faults.map((fault) =>
      p({ class: "notice error", role: "alert" }, `${fault.line ? `Line ${fault.line}: ` : ""}${fault.problem}`)
    ),
  );
}

const backLink = () =>
  a(
    { class: "back-link only-small", href: "/settings", onClick: (event) => followLink(event, "/settings") },
    icon("back"),
    "All settings",
  );

/** @type {(view: SettingsView, chosen: string) => Child} */
function sectionList(view, chosen) {
  /** @type {(name: string, about: string, changed: number) => Child} */
  const item = (name, about, changed) =>
    li(
      { key: name },
      a(
        {
          class: `row section-link ${name === chosen ? "current" : ""}`,
          href: `/settings/${name}`,
          "aria-current": name === chosen ? "page" : undefined,
          onClick: (event) => followLink(event, `/settings/${name}`),
        },
        span(
          { class: "grow" },
          span({ class: "row-name" }, titleOf(name)),
          span({ class: "caption clip" }, about.replaceAll("`", "")),
        ),
        changed ? span({ class: "chip", title: "Changed settings" }, String(changed)) : null,
      ),
    );
  return nav(
    { "aria-label": "Sections of the settings" },
    ul(
      { class: "plain-list" },
      ...view.sections.map((one) =>
        item(one.name, one.about, one.settings.filter((setting) => setting.source !== "default").length)
      ),
      item(FILE, "Edit as text", 0),
    ),
  );
}

/** @type {(props: { view: SettingsView, settings: SettingsAccess, query: string }) => Child} */
function SearchResults({ view, settings, query }) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const found = view.sections.flatMap((one) => one.settings).filter((one) => {
    const text = `${one.key} ${one.about}`.toLowerCase();
    return words.every((word) => text.includes(word));
  });
  if (!found.length) return emptyState("No setting matches.");
  return h(FieldsForm, { key: query, fields: found.slice(0, 40), settings, full: true });
}

/** @type {(props: { section: SettingSection, settings: SettingsAccess }) => Child} */
function SectionForm({ section, settings }) {
  return div(
    { class: "stack" },
    div(
      { class: "panel-head" },
      heading(2, null, titleOf(section.name)),
      p({ class: "caption" }, section.about.replaceAll("`", "")),
    ),
    section.named
      ? h(NamedTables, { section, settings })
      : h(FieldsForm, { fields: section.settings, settings, full: false }),
  );
}

/** Named tables, for example providers. @type {(props: { section: SettingSection, settings: SettingsAccess }) => Child} */
function NamedTables({ section, settings }) {
  const name = useSignal("");
  const added = useSignal(/** @type {string[]} */ ([]));
  const entries = [...new Set([...section.entries, ...added.value])];
  return div(
    { class: "stack" },
    ...entries.map((entry) => {
      const known = section.settings.filter((one) => one.entry === entry);
      return div(
        { key: entry, class: "panel", role: "group", "aria-label": entry },
        div(
          { class: "inline spread" },
          heading(3, { class: "row-name" }, entry),
          section.entries.includes(entry)
            ? h(ActionButton, {
              class: "quiet danger",
              label: "Remove",
              confirm: `Remove ${entry}?`,
              name: `Remove ${entry}`,
              onRun: () => settings.save({ [`${section.name}.${quoted(entry)}`]: null }),
            })
            : null,
        ),
        h(FieldsForm, { fields: known.length ? known : template(section, entry), settings, full: false }),
      );
    }),
    plainForm(
      "inline-form",
      () => {
        added.value = [...added.peek(), name.peek().trim()];
        name.value = "";
      },
      textField("entry-name", "Name", name.value, (text) => (name.value = text)),
      button({ type: "submit", disabled: !name.value.trim() || entries.includes(name.value.trim()) }, "Add"),
    ),
  );
}

/** Settings of a table that does not exist yet. @type {(section: SettingSection, entry: string) => SettingView[]} */
const template = (section, entry) =>
  section.template.map((one) => ({ ...one, entry, key: `${section.name}.${quoted(entry)}.${one.name}` }));

/** Settings that are saved together. @type {(props: { fields: SettingView[], settings: SettingsAccess, full: boolean }) => Child} */
function FieldsForm({ fields, settings, full }) {
  const edits = useSignal(/** @type {Record<string, unknown>} */ ({}));
  const values = changesOf(fields, edits.value);
  const count = Object.keys(values).length;
  const save = async () => {
    const sent = edits.peek();
    if (!(await settings.save(values))) return;
    const since = Object.entries(edits.peek()).filter(([key, value]) => !(key in sent) || sent[key] !== value);
    edits.value = Object.fromEntries(since);
  };
  return plainForm(
    "fields",
    save,
    ...fields.map((setting) =>
      h(SettingField, {
        key: setting.key,
        setting,
        full,
        fault: settings.faults.value.get(setting.key) ?? "",
        value: setting.key in edits.value ? edits.value[setting.key] : setting.value,
        onEdit: (value) => (edits.value = { ...edits.peek(), [setting.key]: value }),
        onReset: () => settings.save({ [setting.key]: null }),
      })
    ),
    count
      ? div(
        { class: "save-bar" },
        span({ role: "status" }, count === 1 ? "1 change" : `${count} changes`),
        button({ type: "button", onClick: () => (edits.value = {}) }, "Discard"),
        button({ type: "submit", class: "primary" }, "Save"),
      )
      : null,
  );
}

/** @type {Record<string, string>} */
const TITLES = { api: "API", cli: "Terminal", mcp: "MCP servers", file: "File" };

/** @type {(name: string) => string} */
const titleOf = (name) => TITLES[name] ?? name[0]?.toUpperCase() + name.slice(1);

/** @type {(name: string) => string} */
const quoted = (name) => (/^[\w-]+$/.test(name) ? name : `"${name}"`);
