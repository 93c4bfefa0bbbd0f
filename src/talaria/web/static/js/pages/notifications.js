/**
 * Push notifications of this browser.
 * @module
 */
import { h, useLayoutEffect, useSignal } from "../../vendor/preact.js";
import { button, div, form, input, label, p, span } from "../elements.js";
import { canPush, subscribe, unsubscribe } from "../service_worker.js";
import { post } from "../server.js";
import { attempt } from "../state.js";
import { failureNotice, PageFrame, useLoaded } from "./frame.js";

/** @import { Child, Signal } from "../../vendor/preact.d.ts" */
/** @import { Loaded } from "./frame.js" */
/** @import { PushView } from "../wire.d.ts" */

/** @type {(props: object) => Child} */
export function Page() {
  /** @type {Loaded<PushView>} */
  const { data, failure } = useLoaded("/web/push");
  const push = data.value;
  return h(
    PageFrame,
    { title: "Notifications" },
    failureNotice(failure.value),
    p(
      null,
      "Talaria can notify this browser when something is waiting for you or has arrived, even if no page is open: approvals ",
      "and questions, answers, results of jobs and background work, and people who ask for access.",
    ),
    push ? content(push, data) : null,
  );
}

/** @type {(push: PushView, data: Signal<PushView | null>) => Child} */
function content(push, data) {
  if (!isSecureContext) return p({ class: "notice" }, "Browsers allow notifications only over HTTPS.");
  if (!canPush) {
    return p(
      { class: "notice" },
      "This browser has no push notifications. On an iPhone, add Talaria to the home screen first.",
    );
  }
  if (!push.key) return p({ class: "notice" }, "The server needs the extra “push” to send notifications.");
  return h(Options, { push, data });
}

/** @type {(props: { push: PushView, data: Signal<PushView | null> }) => Child} */
function Options({ push, data }) {
  const shows = useSignal(push.shows_content);
  const from = useSignal(push.quiet_from);
  const to = useSignal(push.quiet_to);
  const busy = useSignal(false);
  const blocked = Notification.permission === "denied";
  useLayoutEffect(() => {
    shows.value = push.shows_content;
    from.value = push.quiet_from;
    to.value = push.quiet_to;
  }, [push]);
  /** @param {() => Promise<PushView>} action */
  const run = async (action) => {
    busy.value = true;
    await attempt(async () => (data.value = await action()));
    busy.value = false;
  };
  const save = () =>
    run(() => subscribe({ shows_content: shows.peek(), quiet_from: from.peek(), quiet_to: to.peek() }));
  return form(
    {
      class: "card push-options",
      onSubmit: (event) => {
        event.preventDefault();
        void save();
      },
    },
    p({ class: "card-title" }, "This browser", push.subscribed ? span({ class: "chip" }, "On") : null),
    blocked ? p({ class: "notice error" }, "Notifications are blocked for this page in the browser's settings.") : null,
    label(
      { class: "check" },
      input({
        type: "checkbox",
        checked: shows.value,
        onChange: (event) => (shows.value = /** @type {HTMLInputElement} */ (event.target).checked),
      }),
      "Show titles and texts; otherwise only that there is news",
    ),
    div({ class: "quiet-hours" }, timeField("quiet-from", "Quiet from", from), timeField("quiet-to", "to", to)),
    div(
      { class: "question-actions" },
      button(
        { type: "submit", class: "primary", disabled: busy.value || blocked },
        push.subscribed ? "Save" : "Turn on",
      ),
      push.subscribed
        ? [
          button(
            { type: "button", disabled: busy.value, onClick: () => void attempt(() => post("/web/push/test")) },
            "Try it",
          ),
          button(
            { type: "button", class: "danger", disabled: busy.value, onClick: () => void run(unsubscribe) },
            "Turn off",
          ),
        ]
        : null,
    ),
  );
}

/** @type {(id: string, text: string, value: Signal<string>) => Child} */
function timeField(id, text, value) {
  return [
    label({ for: id }, text),
    input({
      id,
      type: "time",
      value: value.value,
      onInput: (event) => (value.value = /** @type {HTMLInputElement} */ (event.target).value),
    }),
  ];
}
