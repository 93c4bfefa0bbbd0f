/**
 * The page of a conversation.
 * @module
 */
import { h, useEffect, useLayoutEffect, useRef, useSignal } from "../vendor/preact.js";
import { Composer } from "./composer.js";
import { button, div, header, heading, icon, li, main, ol, p, span } from "./elements.js";
import { EntryView } from "./entries.js";
import { renderMarkdown } from "./markdown.js";
import { attempt, connected, conversation, drawerOpen, me, outdated } from "./state.js";
import { isAsked } from "./turn.js";

/** @import { Child, VNode } from "../vendor/preact.d.ts" */
/** @import { Conversation } from "./conversation.js" */

const NEAR_END = 80;

/** @type {(props: object) => Child} */
export function ChatPage() {
  const shown = conversation.value;
  const notes = useSignal(/** @type {string[]} */ ([]));
  /** @param {string[]} more */
  const addNotes = (more) => {
    const target = conversation.peek();
    if (target) target.notes.value = [...target.notes.peek(), ...more].slice(-20);
    else notes.value = [...notes.peek(), ...more].slice(-20);
  };
  return main(
    { class: "chat", id: "main" },
    chatHeader(shown),
    shown ? h(Transcript, { key: shown.id, conversation: shown }) : h(Welcome, { notes: notes.value }),
    div(
      { class: "chat-foot" },
      shown ? h(Banner, { conversation: shown }) : null,
      h(Composer, { key: shown?.id ?? "", id: shown?.id ?? "", onNotes: addNotes }),
    ),
  );
}

/** @type {(shown: Conversation | null) => VNode} */
function chatHeader(shown) {
  const detail = shown?.detail.value;
  const turn = shown?.turn.value;
  const model = turn?.model || detail?.model || me.value?.model || "";
  const used = turn?.contextLimit ? Math.round((100 * turn.context) / turn.contextLimit) : 0;
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
    heading(1, null, shown ? titleOf(shown) : "New conversation"),
    span({ class: "model", title: used ? `${used} % of the context is used` : "Model" }, model),
  );
}

/** The title, or the first words until there is one. @type {(shown: Conversation) => string} */
function titleOf(shown) {
  const said = shown.shown.find((one) => one.entry.kind === "user")?.entry;
  return shown.detail.value?.title || (said?.kind === "user" && said.text.slice(0, 80)) || "Conversation";
}

/** @type {(props: { notes: string[] }) => Child} */
function Welcome({ notes }) {
  return div(
    { class: "transcript" },
    notes.length
      ? ol({ class: "entries" }, ...notes.map((text) => noteView(text)))
      : div({ class: "welcome" }, heading(2, null, greeting()), p(null, "What would you like to do?")),
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
  const shown = conversation.shown;
  const { value: queued } = conversation.queued;
  const { value: notes } = conversation.notes;

  useLayoutEffect(() => {
    const scroller = box.current;
    if (!scroller) return;
    if (atEnd.current) scroller.scrollTop = scroller.scrollHeight;
    else if (height.current) {
      scroller.scrollTop += scroller.scrollHeight - height.current;
      height.current = 0;
    }
  });
  useEffect(() => {
    const scroller = box.current;
    if (!scroller) return;
    const observer = new ResizeObserver(() => {
      if (atEnd.current) scroller.scrollTop = scroller.scrollHeight;
    });
    observer.observe(scroller);
    return () => observer.disconnect();
  }, []);

  const scroll = () => {
    const scroller = box.current;
    if (!scroller) return;
    atEnd.current = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < NEAR_END;
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
  const isWaiting = conversation.running && !(turn?.entries ?? []).some((one) => isAsked(one));
  return div(
    { class: "transcript", ref: box, tabIndex: 0, role: "region", "aria-label": "Transcript", onScroll: scroll },
    conversation.more.value
      ? button({ class: "earlier", type: "button", onClick: earlier }, "Show earlier messages")
      : null,
    ol(
      { class: "entries", "aria-busy": conversation.loaded.value ? "false" : "true" },
      ...shown.map(({ key, entry }) => li({ key }, h(EntryView, { conversation, entry }))),
      ...notes.map((text) => noteView(text)),
      ...queued.map((text) =>
        li(null, div({ class: "entry user queued" }, div({ class: "bubble" }, text), span({ class: "chip" }, "Queued")))
      ),
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

/** What is unusual about this conversation, and what can be done about it. @type {(props: { conversation: Conversation }) => Child} */
function Banner({ conversation }) {
  const detail = conversation.detail.value;
  const busy = useSignal(false);
  /** @param {() => Promise<unknown>} action */
  const run = async (action) => {
    busy.value = true;
    await attempt(action);
    busy.value = false;
  };
  if (outdated.value) {
    return div(
      { class: "banner", role: "status" },
      span(null, "A new version of Talaria is running."),
      button({ type: "button", onClick: () => location.reload() }, "Reload"),
    );
  }
  if (!connected.value) return div({ class: "banner", role: "status" }, span(null, "Connection lost. Trying again …"));
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
  return null;
}
