/**
 * Providers and their keys. A key is tested before it is saved, and never shown again.
 * @module
 */
import { h, useSignal } from "../../vendor/preact.js";
import { button, div, input, label, li, p, span, ul } from "../elements.js";
import { post, request } from "../server.js";
import { attempt } from "../state.js";
import { ActionButton, panel, plainForm, textField, textOf } from "./controls.js";

/** @import { Child } from "../../vendor/preact.d.ts" */
/** @import { ModelsView, ProviderResult, ProviderView } from "../wire.d.ts" */

/** @typedef {{ view: ModelsView, changed: () => Promise<void> }} ModelsProps */

/** @type {(props: { provider: ProviderView, use: boolean, done: () => Promise<void> }) => Child} */
export function KeyForm({ provider, use, done }) {
  const typed = useSignal("");
  const busy = useSignal(false);
  const result = useSignal(/** @type {ProviderResult | null} */ (null));
  /** @param {boolean} check */
  const save = async (check) => {
    busy.value = true;
    await attempt(async () => {
      result.value = await post("/web/models/providers", {
        provider: provider.name,
        key: typed.peek().trim(),
        use,
        check,
      });
      if (result.value?.saved) {
        typed.value = "";
        await done();
      }
    });
    busy.value = false;
  };
  const failed = result.value && !result.value.saved;
  return plainForm(
    "stack",
    () => save(true),
    div(
      { class: "field" },
      label({ for: `key-${provider.name}` }, `Key for ${provider.title}`),
      input({
        id: `key-${provider.name}`,
        type: "password",
        autocomplete: "off",
        spellcheck: false,
        placeholder: provider.key ? `set, ends with …${provider.key.replaceAll("*", "")}` : provider.key_name,
        value: typed.value,
        onInput: (event) => (typed.value = textOf(event)),
      }),
      provider.hint ? p({ class: "caption" }, provider.hint) : null,
    ),
    result.value
      ? p({ class: `notice ${failed ? "error" : ""}`, role: failed ? "alert" : "status" }, result.value.sentence)
      : null,
    div(
      { class: "actions-row" },
      button(
        { type: "submit", class: "primary", disabled: busy.value || !(typed.value.trim() || (use && provider.key)) },
        busy.value ? "Testing …" : "Test and save",
      ),
      failed ? button({ type: "button", onClick: () => void save(false) }, "Save without a test") : null,
    ),
  );
}

/** Form for another server, by its address. @type {(props: { done: () => Promise<void>, use: boolean }) => Child} */
export function OwnServer({ done, use }) {
  const name = useSignal("");
  const address = useSignal("");
  const key = useSignal("");
  const failure = useSignal("");
  const save = () =>
    attempt(async () => {
      const body = {
        provider: name.peek().trim(),
        base_url: address.peek().trim().replace(/\/$/, ""),
        key: key.peek().trim(),
        use,
      };
      /** @type {ProviderResult} */
      const result = await post("/web/models/providers", body);
      failure.value = result.saved ? "" : result.sentence;
      if (result.saved) await done();
    });
  return plainForm(
    "stack",
    save,
    p({ class: "row-name" }, "Another server with an OpenAI-compatible API"),
    textField("own-address", "Address", address.value, (text) => (address.value = text), {
      placeholder: "http://127.0.0.1:9000/v1",
      inputmode: "url",
    }),
    textField("own-name", "Name for it", name.value, (text) => (name.value = text), { placeholder: "mine" }),
    textField("own-key", "Key, if it needs one", key.value, (text) => (key.value = text), { type: "password" }),
    failure.value ? p({ class: "notice error", role: "alert" }, failure.value) : null,
    div(null, button({ type: "submit", disabled: !name.value.trim() || !address.value.trim() }, "Test and save")),
  );
}

/** All providers, those in use first. @type {(props: ModelsProps) => Child} */
export function Providers({ view, changed }) {
  const all = useSignal(false);
  const isUsed = (/** @type {ProviderView} */ one) => Boolean(one.key || one.running || one.own);
  const used = view.providers.filter(isUsed);
  const others = view.providers.filter((one) => !isUsed(one));
  return panel(
    "Providers and keys",
    "Keys are stored on the server, readable only by its user, and never shown again.",
    ul({ class: "cards" }, ...used.map((one) => h(ProviderCard, { key: one.name, one, changed }))),
    div(
      null,
      button(
        { type: "button", "aria-expanded": all.value ? "true" : "false", onClick: () => (all.value = !all.value) },
        all.value ? "Show fewer" : "Add a provider",
      ),
    ),
    all.value ? ul({ class: "cards" }, ...others.map((one) => h(ProviderCard, { key: one.name, one, changed }))) : null,
    all.value && view.chosen ? div({ class: "card block" }, h(OwnServer, { done: changed, use: false })) : null,
  );
}

/** @type {(props: { one: ProviderView, changed: () => Promise<void> }) => Child} */
function ProviderCard({ one, changed }) {
  const open = useSignal(false);
  const result = useSignal(/** @type {ProviderResult | null} */ (null));
  const test = async () => {
    result.value = await post("/web/models/providers", { provider: one.name });
  };
  return li(
    { class: "card block" },
    div(
      { class: "inline spread" },
      div(
        { class: "grow" },
        p({ class: "card-title" }, one.title, one.running ? span({ class: "chip" }, "Running") : null),
        p({ class: "caption" }, keyState(one)),
      ),
      div(
        { class: "actions-row end" },
        one.key || one.running || one.own
          ? h(ActionButton, { label: "Test", name: `Test ${one.title}`, onRun: test })
          : null,
        one.key_name && one.key_source !== "environment"
          ? button(
            {
              type: "button",
              "aria-expanded": open.value ? "true" : "false",
              "aria-label": `${one.key ? "Change" : "Add"} the key of ${one.title}`,
              onClick: () => (open.value = !open.value),
            },
            one.key ? "Change key" : "Add key",
          )
          : null,
        one.key_source === "file"
          ? h(ActionButton, {
            class: "danger",
            label: "Remove key",
            confirm: "Remove for good?",
            name: `Remove the key of ${one.title}`,
            onRun: async () => {
              await request("DELETE", `/web/models/keys/${one.key_name}`);
              await changed();
            },
          })
          : null,
      ),
    ),
    result.value
      ? p({ class: `notice ${result.value.outcome === "right" ? "" : "error"}`, role: "status" }, result.value.sentence)
      : null,
    open.value
      ? h(KeyForm, {
        provider: one,
        use: false,
        done: async () => {
          open.value = false;
          await changed();
        },
      })
      : null,
  );
}

/** @type {(one: ProviderView) => string} */
function keyState(one) {
  if (one.key) {
    const end = one.key.replaceAll("*", "");
    return `Key set${end ? `, ends with …${end}` : ""}${
      one.key_source === "environment" ? ", from the environment" : ""
    }`;
  }
  if (one.local) return one.running ? `${one.models} models at ${one.base_url}` : `Not running at ${one.base_url}`;
  return one.key_name ? `No key (${one.key_name})` : one.base_url;
}
