/**
 * Home: open questions and requests, running turns, goals and the next jobs.
 * @module
 */
import { h } from "../../vendor/preact.js";
import { ApprovalView, QuestionView as QuestionForm } from "../questions.js";
import { post } from "../server.js";
import { div, heading, li, p, pre, section, span, ul } from "../elements.js";
import { me } from "../state.js";
import { formatMoney, formatNumber } from "./format.js";
import { emptyState, failureNotice, PageFrame, useLive } from "./frame.js";
import { bar, conversationLink, link, moment, stat, stateChip, surfaceLabel } from "./parts.js";

/** @import { Child } from "../../vendor/preact.d.ts" */
/** @import { FailedJobView, GoalView, HomeView, JobView, PairingRequestView, QuestionView, RunningTurnView } from "../wire.d.ts" */

/** @type {(props: object) => Child} */
export function Page() {
  const { data, failure, reload } = /** @type {import("./frame.js").Loaded<HomeView>} */ (useLive("/web/home", "home"));
  const view = data.value;
  return h(PageFrame, { title: "Home", wide: true }, failureNotice(failure.value), view ? content(view, reload) : null);
}

/** @type {(view: HomeView, reload: () => Promise<void>) => Child[]} */
function content(view, reload) {
  const waiting = [
    ...view.questions.map((one) => questionCard(one, reload)),
    ...view.pairing.map(pairingCard),
    ...view.failed_jobs.map(failedCard),
  ];
  return [
    statistics(view),
    section(
      { key: "waiting", class: "work-stack", "aria-label": "Waiting for you" },
      heading(2, { class: "section-title" }, "Waiting for you"),
      waiting.length ? ul({ class: "cards" }, ...waiting) : emptyState("Nothing is waiting for you."),
    ),
    div(
      { key: "columns", class: "columns" },
      listPanel("Running now", view.running.map(runningRow), "No turn is running."),
      listPanel("Goals", view.goals.map(goalRow), "No goal is set.", "/goals", "All goals"),
      listPanel("Next jobs", view.next_jobs.map(jobRow), "Nothing is scheduled.", "/schedules", "All jobs"),
      me.value?.owner
        ? listPanel("Networks", view.networks.map(networkRow), gatewayText(view), "/gateway", "Gateway")
        : null,
    ),
  ];
}

/** @type {(view: HomeView) => Child} */
function statistics({ today, running, questions, pairing, failed_jobs: failed, has_gateway: gateway }) {
  const waiting = questions.length + pairing.length + failed.length;
  const cost = today.cost_microdollars || !today.unpriced_calls ? formatMoney(today.cost_microdollars) : "Unknown";
  return div(
    { key: "stats", class: "stats" },
    stat("Waiting for you", String(waiting)),
    stat("Running turns", String(running.length)),
    stat("Spent today", cost, `${formatNumber(today.turns)} turns`),
    stat("Gateway", gateway ? "Running" : "Stopped", gateway ? "" : "Chats and jobs are waiting for it"),
  );
}

/** @type {(view: HomeView) => string} */
const gatewayText = (view) => (view.has_gateway ? "No network is set up." : "No gateway is running.");

/** @type {(question: QuestionView, reload: () => Promise<void>) => Child} */
function questionCard({ id, tool, text, reason, choices, session_id: session, title, source, at }, reload) {
  /** @type {(text: string, reason?: string) => Promise<void>} */
  const onAnswer = async (answer, why = "") => {
    await post(`/web/sessions/${session}/answers/${id}`, { text: answer, reason: why });
    await reload();
  };
  return li(
    { key: id, class: "work-panel work-stack waiting" },
    div(
      { class: "work-head" },
      stateChip("waiting", tool ? "Approval" : "Question"),
      span(null, conversationLink(session, title)),
      span({ class: "caption push" }, `${surfaceLabel(source)} · `, moment(at)),
    ),
    tool
      ? h(ApprovalView, { entry: { id, tool, summary: text, reason, diff: "" }, onAnswer })
      : h(QuestionForm, { entry: { id, question: text, choices }, onAnswer }),
  );
}

/** @type {(one: PairingRequestView) => Child} */
function pairingCard(one) {
  return li(
    { key: `${one.platform}:${one.user_id}`, class: "work-panel work-stack" },
    div(
      { class: "work-head" },
      stateChip("waiting", "Access"),
      span(null, `${one.name || one.user_id} on ${surfaceLabel(one.platform)} wants to talk to the agent.`),
      one.since ? span({ class: "caption push" }, moment(one.since)) : null,
    ),
    p({ class: "caption" }, link("/people", "Open People to decide")),
  );
}

/** @type {(one: FailedJobView) => Child} */
function failedCard(one) {
  return li(
    { key: one.job_id, class: "work-panel work-stack" },
    div(
      { class: "work-head" },
      stateChip(one.state, one.state === "missed" ? "Missed" : "Failed"),
      span(null, link("/schedules", one.name)),
      span({ class: "caption push" }, moment(one.at)),
    ),
    one.output ? pre({ class: "run-output", tabIndex: 0 }, one.output) : null,
  );
}

/** @type {(title: string, rows: Child[], empty: string, to?: string, more?: string) => Child} */
function listPanel(title, rows, empty, to = "", more = "") {
  return section(
    { key: title, class: "work-panel work-stack", "aria-label": title },
    div(
      { class: "work-head" },
      heading(2, null, title),
      to ? span({ class: "caption push" }, link(to, more)) : null,
    ),
    rows.length ? ul({ class: "rows" }, ...rows) : p({ class: "caption" }, empty),
  );
}

/** @type {(one: RunningTurnView) => Child} */
function runningRow(one) {
  return li(
    { key: one.session_id },
    span({ class: "live-dot", "aria-hidden": "true" }),
    span({ class: "row-text" }, conversationLink(one.session_id, one.title)),
    span(
      { class: "caption" },
      `${one.owner ? `${one.owner} · ` : ""}${surfaceLabel(one.source)} · `,
      moment(one.started_at),
    ),
  );
}

/** @type {(goal: GoalView) => Child} */
function goalRow(goal) {
  const [budget] = goal.budgets;
  return li(
    { key: goal.session_id, class: "tall" },
    span({ class: "row-text" }, conversationLink(goal.session_id, goal.goal.split("\n")[0] ?? "")),
    stateChip(goal.state),
    budget ? bar(budget.used / budget.limit, `${budget.used} of ${budget.limit} ${budget.unit}`) : null,
  );
}

/** @type {(job: JobView) => Child} */
const jobRow = (job) =>
  li(
    { key: job.id },
    span({ class: "row-text" }, job.name),
    job.next_at ? span({ class: "caption" }, moment(job.next_at)) : null,
  );

/** @type {(network: HomeView["networks"][number]) => Child} */
const networkRow = (network) =>
  li(
    { key: network.name },
    span(
      { class: "row-text" },
      surfaceLabel(network.name),
      network.error ? span({ class: "caption" }, ` ${network.error}`) : "",
    ),
    stateChip(network.state),
  );
