/**
 * Models and keys: the current model and where it is set, other usable models, providers and fallbacks.
 * @module
 */
import { h, useEffect, useSignal } from "../../vendor/preact.js";
import { div, icon, input, label, p, span, table, tbody, td, th, thead, tr } from "../elements.js";
import { describe, get, post } from "../server.js";
import { conversation, me, navigateFromHere, path, toast } from "../state.js";
import { ActionButton, ListEditor, panel, textOf } from "./controls.js";
import { emptyState, failureNotice, PageFrame, useLoaded } from "./frame.js";
import { FirstModel } from "./first_model.js";
import { Providers } from "./providers.js";
import { useSettings } from "./settings_data.js";

/** @import { Child } from "../../vendor/preact.d.ts" */
/** @import { CommandReply, ModelsView, ModelTest, ModelView, UsableModels } from "../wire.d.ts" */

const MOST = 60;

/** @type {(props: object) => Child} */
export function Page() {
  /** @type {import("./frame.js").Loaded<ModelsView>} */
  const { data, failure, reload } = useLoaded("/web/models");
  const view = data.value;
  const changed = async () => {
    await reload();
    if (me.peek()) me.value = await get("/web/me");
  };
  return h(
    PageFrame,
    { title: "Models", wide: true },
    failureNotice(failure.value),
    view ? (view.chosen ? h(Answering, { view }) : h(FirstModel, { view, changed })) : null,
    view?.chosen ? h(UsableList, { view, changed }) : null,
    view ? h(Providers, { view, changed }) : null,
    view ? h(Fallbacks, {}) : null,
  );
}

/** @type {(props: { view: ModelsView }) => Child} */
function Answering({ view }) {
  const chosen = view.chosen;
  if (!chosen) return null;
  const { model } = chosen;
  return panel(
    "Answers now",
    null,
    div(
      { class: "card block hero" },
      p({ class: "hero-name" }, model.model),
      p({ class: "caption" }, `${model.provider} · ${facts(model)}`),
      p(null, chosen.why.replaceAll("`", "")),
      chosen.limits ? p({ class: "notice" }, chosen.limits) : null,
      h(TestButton, { name: `${model.provider}:${model.model}` }),
    ),
  );
}

/** Button that sends a small request to a model. @type {(props: { name: string, quiet?: boolean }) => Child} */
export function TestButton({ name, quiet = false }) {
  const result = useSignal(/** @type {ModelTest | null} */ (null));
  const shown = result.value;
  return div(
    { class: "inline" },
    h(ActionButton, {
      class: quiet ? "quiet" : "",
      label: "Test",
      name: `Test ${name}`,
      onRun: async () => {
        result.value = await post("/web/models/test", { model: name });
      },
    }),
    shown
      ? span(
        { class: `result ${shown.answers ? "good" : "bad"}`, role: "status" },
        icon(shown.answers ? "check" : "close"),
        shown.answers ? `Answers in ${(shown.milliseconds / 1000).toFixed(1)} s` : shown.sentence.replaceAll("`", ""),
      )
      : null,
  );
}

