/**
 * Hooks: programs of the owner that run on events. They can be created, edited and switched off here.
 * @module
 */
import { h, useEffect, useSignal } from "../../vendor/preact.js";
import { button, div, label, li, p, span, textarea, ul } from "../elements.js";
import { describe, get, post, request } from "../server.js";
import { attempt, toast } from "../state.js";
import { panel, plainForm, Switch, textField, textOf } from "./controls.js";
import { failureNotice } from "./frame.js";
import { fold } from "./parts.js";

/** @import { Child } from "../../vendor/preact.d.ts" */
/** @import { HookFiles, HookView } from "../wire.d.ts" */

const NOTHING = { manifest: "", handler: "" };
const EXAMPLE = {
  manifest: "description: Lists turns that took long\nevents:\n  - agent:end\n",
  handler: "async def handle(event, facts):\n    pass\n",
};

/** @type {(props: { hooks: HookView[], reload: () => Promise<void> }) => Child} */
export function Hooks({ hooks, reload }) {
  const adding = useSignal(false);
  const name = useSignal("");
  const done = async () => {
    adding.value = false;
    name.value = "";
    await reload();
  };
  return panel(
    "Hooks",
    "Your programs that run on events. Changes apply after a restart of the gateway.",
    ul({ class: "cards" }, ...hooks.map((one) => h(HookCard, { key: one.folder || one.name, one, reload }))),
    adding.value
      ? div(
        { class: "card block stack" },
        textField("hook-name", "Name of the new hook", name.value, (text) => (name.value = text), { maxlength: 64 }),
        h(HookEditor, {
          folder: name.value.trim(),
          before: NOTHING,
          files: EXAMPLE,
          onSaved: done,
          onCancel: () => (adding.value = false),
        }),
      )
      : div(
        { class: "actions-row" },
        button({ type: "button", onClick: () => (adding.value = true) }, "New hook"),
      ),
  );
}

/** @type {(props: { one: HookView, reload: () => Promise<void> }) => Child} */
function HookCard({ one, reload }) {
  /** @param {boolean} on */
  const toggle = (on) =>
    attempt(async () => {
      await post(`/web/hooks/${encodeURIComponent(one.folder)}/switch`, { on });
      await reload();
    });
  return li(
    { class: "card block" },
    div(
      { class: "inline spread" },
      div(
        { class: "grow" },
        p({ class: "card-title" }, one.name, span({ class: `chip ${one.state === "broken" ? "bad" : ""}` }, one.state)),
        one.description ? p({ class: "caption" }, one.description) : null,
        one.events.length ? p({ class: "caption mono" }, `${one.events.join(" ")} → ${one.handler}`) : null,
        one.problem ? p({ class: "notice error" }, one.problem.replaceAll("`", "")) : null,
      ),
      one.folder && one.state !== "broken"
        ? h(Switch, { label: `Hook ${one.name}`, on: one.state === "on", onSwitch: (on) => void toggle(on) })
        : null,
    ),
    one.folder ? h(HookFold, { one, reload }) : null,
  );
}

/** Files of a hook, loaded when they are expanded. @type {(props: { one: HookView, reload: () => Promise<void> }) => Child} */
function HookFold({ one, reload }) {
  const open = useSignal(false);
  const files = useSignal(/** @type {HookFiles | null} */ (null));
  useEffect(() => {
    if (!open.value) return;
    void attempt(async () => (files.value = await get(`/web/hooks/${encodeURIComponent(one.folder)}`)));
  }, [open.value, one.state]);
  const close = () => {
    open.value = false;
    files.value = null;
  };
  return fold(
    open,
    [span({ class: "offscreen" }, `${one.name}: `), "Files"],
    files.value
      ? h(HookEditor, {
        key: files.value.manifest + files.value.handler,
        folder: one.folder,
        before: files.value,
        files: files.value,
        onSaved: async () => {
          close();
          await reload();
        },
        onCancel: close,
      })
      : null,
  );
}

/** @type {(props: { folder: string, before: HookFiles, files: HookFiles, onSaved: () => Promise<void>, onCancel: () => void }) => Child} */
function HookEditor({ folder, before, files, onSaved, onCancel }) {
  const manifest = useSignal(files.manifest);
  const handler = useSignal(files.handler);
  const failure = useSignal("");
  const isChanged = manifest.value !== before.manifest || handler.value !== before.handler;
  const save = async () => {
    try {
      await request("PUT", `/web/hooks/${encodeURIComponent(folder)}`, {
        files: { manifest: manifest.peek(), handler: handler.peek() },
        before,
      });
      toast.value = `Saved ${folder}. Restart the gateway to use it.`;
      await onSaved();
    } catch (error) {
      failure.value = describe(error).replaceAll("`", "");
    }
  };
  /** @type {(id: string, text: string, typed: { value: string }, rows: number) => Child} */
  const area = (id, text, typed, rows) =>
    div(
      { class: "field" },
      label({ for: `${id}-${folder}` }, text),
      textarea({
        id: `${id}-${folder}`,
        class: "mono",
        rows,
        spellcheck: false,
        value: typed.value,
        onInput: (event) => (typed.value = textOf(event)),
      }),
    );
  return plainForm(
    "fold-body stack",
    save,
    failureNotice(failure.value),
    area("manifest", "HOOK.yaml", manifest, 7),
    area("handler", "handler.py; empty if HOOK.yaml has a line run:", handler, 10),
    div(
      { class: "actions-row" },
      button({ type: "submit", class: "primary", disabled: !folder || !isChanged }, "Save"),
      button({ type: "button", onClick: onCancel }, "Cancel"),
    ),
  );
}
