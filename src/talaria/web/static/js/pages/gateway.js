/**
 * Gateway: processes, networks, undelivered messages, and running handoffs.
 * @module
 */
import { h } from "../../vendor/preact.js";
import { post, request } from "../server.js";
import { code, div, heading, li, p, section, span, table, tbody, td, th, thead, tr, ul } from "../elements.js";
import { ActionButton } from "./controls.js";
import { emptyState, failureNotice, PageFrame, useLive } from "./frame.js";
import { conversationLink, moment, stateChip, surfaceLabel } from "./parts.js";

/** @import { Child } from "../../vendor/preact.d.ts" */
/** @import { GatewayView, OutboxView } from "../wire.d.ts" */

/** @type {(props: object) => Child} */
export function Page() {
  const { data, failure, reload } = /** @type {import("./frame.js").Loaded<GatewayView>} */ (
    useLive("/web/gateway", "gateway")
  );
  const view = data.value;
  return h(
    PageFrame,
    {
      title: "Gateway",
      wide: true,
      actions: view?.workers.length
        ? h(ActionButton, {
          class: "danger quiet",
          label: "Restart",
          confirm: "Restart the gateway?",
          onRun: () => post("/web/gateway/restart", {}),
        })
        : null,
    },
    failureNotice(failure.value),
    view ? content(view, reload) : null,
  );
}

/** @type {(view: GatewayView, reload: () => Promise<void>) => Child[]} */
function content(view, reload) {
  return [
    view.workers.length
      ? ul({ key: "workers", class: "cards" }, ...view.workers.map(workerCard))
      : emptyState("No gateway is running.", p(null, "Start one with ", code(null, "talaria gateway start"), ".")),
    section(
      { key: "outbox", class: "work-stack", "aria-label": "Undelivered messages" },
      heading(2, { class: "section-title" }, "Undelivered messages"),
      view.outbox.length
        ? ul({ class: "cards" }, ...view.outbox.map((item) => outboxCard(item, reload)))
        : p({ class: "caption" }, "All messages have been delivered."),
    ),
    view.handoffs.length
      ? section(
        { key: "handoffs", class: "work-stack", "aria-label": "Running handoffs" },
        heading(2, { class: "section-title" }, "Running handoffs"),
        ul(
          { class: "rows work-panel" },
          ...view.handoffs.map((one) =>
            li(
              { key: one.session_id },
              span({ class: "row-text" }, conversationLink(one.session_id, one.title)),
              span({ class: "caption" }, `to ${surfaceLabel(one.platform)}`),
            )
          ),
        ),
      )
      : null,
  ];
}

/** @type {(worker: GatewayView["workers"][number]) => Child} */
function workerCard(worker) {
  return li(
    { key: worker.worker, class: "work-panel work-stack" },
    div(
      { class: "work-head" },
      heading(2, null, `Process ${worker.pid} on ${worker.host}`),
      stateChip("running"),
      span({ class: "caption push" }, `Talaria ${worker.version} · started `, moment(worker.started)),
    ),
    p(
      { class: "caption" },
      `${worker.open_sessions} conversations open · ${worker.turns} turns running · ${worker.waiting} messages waiting · ${worker.undelivered} replies to deliver`,
    ),
    worker.error ? p({ class: "notice error" }, worker.error) : null,
    ...worker.models.map((model) => p({ key: model.name, class: "notice error" }, `${model.name}: ${model.error}`)),
    worker.networks.length ? networkTable(worker) : p({ class: "caption" }, "It serves no chat network."),
  );
}

/** @type {(worker: GatewayView["workers"][number]) => Child} */
function networkTable(worker) {
  return div(
    { class: "table networks", tabIndex: 0, role: "region", "aria-label": "Networks" },
    table(
      null,
      thead(
        null,
        tr(null, ...["Network", "State", "Since", "Received", "Trouble"].map((text) => th({ scope: "col" }, text))),
      ),
      tbody(
        null,
        ...worker.networks.map((network) =>
          tr(
            { key: network.name },
            th({ scope: "row" }, surfaceLabel(network.name)),
            td(null, stateChip(network.state)),
            td(null, network.since ? moment(network.since) : ""),
            td(null, String(network.received)),
            td(null, network.error),
          )
        ),
      ),
    ),
  );
}

/** @type {(item: OutboxView, reload: () => Promise<void>) => Child} */
function outboxCard(item, reload) {
  /** @type {(change: () => Promise<unknown>) => () => Promise<void>} */
  const changing = (change) => async () => {
    await change();
    await reload();
  };
  return li(
    { key: item.id, class: "work-panel work-stack" },
    div(
      { class: "work-head" },
      stateChip(item.state),
      span(null, `${surfaceLabel(item.platform)}, chat ${item.chat}`),
      span(
        { class: "caption push" },
        conversationLink(item.session_id, "Conversation"),
        " · ",
        moment(item.created_at),
      ),
    ),
    p({ class: "clamp" }, item.text),
    item.error
      ? p({ class: "notice error" }, `${item.error}${item.attempts ? ` (${item.attempts} attempts)` : ""}`)
      : null,
    item.state === "sending" ? null : div(
      { class: "button-row" },
      h(ActionButton, { label: "Try again now", onRun: changing(() => post(`/web/outbox/${item.id}/retry`, {})) }),
      h(ActionButton, {
        class: "danger quiet",
        label: "Drop",
        confirm: "Drop this message?",
        onRun: changing(() => request("DELETE", `/web/outbox/${item.id}`)),
      }),
    ),
  );
}