/** @type {(props: { view: ModelsView, changed: () => Promise<void> }) => Child} */
function UsableList({ view, changed }) {
  const usable = useSignal(/** @type {UsableModels | null} */ (null));
  const failure = useSignal("");
  const query = useSignal("");
  const session = /^\/models\/for\/([\w-]+)$/.exec(path.value)?.[1] ?? "";
  useEffect(() => {
    get("/web/models/usable").then(
      (found) => (usable.value = /** @type {UsableModels} */ (found)),
      (error) => (failure.value = describe(error)),
    );
  }, []);
  const words = query.value.toLowerCase().split(/\s+/).filter(Boolean);
  const all = (usable.value?.models ?? []).filter((one) =>
    words.every((word) => `${one.provider}:${one.model}`.toLowerCase().includes(word))
  );
  return panel(
    "Models you can use",
    "From the providers below that have a key or are running.",
    failureNotice(failure.value),
    div(
      { class: "search flat" },
      icon("search"),
      label({ class: "offscreen", for: "model-search" }, "Search models"),
      input({
        id: "model-search",
        type: "search",
        placeholder: "Search models",
        value: query.value,
        onInput: (event) => (query.value = textOf(event)),
      }),
    ),
    usable.value
      ? all.length
        ? div(
          { class: "table", role: "region", "aria-label": "Models", tabIndex: 0 },
          table(
            { class: "models" },
            thead(
              null,
              tr(
                null,
                ...["Model", "Context", "Price per million tokens", ""].map((text) =>
                  th({ scope: "col" }, text || span({ class: "offscreen" }, "Choose"))
                ),
              ),
            ),
            tbody(
              null,
              ...all.slice(0, MOST).map((one) =>
                h(ModelRow, { key: `${one.provider}:${one.model}`, one, view, session, changed })
              ),
            ),
          ),
        )
        : emptyState("No model matches.")
      : p({ class: "caption", role: "status" }, "Asking the providers …"),
    all.length > MOST ? p({ class: "caption" }, `${all.length - MOST} more. Search to find them.`) : null,
    ...(usable.value?.problems ?? []).map((text) => p({ class: "notice error" }, text.replaceAll("`", ""))),
  );
}

/** @type {(props: { one: ModelView, view: ModelsView, session: string, changed: () => Promise<void> }) => Child} */
function ModelRow({ one, view, session, changed }) {
  const name = `${one.provider}:${one.model}`;
  const chosen = view.chosen?.model;
  const isChosen = chosen?.provider === one.provider && chosen.model === one.model;
  const choose = async () => {
    await post("/web/models/default", { model: name });
    toast.value = `${one.model} answers in new conversations.`;
    await changed();
  };
  const useHere = async () => {
    const go = navigateFromHere();
    /** @type {CommandReply} */
    const reply = await post(`/web/sessions/${session}/commands`, { text: `/model ${name}` });
    toast.value = reply.shown.join(" ").replaceAll("`", "");
    go(`/c/${session}`);
    if (conversation.peek()?.id === session) await conversation.peek()?.refresh();
  };
  return tr(
    null,
    td(
      null,
      span({ class: "row-name" }, one.model),
      span({ class: "caption block" }, [one.provider, ...abilities(one)].join(" · ")),
    ),
    td({ class: "right" }, tokens(one.context)),
    td({ class: "right" }, price(one)),
    td(
      null,
      div(
        { class: "actions-row end" },
        session
          ? h(ActionButton, { label: "Use here", name: `Use ${name} in this conversation`, onRun: useHere })
          : null,
        isChosen
          ? span({ class: "chip" }, "Default")
          : h(ActionButton, { label: "Make default", name: `Make ${name} the default`, onRun: choose }),
      ),
    ),
  );
}

/** @type {(props: object) => Child} */
function Fallbacks() {
  const settings = useSettings();
  if (!settings.view.value) return null;
  return panel(
    "Fallbacks",
    "Tried in this order when the previous model fails.",
    h(ListEditor, {
      id: "fallbacks",
      label: "Fallback models",
      about: settings.faults.value.get("model.fallbacks")?.replaceAll("`", ""),
      placeholder: "provider:model",
      values: settings.list("model.fallbacks"),
      onChange: (values) => settings.save({ "model.fallbacks": values }),
    }),
  );
}

/** @type {(one: ModelView) => string[]} */
const abilities = (one) => [
  ...(one.tools ? [] : ["no tools"]),
  ...(one.images ? ["sees pictures"] : []),
  ...(one.reasoning ? ["reasons"] : []),
  ...(one.local ? ["on this machine"] : []),
];

/** @type {(count: number) => string} */
export const tokens = (
  count,
) => (count >= 1_000_000 ? `${+(count / 1_000_000).toFixed(1)} M` : `${Math.round(count / 1000)} k`);

/** @type {(one: ModelView) => string} */
export const price = (one) =>
  one.input_price || one.output_price
    ? `$${one.input_price} in, $${one.output_price} out`
    : one.free
    ? "free"
    : "price unknown";

/** @type {(one: ModelView) => string} */
const facts = (one) => [`${tokens(one.context)} tokens of context`, price(one), ...abilities(one)].join(" · ");
