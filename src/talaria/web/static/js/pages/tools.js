/**
 * Tools, skills, memory, MCP servers and hooks.
 * @module
 */
import { h, useSignal } from "../../vendor/preact.js";
import { details, div, icon, li, p, span, summary, ul } from "../elements.js";
import { post } from "../server.js";
import { attempt, me, toast } from "../state.js";
import { ActionButton, panel, Switch } from "./controls.js";
import { emptyState, failureNotice, PageFrame, useLoaded } from "./frame.js";
import { Hooks } from "./hooks.js";
import { Memory } from "./memory.js";
import { Skills } from "./skills.js";

/** @import { Child } from "../../vendor/preact.d.ts" */
/** @import { McpServerView, McpTest, SwitchedTools, ToolsetState, ToolsView } from "../wire.d.ts" */

/** @type {(props: object) => Child} */
export function Page() {
  return h(
    PageFrame,
    { title: me.value?.owner ? "Tools and memory" : "Memory" },
    me.value?.owner ? h(OwnersTools, {}) : null,
    h(Memory, {}),
  );
}

/** @type {(props: object) => Child} */
function OwnersTools() {
  /** @type {import("./frame.js").Loaded<ToolsView>} */
  const { data, failure, reload } = useLoaded("/web/tools");
  const view = data.value;
  /** @type {(name: string, on: boolean) => Promise<unknown>} */
  const toggle = (name, on) =>
    attempt(async () => {
      /** @type {SwitchedTools} */
      const switched = await post("/web/tools/switch", { names: [name], on });
      if (switched.notes.length) toast.value = switched.notes.join(" ");
      await reload();
    });
  if (!view) return failureNotice(failure.value);
  return div(
    { class: "stack wide-gap" },
    failureNotice(failure.value),
    panel(
      "Toolsets",
      "What new conversations may use. Each tool makes every request a little larger.",
      ul({ class: "cards" }, ...view.toolsets.map((one) => h(ToolsetCard, { key: one.name, one, toggle }))),
    ),
    panel(
      "MCP servers",
      "Programs and services that add tools. Their settings are in the section MCP servers.",
      view.servers.length
        ? ul({ class: "cards" }, ...view.servers.map((one) => h(ServerCard, { key: one.name, one, toggle })))
        : emptyState("No MCP server is configured."),
    ),
    h(Skills, { skills: view.skills, reload }),
    h(Hooks, { hooks: view.hooks, reload }),
  );
}

/** @type {(props: { one: ToolsetState, toggle: (name: string, on: boolean) => Promise<unknown> }) => Child} */
function ToolsetCard({ one, toggle }) {
  const enabled = one.tools.filter((tool) => tool.enabled).length;
  return li(
    { class: "card block" },
    div(
      { class: "inline spread" },
      div(
        { class: "grow" },
        p({ class: "card-title" }, one.name),
        p({ class: "caption" }, one.enabled ? countOf(enabled, one.tools.length) : "Off"),
      ),
      h(Switch, { label: `Toolset ${one.name}`, on: one.enabled, onSwitch: (on) => void toggle(one.name, on) }),
    ),
    details(
      { class: "fold" },
      summary(null, one.tools.map((tool) => tool.name).join(", ")),
      ul(
        { class: "fold-body plain-list" },
        ...one.tools.map((tool) =>
          li(
            { key: tool.name, class: "inline spread" },
            div({ class: "grow" }, p({ class: "row-name mono" }, tool.name), p({ class: "caption" }, tool.does)),
            h(Switch, { label: `Tool ${tool.name}`, on: tool.enabled, onSwitch: (on) => void toggle(tool.name, on) }),
          )
        ),
      ),
    ),
  );
}

/** @type {(enabled: number, all: number) => string} */
const countOf = (enabled, all) => enabled < all ? `${enabled} of ${all} tools` : all === 1 ? "1 tool" : `${all} tools`;

/** @type {(props: { one: McpServerView, toggle: (name: string, on: boolean) => Promise<unknown> }) => Child} */
function ServerCard({ one, toggle }) {
  const result = useSignal(/** @type {McpTest | null} */ (null));
  const shown = result.value;
  return li(
    { class: "card block" },
    div(
      { class: "inline spread" },
      div(
        { class: "grow" },
        p(
          { class: "card-title" },
          one.name,
          shown
            ? span(
              { class: `result ${shown.connected ? "good" : "bad"}` },
              icon(shown.connected ? "check" : "close"),
              shown.connected ? "Connected" : "Not connected",
            )
            : null,
        ),
        p({ class: "caption mono" }, one.target),
      ),
      h(ActionButton, {
        label: "Test",
        name: `Test ${one.name}`,
        onRun: async () => {
          result.value = await post(`/web/mcp/${encodeURIComponent(one.name)}/test`);
        },
      }),
      h(Switch, {
        label: `MCP server ${one.name}`,
        on: one.enabled,
        onSwitch: (on) => void toggle(`mcp.${one.name}`, on),
      }),
    ),
    shown
      ? p({ class: `notice ${shown.connected ? "" : "error"}`, role: "status" }, shown.sentence.replaceAll("`", ""))
      : null,
    shown?.tools.length
      ? ul(
        { class: "plain-list" },
        ...shown.tools.map((tool) =>
          li({ key: tool.name }, p({ class: "row-name mono" }, tool.name), p({ class: "caption" }, tool.about))
        ),
      )
      : null,
  );
}
