/**
 * People and access: pairing requests, people and their ids, access lists, and API keys.
 * @module
 */
import { h, useSignal } from "../../vendor/preact.js";
import { a, button, div, li, p, span, ul } from "../elements.js";
import { post } from "../server.js";
import { followLink } from "../state.js";
import { ApiKeys } from "./api_keys.js";
import { ActionButton, ListEditor, panel, plainForm, settingRow, Switch, textField } from "./controls.js";
import { formatMoment } from "./format.js";
import { emptyState, failureNotice, PageFrame, useLive } from "./frame.js";
import { surfaceLabel } from "./parts.js";
import { useSettings } from "./settings_data.js";

/** @import { Child } from "../../vendor/preact.d.ts" */
/** @import { PairedPersonView, PeopleView } from "../wire.d.ts" */
/** @import { SettingsAccess } from "./settings_data.js" */

/** @type {(props: object) => Child} */
export function Page() {
  /** @type {import("./frame.js").Loaded<PeopleView>} */
  const { data, failure, reload } = useLive("/web/people", "people");
  const settings = useSettings();
  const people = data.value;
  const ready = people && settings.view.value;
  return h(
    PageFrame,
    { title: "People" },
    failureNotice(failure.value || settings.failure.value),
    people ? h(Requests, { people, settings, reload }) : null,
    ready ? h(KnownPeople, { people, settings, reload }) : null,
    ready ? h(Rules, { settings }) : null,
    ready ? h(Networks, { people, settings }) : null,
    people ? h(ApiKeys, { keys: people.api_keys, scopes: people.scopes, reload }) : null,
  );
}

/** @type {(props: { people: PeopleView, settings: SettingsAccess, reload: () => Promise<void> }) => Child} */
function Requests({ people, settings, reload }) {
  return panel(
    "Requests",
    "People who wrote to the agent and got a code, and browsers that show one.",
    people.requests.length
      ? ul(
        { class: "cards" },
        ...people.requests.map((one) => h(RequestCard, { key: keyOf(one), one, settings, reload })),
      )
      : emptyState("Nobody is asking for access."),
  );
}

/** @type {(props: { one: PairedPersonView, settings: SettingsAccess, reload: () => Promise<void> }) => Child} */
function RequestCard({ one, settings, reload }) {
  const body = { platform: one.platform, user_id: one.user_id };
  /** @param {"approve" | "refuse"} answer */
  const reply = async (answer) => {
    await post(`/web/people/${answer}`, body);
    await reload();
  };
  const block = async () => {
    const blocked = [...settings.list("access.blocked"), keyOf(one)];
    if (await settings.save({ "access.blocked": blocked })) await reply("refuse");
  };
  const isBrowser = one.platform === "web";
  return li(
    { class: "card stacking" },
    div(
      { class: "grow" },
      p(
        { class: "card-title" },
        one.name || one.user_id,
        span({ class: "chip" }, isBrowser ? "Browser" : surfaceLabel(one.platform)),
      ),
      p({ class: "caption" }, isBrowser ? "" : `${one.user_id} · `, "asked ", formatMoment(new Date(one.since ?? 0))),
    ),
    div(
      { class: "actions-row" },
      isBrowser
        ? a(
          { class: "button primary", href: "/browsers", onClick: (event) => followLink(event, "/browsers") },
          "Type its code",
        )
        : h(ActionButton, {
          class: "primary",
          label: "Approve",
          name: `Approve ${one.name || one.user_id}`,
          onRun: () => reply("approve"),
        }),
      h(ActionButton, { label: "Refuse", name: `Refuse ${one.name || one.user_id}`, onRun: () => reply("refuse") }),
      isBrowser || !settings.view.value
        ? null
        : h(ActionButton, { class: "danger", label: "Block", confirm: "Block for good?", onRun: block }),
    ),
  );
}

/** @type {(props: { people: PeopleView, settings: SettingsAccess, reload: () => Promise<void> }) => Child} */
function KnownPeople({ people, settings, reload }) {
  const section = settings.view.value?.sections.find((one) => one.name === "people");
  const names = section?.entries ?? [];
  return panel(
    "People",
    "A person has the same memory and conversations under each of their ids.",
    names.length ? ul({ class: "cards" }, ...names.map((name) => h(PersonCard, { key: name, name, settings }))) : null,
    h(NewPerson, { settings, names }),
    people.approved.length ? p({ class: "row-name" }, "Approved by pairing") : null,
    ul(
      { class: "cards" },
      ...people.approved.map((one) =>
        li(
          { key: keyOf(one), class: "card" },
          div(
            { class: "grow" },
            p({ class: "card-title" }, one.name || one.user_id, span({ class: "chip" }, surfaceLabel(one.platform))),
            p({ class: "caption" }, `${keyOf(one)} · since ${new Date(one.since ?? 0).toLocaleDateString()}`),
          ),
          h(ActionButton, {
            class: "danger",
            label: "Revoke",
            confirm: "Revoke access?",
            name: `Revoke access of ${one.name || one.user_id}`,
            onRun: async () => {
              await post("/web/people/revoke", { platform: one.platform, user_id: one.user_id });
              await reload();
            },
          }),
        )
      ),
    ),
  );
}

