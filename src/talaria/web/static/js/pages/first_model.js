/**
 * First setup of a model: a provider, a local server, or the built-in model.
 * @module
 */
import { h, useSignal } from "../../vendor/preact.js";
import { button, div, heading, li, p, ul } from "../elements.js";
import { post } from "../server.js";
import { navigate, toast } from "../state.js";
import { ActionButton, panel } from "./controls.js";
import { KeyForm, OwnServer } from "./providers.js";

/** @import { Child } from "../../vendor/preact.d.ts" */
/** @import { EmbeddedResult, ModelsView, ProviderResult } from "../wire.d.ts" */
/** @import { ModelsProps } from "./providers.js" */

const POPULAR = ["openai", "anthropic", "google", "openrouter"];

/** Three ways to set up the first model. @type {(props: ModelsProps) => Child} */
export function FirstModel({ view, changed }) {
  const local = view.providers.filter((one) => one.local && one.running);
  const done = async () => {
    await changed();
    toast.value = "Ready. Say hello!";
    navigate("/");
  };
  return div(
    { class: "stack" },
    div(
      { class: "first-run" },
      heading(2, null, "Choose a model to begin"),
      p({ class: "caption" }, "Talaria needs a model that answers. You can change it at any time."),
    ),
    div(
      { class: "ways" },
      panel(
        "With a key",
        "A provider runs the model. Create a key on its site and paste it here.",
        h(KeyWay, { view, done }),
      ),
      panel(
        "On this machine",
        "A model server such as Ollama or LM Studio. Nothing leaves your machine.",
        local.length
          ? ul(
            { class: "cards" },
            ...local.map((one) =>
              li(
                { key: one.name, class: "card" },
                div(
                  { class: "grow" },
                  p({ class: "card-title" }, one.title),
                  p({ class: "caption" }, `${one.models} models at ${one.base_url}`),
                ),
                h(ActionButton, {
                  class: "primary",
                  label: "Use it",
                  name: `Use ${one.title}`,
                  onRun: () => setUp({ provider: one.name, use: true }, done),
                }),
              )
            ),
          )
          : p({ class: "caption" }, "No server is running. Start one, then look again."),
        div({ class: "actions-row" }, h(ActionButton, { label: "Look again", onRun: changed })),
        h(OwnServer, { done, use: true }),
      ),
      panel(
        "Built in",
        "A very small model inside Talaria. It needs no key and no network, for simple chat only.",
        h(ActionButton, {
          label: view.embedded === "missing" ? "Install it (130 MB)" : "Use it",
          name: "Use the built-in model",
          onRun: async () => {
            /** @type {EmbeddedResult} */
            const result = await post("/web/models/embedded");
            await changed();
            toast.value = result.sentence;
            navigate("/");
          },
        }),
      ),
    ),
  );
}

/** Form for a provider with a key. @type {(props: { view: ModelsView, done: () => Promise<void> }) => Child} */
function KeyWay({ view, done }) {
  const remote = view.providers.filter((one) => one.key_name && !one.local);
  const popular = POPULAR.flatMap((name) => remote.filter((one) => one.name === name));
  const chosen = useSignal(popular[0]?.name ?? "");
  const all = useSignal(false);
  const shown = all.value ? remote : popular;
  const provider = remote.find((one) => one.name === chosen.value);
  return div(
    { class: "stack" },
    div(
      { class: "choices", role: "group", "aria-label": "Provider" },
      ...shown.map((one) =>
        button(
          {
            key: one.name,
            type: "button",
            "aria-pressed": one.name === chosen.value ? "true" : "false",
            onClick: () => (chosen.value = one.name),
          },
          one.title,
        )
      ),
      all.value
        ? null
        : button({ type: "button", class: "quiet", onClick: () => (all.value = true) }, `All ${remote.length} …`),
    ),
    provider ? h(KeyForm, { key: provider.name, provider, use: true, done }) : null,
  );
}

/** @type {(body: object, done: () => Promise<void>) => Promise<void>} */
async function setUp(body, done) {
  /** @type {ProviderResult} */
  const result = await post("/web/models/providers", body);
  if (result.saved) await done();
  else toast.value = result.sentence;
}
