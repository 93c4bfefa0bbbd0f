/**
 * Chat page: header, transcript, banner and composer of a conversation.
 * @module
 */
import { h, useEffect, useLayoutEffect, useRef, useSignal } from "../vendor/preact.js";
import { Composer } from "./composer.js";
import { a, button, div, header, heading, icon, lazy, li, main, ol, p, progress, span } from "./elements.js";
import { EntryView, messageView, queuedView } from "./entries.js";
import { renderMarkdown } from "./markdown.js";
import {
  attempt,
  choices,
  conversation,
  drawerOpen,
  firstMessage,
  followLink,
  me,
  overlay,
  runCommand,
} from "./state.js";
import { isOpenQuestion } from "./turn.js";

/** @import { Child, VNode } from "../vendor/preact.d.ts" */
/** @import { Conversation } from "./conversation.js" */

const NEAR_END = 80;
const LOADING_MILLISECONDS = 1500;

/** @type {(props: object) => Child} */
export function ChatPage() {
  const shown = conversation.value;
  const notes = useSignal(/** @type {string[]} */ ([]));
  const title = shown?.detail.value?.title;
  useEffect(() => void (document.title = title ? `${title} · Talaria` : "Talaria"), [title]);
  /** Show the output of a command in its conversation, also if the command has started that conversation. @param {string[]} more */
  const addNotes = (more) => {
    const target = shown ?? conversation.peek();
    if (target) target.notes.value = [...target.notes.peek(), ...more].slice(-20);
    else notes.value = [...notes.peek(), ...more].slice(-20);
  };
  return main(
    { class: "chat", id: "main" },
    h(ChatHeader, { shown }),
    shown
      ? h(Transcript, { key: shown.id, conversation: shown })
      : h(Welcome, { notes: notes.value, message: firstMessage.value }),
    div(
      { class: "chat-foot" },
      shown ? h(Banner, { conversation: shown }) : null,
      h(Composer, { key: shown?.id ?? "", id: shown?.id ?? "", onNotes: addNotes }),
    ),
  );
}

/** Menu of the conversation, loaded when it is first opened. */
const menus = lazy(() => import("./chat_menu.js"));

/** @type {(props: { shown: Conversation | null }) => Child} */
function ChatHeader({ shown }) {
  const open = useSignal(false);
  const detail = shown?.detail.value;
  const model = shown?.turn.value?.model || detail?.model || me.value?.model || "";
  const chosen = choices.value.get("model")?.slice("/model ".length);
  const canChoose = me.value?.owner && !detail?.elsewhere;
  const effort = detail?.effort || choices.value.get("reasoning")?.slice("/reasoning ".length);
  const label = [(shown ? "" : chosen) || model, effort].filter(Boolean).join(" · ");
  return header(
    { class: "chat-head" },
    button(
      {
        class: "quiet only-small",
        type: "button",
        "aria-label": "Conversations",
        onClick: () => (drawerOpen.value = true),
      },
      icon("menu"),
    ),
    heading(1, null, shown ? shown.title || "Conversation" : "New conversation"),
    shown ? meter(shown) : null,
    canChoose
      ? button(
        {
          class: "quiet model",
          type: "button",
          title: "Model, effort and personality",
          onClick: () => (overlay.value = { kind: "choose", command: "model", title: "Model" }),
        },
        label || "Model",
      )
      : span({ class: "model", title: "Model" }, label),
    shown
      ? button(
        {
          class: "quiet",
          type: "button",
          "aria-label": "Conversation menu",
          "aria-expanded": open.value ? "true" : "false",
          onClick: () => (open.value = !open.value),
        },
        icon("more"),
      )
      : null,
    shown && open.value
      ? menus(({ ChatMenu }) => h(ChatMenu, { conversation: shown, onClose: () => (open.value = false) }))
      : null,
  );
}