/** @type {(props: { name: string, settings: SettingsAccess }) => Child} */
function PersonCard({ name, settings }) {
  const owners = settings.list("access.owners");
  const blocked = settings.list("access.blocked");
  /** @type {(key: string, all: string[], on: boolean) => void} */
  const toggle = (key, all, on) =>
    void settings.save({ [key]: on ? [...all, name] : all.filter((one) => one !== name) });
  return li(
    { class: "card block" },
    div(
      { class: "inline spread" },
      p({ class: "card-title" }, name, owners.includes(name) ? span({ class: "chip" }, "Owner") : null),
      h(ActionButton, {
        class: "quiet danger",
        label: "Remove",
        confirm: "Remove?",
        name: `Remove ${name}`,
        onRun: () => settings.save({ [`people.${quoted(name)}`]: null }),
      }),
    ),
    h(ListEditor, {
      id: `ids-${name}`,
      label: "Ids",
      values: settings.list(`people.${quoted(name)}.ids`),
      placeholder: "telegram:12345",
      onChange: (ids) => settings.save({ [`people.${quoted(name)}.ids`]: ids }),
    }),
    settingRow(
      "Owner",
      "Sees everything and may do everything.",
      h(Switch, {
        label: `${name} is an owner`,
        on: owners.includes(name),
        onSwitch: (on) => toggle("access.owners", owners, on),
      }),
    ),
    settingRow(
      "Blocked",
      "Never gets an answer.",
      h(Switch, {
        label: `${name} is blocked`,
        on: blocked.includes(name),
        onSwitch: (on) => toggle("access.blocked", blocked, on),
      }),
    ),
  );
}

/** @type {(props: { settings: SettingsAccess, names: string[] }) => Child} */
function NewPerson({ settings, names }) {
  const name = useSignal("");
  const id = useSignal("");
  const valid = /^[\w-]+$/.test(name.value) && !names.includes(name.value) && /^\w+:.+/.test(id.value);
  const add = async () => {
    if (await settings.save({ [`people.${name.peek()}.ids`]: [id.peek().trim()] })) name.value = id.value = "";
  };
  return plainForm(
    "inline-form",
    add,
    textField("person-name", "Name", name.value, (text) => (name.value = text), { placeholder: "alice" }),
    textField("person-id", "First id", id.value, (text) => (id.value = text), { placeholder: "telegram:12345" }),
    button({ type: "submit", disabled: !valid }, "Add person"),
  );
}

/** @type {(props: { settings: SettingsAccess }) => Child} */
function Rules({ settings }) {
  /** @type {[string, string, string][]} */
  const lists = [
    ["owners", "Owners", "alice"],
    ["allowed", "May talk to the agent", "telegram:12345"],
    ["chats", "Groups in which everyone may talk", "telegram:-100123"],
    ["blocked", "Blocked", "telegram:666"],
  ];
  return panel(
    "Who may talk",
    "Everyone else gets no answer.",
    ...["pairing", "everyone"].map((name) => {
      const setting = settings.find(`access.${name}`);
      return setting
        ? settingRow(
          name === "pairing" ? "Pairing codes" : "Everyone may talk",
          setting.about,
          h(Switch, {
            label: name === "pairing" ? "Pairing codes" : "Everyone may talk",
            on: Boolean(setting.value),
            onSwitch: (on) => void settings.save({ [`access.${name}`]: on }),
          }),
        )
        : null;
    }),
    ...lists.map(([name, title, placeholder]) =>
      h(ListEditor, {
        key: name,
        id: `access-${name}`,
        label: title,
        about: settings.faults.value.get(`access.${name}`)?.replaceAll("`", ""),
        placeholder,
        values: settings.list(`access.${name}`),
        onChange: (values) => settings.save({ [`access.${name}`]: values }),
      })
    ),
  );
}

/** @type {(props: { people: PeopleView, settings: SettingsAccess }) => Child} */
function Networks({ people, settings }) {
  const entries = settings.view.value?.sections.find((one) => one.name === "platforms")?.entries ?? [];
  const names = [...new Set([...people.networks.filter((one) => one.configured).map((one) => one.name), ...entries])];
  if (!names.length) return null;
  return panel(
    "Networks",
    "Who may use each chat network, in addition to the lists above.",
    ...names.map((name) =>
      div(
        { key: name, class: "card block" },
        p({ class: "card-title" }, surfaceLabel(name)),
        settingRow(
          "Everyone on this network",
          "Strangers included, at your expense.",
          h(Switch, {
            label: `Everyone on ${surfaceLabel(name)} may talk`,
            on: Boolean(settings.find(`platforms.${name}.everyone`)?.value),
            onSwitch: (on) => void settings.save({ [`platforms.${name}.everyone`]: on }),
          }),
        ),
        ...["allowed", "chats"].map((key) =>
          h(ListEditor, {
            key,
            id: `${name}-${key}`,
            label: key === "allowed" ? "People, by their ids there" : "Groups and channels, by their ids",
            values: settings.list(`platforms.${name}.${key}`),
            onChange: (values) => settings.save({ [`platforms.${name}.${key}`]: values }),
          })
        ),
      )
    ),
  );
}

/** @type {(one: PairedPersonView) => string} */
const keyOf = (one) => `${one.platform}:${one.user_id}`;

/** Quote a name for use in a key. @type {(name: string) => string} */
const quoted = (name) => (/^[\w-]+$/.test(name) ? name : `"${name}"`);
