/**
 * Background work: processes with their live output, and delegated tasks as a tree; both can be stopped.
 * @module
 */
import { h, useEffect, useRef, useSignal } from "../../vendor/preact.js";
import { get, post } from "../server.js";
import { code, div, heading, li, p, pre, section, span, ul } from "../elements.js";
import { attempt, pageChange } from "../state.js";
import { oneAtATime } from "./request_order.js";
import { ActionButton } from "./controls.js";
import { formatDuration } from "./format.js";
import { emptyState, failureNotice, PageFrame, useLive } from "./frame.js";
import { conversationLink, fold, moment, stateChip } from "./parts.js";

/** @import { Child } from "../../vendor/preact.d.ts" */
/** @import { BackgroundView, ChildTaskView, DelegationView, OutputPage, ProcessView } from "../wire.d.ts" */

const MOST_OUTPUT = 200_000;

/** @type {(props: object) => Child} */
export function Page() {
  const { data, failure, reload } = /** @type {import("./frame.js").Loaded<BackgroundView>} */ (
    useLive("/web/background", "background")
  );
  const view = data.value;
  return h(
    PageFrame,
    { title: "Background" },
    failureNotice(failure.value),
    view && !view.processes.length && !view.delegations.length
      ? emptyState("Nothing runs in the background. Ask the agent to start a server, or to delegate a task.")
      : null,
    view?.processes.length
      ? section(
        { class: "work-stack", "aria-label": "Processes" },
        heading(2, { class: "section-title" }, "Processes"),
        ul(
          { class: "cards" },
          ...view.processes.map((process) => h(ProcessCard, { key: process.id, process, reload })),
        ),
      )
      : null,
    view?.delegations.length
      ? section(
        { class: "work-stack", "aria-label": "Delegated tasks" },
        heading(2, { class: "section-title" }, "Delegated tasks"),
        ul(
          { class: "cards" },
          ...view.delegations.map((one) =>
            li({ key: one.session_id + one.handle, class: "work-panel work-stack" }, delegationView(one, reload))
          ),
        ),
      )
      : null,
  );
}

/** @type {(props: { process: ProcessView, reload: () => Promise<void> }) => Child} */
function ProcessCard({ process, reload }) {
  const end = process.ended_at ? Date.parse(process.ended_at) : Date.now();
  return li(
    { class: "work-panel work-stack" },
    div(
      { class: "work-head" },
      stateChip(process.state, process.stopping ? "stopping" : process.label),
      span({ class: "caption" }, formatDuration((end - Date.parse(process.begun_at)) / 1000)),
      span(
        { class: "caption push" },
        conversationLink(process.session_id, process.title),
        ` · ${process.host} · `,
        moment(process.begun_at),
      ),
    ),
    code({ class: "command" }, process.command),
    h(Output, { process }),
    process.ended_at || process.stopping ? null : div(
      { class: "button-row" },
      h(ActionButton, {
        class: "danger quiet",
        label: "Stop",
        confirm: "Stop it and all it started?",
        onRun: async () => {
          await post(`/web/processes/${process.id}/stop`, {});
          await reload();
        },
      }),
    ),
  );
}

/** Output of a process, followed while it is expanded. @type {(props: { process: ProcessView }) => Child} */
function Output({ process }) {
  const open = useSignal(false);
  const text = useSignal("");
  const end = useRef(-1);
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const { page, count } = pageChange.value;
  const read = useRef(oneAtATime(async () => {
    /** @type {OutputPage} */
    const found = await get(`/web/processes/${process.id}/output?after=${end.current}`);
    const before = end.current === found.start ? text.peek() : "";
    end.current = found.end;
    if (found.text || !before) text.value = `${before}${found.text}`.slice(-MOST_OUTPUT);
  })).current;
  useEffect(() => {
    if (open.value) void attempt(read);
  }, [open.value, page === "background" ? count : 0]);
  useEffect(() => {
    if (box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [text.value]);
  return fold(
    open,
    [span({ class: "tool-summary" }, process.last_line || "Output")],
    open.value
      ? pre({ class: "output", ref: box, tabIndex: 0, "aria-label": "Output" }, text.value || "No output yet.")
      : null,
  );
}

/** @type {(one: DelegationView, reload: () => Promise<void>) => Child[]} */
function delegationView(one, reload) {
  const open = one.children.some((child) => child.state === "open");
  return [
    div(
      { key: "head", class: "work-head" },
      stateChip(open ? "running" : "done", one.stopped && open ? "stopping" : open ? "running" : "done"),
      span(null, one.handle ? `Background task ${one.handle}` : "Tasks of a running turn"),
      span({ class: "caption push" }, conversationLink(one.session_id, one.title), " · ", moment(one.began)),
    ),
    ul({ key: "tree", class: "task-tree" }, ...one.children.map((child, index) => childView(child, index, reload))),
    one.handle && open && !one.stopped
      ? div(
        { key: "actions", class: "button-row" },
        h(ActionButton, {
          class: "danger quiet",
          label: "Stop",
          confirm: "Stop these tasks?",
          onRun: async () => {
            await post(`/web/sessions/${one.session_id}/tasks/${one.handle}/stop`, {});
            await reload();
          },
        }),
      )
      : null,
  ];
}

/** @type {(child: ChildTaskView, index: number, reload: () => Promise<void>) => Child} */
function childView(child, index, reload) {
  return li(
    { key: index },
    div(
      { class: "work-head" },
      stateChip(child.state === "open" ? "running" : child.state, child.state === "open" ? "running" : child.state),
      span({ class: "clamp" }, child.session_id ? conversationLink(child.session_id, child.goal) : child.goal),
    ),
    child.text ? p({ class: "caption clamp" }, child.text) : null,
    child.delegations.length
      ? ul(
        { class: "task-tree" },
        ...child.delegations.map((one) => li({ key: one.handle }, delegationView(one, reload))),
      )
      : null,
  );
}