/** Usage of the context window, and cost of the conversation. @type {(shown: Conversation) => Child} */
function meter(shown) {
  const { detail: { value: detail }, turn: { value: turn } } = shown;
  const limit = turn?.contextLimit || detail?.context_limit || 0;
  const used = turn?.context || detail?.context || 0;
  const cost = detail?.cost_microdollars ?? 0;
  if (!used && !cost) return null;
  const percent = limit ? Math.round((100 * used) / limit) : 0;
  const title = limit
    ? `${used.toLocaleString("en")} of ${limit.toLocaleString("en")} tokens of the context are used (${percent} %)`
    : `${used.toLocaleString("en")} tokens of the context are used`;
  return span(
    { class: "meter", title },
    limit ? progress({ max: limit, value: Math.min(used, limit), "aria-label": title }) : null,
    cost ? span({ title: "Cost of this conversation" }, `$${(cost / 1e6).toFixed(cost < 1e6 ? 3 : 2)}`) : null,
  );
}

/** Welcome screen; `message` is the first message of a conversation that is being created. @type {(props: { notes: string[], message: string }) => Child} */
function Welcome({ notes, message }) {
  return div(
    { class: "transcript" },
    notes.length || message
      ? ol({ class: "entries" }, ...notes.map((text) => noteView(text)), message ? messageView(message) : null)
      : me.value?.model
      ? div({ class: "welcome" }, heading(2, null, greeting()), p(null, "What would you like to do?"))
      : noModel(),
  );
}

/** Welcome screen while no model is set up. */
function noModel() {
  return div(
    { class: "welcome" },
    heading(2, null, "Welcome to Talaria"),
    me.value?.owner
      ? p(null, "Choose a model first: a provider with a key, a server on this machine, or the built-in one.")
      : p(null, "No model is set up yet. Ask the owner of this agent."),
    me.value?.owner
      ? p(
        null,
        a(
          { class: "button primary", href: "/models", onClick: (event) => followLink(event, "/models") },
          "Set up a model",
        ),
      )
      : null,
  );
}

function greeting() {
  const hour = new Date().getHours();
  return hour < 5 ? "Good evening" : hour < 12 ? "Good morning" : hour < 18 ? "Good afternoon" : "Good evening";
}

/** @type {(text: string) => VNode} */
function noteView(text) {
  return li(null, div({ class: "entry note markdown" }, ...renderMarkdown(text)));
}

