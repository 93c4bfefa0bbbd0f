/**
 * Page of the keys of the HTTP API. A new key is shown once.
 * @module
 */
import { h, useSignal } from "../../vendor/preact.js";
import { button, code, div, input, label, li, p, span, ul } from "../elements.js";
import { post, request } from "../server.js";
import { attempt } from "../state.js";
import { ActionButton, panel, plainForm, textField } from "./controls.js";
import { emptyState } from "./frame.js";

/** @import { Child } from "../../vendor/preact.d.ts" */
/** @import { ApiKeyView, CreatedApiKey } from "../wire.d.ts" */

/** @type {Record<string, string>} */
const SCOPES = {
  chat: "talk to the agent as a guest",
  agent: "talk to it as you, with all tools",
  read: "read conversations",
  admin: "everything",
};

/** @type {(props: { keys: ApiKeyView[], scopes: string[], reload: () => Promise<void> }) => Child} */
export function ApiKeys({ keys, scopes, reload }) {
  const created = useSignal(/** @type {CreatedApiKey | null} */ (null));
  return panel(
    "API keys",
    "For programs that call this agent over HTTP.",
    keys.length
      ? ul({ class: "cards" }, ...keys.map((one) => h(KeyCard, { key: one.name, one, reload })))
      : emptyState("There are no API keys."),
    created.value ? h(NewKeyNotice, { created: created.value, onClose: () => (created.value = null) }) : null,
    h(NewKey, {
      scopes,
      onCreated: async (one) => {
        created.value = one;
        await reload();
      },
    }),
  );
}

/** @type {(props: { one: ApiKeyView, reload: () => Promise<void> }) => Child} */
function KeyCard({ one, reload }) {
  return li(
    { class: "card" },
    div(
      { class: "grow" },
      p({ class: "card-title" }, one.name, ...one.scopes.map((scope) => span({ class: "chip" }, scope))),
      p({ class: "caption" }, `Created ${new Date(one.created_at).toLocaleDateString()}`),
    ),
    h(ActionButton, {
      class: "danger",
      label: "Revoke",
      confirm: "Revoke for good?",
      name: `Revoke the key ${one.name}`,
      onRun: async () => {
        await request("DELETE", `/web/api-keys/${encodeURIComponent(one.name)}`);
        await reload();
      },
    }),
  );
}

/** @type {(props: { created: CreatedApiKey, onClose: () => void }) => Child} */
function NewKeyNotice({ created, onClose }) {
  return div(
    { class: "notice secret", role: "status" },
    p(null, `The key ${created.name} is shown only now. Copy it:`),
    code({ class: "copyable" }, created.key),
    div(
      { class: "actions-row" },
      h(ActionButton, { label: "Copy", onRun: () => navigator.clipboard.writeText(created.key) }),
      button({ type: "button", onClick: onClose }, "Done"),
    ),
  );
}

/** @type {(props: { scopes: string[], onCreated: (one: CreatedApiKey) => Promise<void> }) => Child} */
function NewKey({ scopes, onCreated }) {
  const name = useSignal("");
  const chosen = useSignal(["chat"]);
  const create = () =>
    attempt(async () => {
      /** @type {CreatedApiKey} */
      const one = await post("/web/api-keys", { name: name.peek().trim(), scopes: chosen.peek() });
      name.value = "";
      await onCreated(one);
    });
  return plainForm(
    "stack",
    create,
    textField("key-name", "Name of a new key", name.value, (text) => (name.value = text), {
      placeholder: "my-script",
      maxlength: 64,
    }),
    div(
      { class: "checks", role: "group", "aria-label": "What the key allows" },
      ...scopes.map((scope) =>
        label(
          { key: scope, class: "check" },
          input({
            type: "checkbox",
            checked: chosen.value.includes(scope),
            onChange: () => (chosen.value = chosen.peek().includes(scope)
              ? chosen.peek().filter((one) => one !== scope)
              : [...chosen.peek(), scope]),
          }),
          span(null, span({ class: "row-name" }, scope), span({ class: "caption" }, ` ${SCOPES[scope] ?? ""}`)),
        )
      ),
    ),
    div(null, button({ type: "submit", disabled: !name.value.trim() || !chosen.value.length }, "Create key")),
  );
}
