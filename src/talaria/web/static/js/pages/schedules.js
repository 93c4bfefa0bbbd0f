/**
 * Schedules: jobs with their next runs and history; created in plain English with a preview.
 * @module
 */
import { h, useEffect, useRef, useSignal } from "../../vendor/preact.js";
import { get, post, request } from "../server.js";
import { button, code, div, heading, li, ol, p, pre, span, ul } from "../elements.js";
import { attempt, me } from "../state.js";
import { acceptInOrder } from "./request_order.js";
import { ActionButton } from "./controls.js";
import { formatDuration } from "./format.js";
import { CardPage, emptyState, reloadAfter, useLive } from "./frame.js";
import { JobForm } from "./job_form.js";
import { conversationLink, fold, moment, stateChip } from "./parts.js";

/** @import { Child } from "../../vendor/preact.d.ts" */
/** @import { JobView, RunView, SchedulesView } from "../wire.d.ts" */

const STATES = { waiting: "Scheduled", paused: "Paused", over: "Over" };
/** @type {Record<string, string>} */
const TARGETS = { origin: "the conversation that created it", home: "the home chat", nowhere: "nobody" };

/** @type {(props: object) => Child} */
export function Page() {
  const { data, failure, reload } = /** @type {import("./frame.js").Loaded<SchedulesView>} */ (
    useLive("/web/schedules", "schedules")
  );
  const view = data.value;
  return h(CardPage, {
    title: "Schedules",
    add: "New job",
    failure: failure.value,
    form: (onClose) => h(JobForm, { job: null, onDone: reloadAfter(reload)(onClose), onCancel: onClose }),
    content: (onOpen) => [
      view && !view.has_gateway && view.jobs.length
        ? p(
          { class: "notice" },
          "No gateway is running, so jobs don't start by themselves. Start one with ",
          code(null, "talaria gateway start"),
          ".",
        )
        : null,
      view && !view.jobs.length && onOpen
        ? emptyState(
          "Nothing is scheduled. Say when and what, for example “every weekday 9:00 summarise my inbox”.",
          button({ type: "button", onClick: onOpen }, "Schedule something"),
        )
        : null,
      view?.jobs.length
        ? ul({ class: "cards" }, ...sortJobs(view.jobs).map((job) => h(JobCard, { key: job.id, job, reload })))
        : null,
    ],
  });
}

/** Sort jobs: by next run, finished ones last. @type {(jobs: JobView[]) => JobView[]} */
function sortJobs(jobs) {
  const order = { waiting: 0, paused: 1, over: 2 };
  return [...jobs].sort((one, other) =>
    order[one.state] - order[other.state] || (one.next_at ?? "").localeCompare(other.next_at ?? "")
  );
}

/** @type {(props: { job: JobView, reload: () => Promise<void> }) => Child} */
function JobCard({ job, reload }) {
  const editing = useSignal(false);
  const address = `/web/schedules/${job.id}`;
  const changing = reloadAfter(reload);
  if (editing.value) {
    return li(
      null,
      h(JobForm, {
        job,
        onDone: changing(() => (editing.value = false)),
        onCancel: () => (editing.value = false),
      }),
    );
  }
  return li(
    { class: "work-panel work-stack" },
    div(
      { class: "work-head" },
      heading(2, null, job.name),
      stateChip(job.state, STATES[job.state]),
      me.value?.owner && job.owner ? span({ class: "chip" }, job.owner) : null,
    ),
    ul(
      { class: "facts" },
      li(null, span({ class: "fact-name" }, "When"), span(null, `${job.schedule} (${job.zone})`)),
      job.next_at && job.state === "waiting"
        ? li(
          null,
          span({ class: "fact-name" }, "Next run"),
          span(null, moment(job.next_at), span({ class: "caption" }, ` · ${job.next_told}`)),
        )
        : null,
      job.prompt && job.prompt !== job.name
        ? li(null, span({ class: "fact-name" }, "Prompt"), span({ class: "clamp" }, job.prompt))
        : null,
      job.script ? li(null, span({ class: "fact-name" }, "Script"), code(null, job.script)) : null,
      job.model ? li(null, span({ class: "fact-name" }, "Model"), span(null, job.model)) : null,
      li(
        null,
        span({ class: "fact-name" }, "Reports to"),
        span(null, job.deliver.map((target) => TARGETS[target] ?? target).join(", ")),
      ),
      job.times_left !== null
        ? li(null, span({ class: "fact-name" }, "Runs left"), span(null, String(job.times_left)))
        : null,
    ),
    h(Runs, { job }),
    div(
      { class: "button-row" },
      h(ActionButton, { label: "Run now", onRun: changing(() => post(`${address}/run`, {})) }),
      job.state !== "over"
        ? h(ActionButton, {
          label: job.state === "paused" ? "Resume" : "Pause",
          onRun: changing(() => request("PATCH", address, { paused: job.state !== "paused" })),
        })
        : null,
      button({ type: "button", class: "quiet", onClick: () => (editing.value = true) }, "Edit"),
      h(ActionButton, {
        class: "danger quiet",
        label: "Delete",
        confirm: "Delete with its history?",
        onRun: changing(() => request("DELETE", address)),
      }),
    ),
  );
}

/** Latest runs, loaded when they are expanded and whenever the job changes. @type {(props: { job: JobView }) => Child} */
function Runs({ job }) {
  const open = useSignal(false);
  const found = useSignal(/** @type {RunView[] | null} */ (null));
  const startRequest = useRef(acceptInOrder()).current;
  useEffect(() => {
    const isNewer = startRequest();
    if (!open.value) return;
    void attempt(async () => {
      /** @type {{ runs: RunView[] }} */
      const { runs } = await get(`/web/schedules/${job.id}/runs`);
      if (isNewer()) found.value = runs;
    });
  }, [open.value, job]);
  const body = found.value?.length
    ? ol({ class: "runs" }, ...found.value.map(runView))
    : p({ class: "fold-body caption" }, "It hasn't run yet.");
  return fold(
    open,
    ["History"],
    found.value ? body : null,
  );
}

/** @type {(run: RunView) => Child} */
function runView(run) {
  const seconds = run.ended_at ? (Date.parse(run.ended_at) - Date.parse(run.started_at)) / 1000 : null;
  return li(
    { key: run.due_at },
    div(
      { class: "work-head" },
      stateChip(run.state),
      span(null, moment(run.due_at)),
      seconds === null ? null : span({ class: "caption" }, formatDuration(seconds)),
      run.session_id
        ? span({ class: "caption push" }, conversationLink(run.session_id, "Open the conversation"))
        : null,
    ),
    run.output ? pre({ class: "run-output", tabIndex: 0 }, run.output) : null,
  );
}