/** @type {(props: { conversation: Conversation }) => Child} */
function Transcript({ conversation }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const atEnd = useRef(true);
  const away = useSignal(false);
  const height = useRef(0);
  const top = useRef(0);
  const shown = conversation.shown;
  const { value: queued } = conversation.queued;
  const { value: notes } = conversation.notes;

  useLayoutEffect(() => {
    const scroller = box.current;
    if (!scroller) return;
    if (conversation.target.peek() < 0) {
      conversation.target.value = 0;
      atEnd.current = true;
    }
    const found = conversation.target.peek() && scroller.querySelector(`[data-seq="${conversation.target.peek()}"]`);
    if (found) {
      conversation.target.value = 0;
      atEnd.current = false;
      found.scrollIntoView({ block: "center" });
      found.classList.add("found");
    } else if (atEnd.current) scroller.scrollTop = scroller.scrollHeight;
    else if (height.current) {
      scroller.scrollTop += scroller.scrollHeight - height.current;
      height.current = 0;
    }
  });
  useEffect(() => {
    const scroller = box.current;
    if (!scroller) return;
    const began = performance.now();
    const observer = new ResizeObserver((changes) => {
      // Don't scroll when the user expands a section in an idle session.
      const follows = conversation.running || performance.now() - began < LOADING_MILLISECONDS;
      if (atEnd.current && (follows || changes.some((one) => one.target === scroller))) {
        scroller.scrollTop = scroller.scrollHeight;
      }
    });
    for (const one of [scroller, ...scroller.querySelectorAll(".entries")]) observer.observe(one);
    return () => observer.disconnect();
  }, [conversation.loaded.value]);

  const scroll = () => {
    const scroller = box.current;
    if (!scroller) return;
    // Only the user scrolls up; growing content is followed.
    if (scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < NEAR_END) atEnd.current = true;
    else if (scroller.scrollTop < top.current) atEnd.current = false;
    top.current = scroller.scrollTop;
    if (away.peek() === atEnd.current) away.value = !atEnd.current;
  };
  const earlier = () => {
    height.current = box.current?.scrollHeight ?? 0;
    atEnd.current = false;
    void attempt(() => conversation.loadEarlier());
  };
  if (conversation.problem.value) {
    return div({ class: "transcript" }, p({ class: "entry notice error", role: "alert" }, conversation.problem.value));
  }
  const turn = conversation.turn.value;
  const lastMessage = conversation.running ? -1 : shown.findLastIndex(({ entry }) => entry.kind === "user");
  const lastReply = conversation.running ? -1 : shown.findLastIndex(({ entry }) => entry.kind === "text");
  const isWaiting = conversation.running && !(turn?.entries ?? []).some((one) => isOpenQuestion(one));
  return div(
    { class: "transcript", ref: box, tabIndex: 0, role: "region", "aria-label": "Transcript", onScroll: scroll },
    conversation.more.value
      ? button({ class: "earlier", type: "button", onClick: earlier }, "Show earlier messages")
      : null,
    ol(
      { class: "entries", "aria-busy": conversation.loaded.value ? "false" : "true" },
      ...shown.map(({ key, seq, entry }, index) =>
        li(
          { key, "data-seq": seq ? String(seq) : undefined },
          h(EntryView, { conversation, entry, seq, last: seq > 0 && (index === lastMessage || index === lastReply) }),
        )
      ),
      ...notes.map((text) => noteView(text)),
      ...queued.map((message) => queuedView(conversation, message)),
      isWaiting
        ? li(
          { key: "working" },
          div({ class: "entry working", role: "status" }, span({ class: "offscreen" }, "Working")),
        )
        : null,
    ),
    away.value
      ? button(
        {
          class: "to-end",
          type: "button",
          "aria-label": "Go to the end",
          onClick: () => box.current?.scrollTo({ top: box.current.scrollHeight }),
        },
        icon("send"),
      )
      : null,
  );
}

/** Status of a conversation that runs elsewhere, was taken over or is in plan mode, with its actions. @type {(props: { conversation: Conversation }) => Child} */
function Banner({ conversation }) {
  const detail = conversation.detail.value;
  const busy = useSignal(false);
  /** @param {() => Promise<unknown>} action */
  const run = async (action) => {
    busy.value = true;
    await attempt(action);
    busy.value = false;
  };
  if (detail?.elsewhere && detail.taken_from) {
    return div(
      { class: "banner", role: "status" },
      span(null, `Taken over from ${detail.taken_from}. The running turn ends there; its reply appears here.`),
    );
  }
  if (detail?.elsewhere) {
    return div(
      { class: "banner", role: "status" },
      span(null, span({ class: "live-dot", "aria-hidden": "true" }), detail.location),
      button(
        { type: "button", disabled: busy.value, onClick: () => void run(() => conversation.takeOver()) },
        "Take over",
      ),
    );
  }
  if (detail?.taken_from) {
    return div(
      { class: "banner", role: "status" },
      span(null, `You took this conversation over from ${detail.taken_from}.`),
      button(
        { type: "button", disabled: busy.value, onClick: () => void run(() => conversation.handBack()) },
        "Hand back",
      ),
    );
  }
  if (detail?.planning && !conversation.running) {
    return div(
      { class: "banner", role: "status" },
      span(null, "Plan mode: the agent only reads until you approve its plan."),
      me.value?.owner
        ? span(
          { class: "banner-actions" },
          ...[["/plan approve", "Approve the plan"], ["/plan off", "Leave plan mode"]].map(([command = "", text]) =>
            button({ type: "button", disabled: busy.value, onClick: () => void run(() => runCommand(command)) }, text)
          ),
        )
        : null,
    );
  }
  return null;
}
