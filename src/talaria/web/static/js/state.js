/**
 * State of the app: the signed-in person, the list of conversations, and the open conversation.
 * @module
 */
import { batch, effect, signal } from "../vendor/preact.js";
import { describe, get, post, request, RequestFailed, signedOut, Stream, trackNewest } from "./server.js";
import { Conversation } from "./conversation.js";
import { moveDraft, removeOtherDrafts } from "./drafts.js";

/** @import { Signal } from "../vendor/preact.d.ts" */
/** @import { ConversationMessage } from "./conversation.js" */
/** @typedef {{ kind: "palette" | "branches" | "help" } | { kind: "choose", command: string, title: string }} Overlay */
/** @import { BegunSession, CommandReply, MeView, SessionPage, SessionRow, StreamMessage } from "./wire.d.ts" */

const RETRY_MILLISECONDS = 3000;

/** Signed-in person; `null` if nobody is signed in, `undefined` until that is known. @type {Signal<MeView | null | undefined>} */
export const me = signal(undefined);
/** Current path. */
export const path = signal(location.pathname);
/** @type {Signal<SessionRow[]>} */
export const sessions = signal([]);
/** Whether the first page of conversations has arrived. */
export const sessionsLoaded = signal(false);
export const archivedShown = signal(false);
/** Cursor of the next page of conversations; empty if there is none. */
export const nextPage = signal("");
export const connected = signal(true);
/** Whether the server could not be reached when the app was opened. */
export const unreachable = signal(false);
/** Short message at the bottom of the screen, optionally with a link. @type {Signal<string | { text: string, path: string }>} */
export const toast = signal("");
/** Whether the sidebar is open on a small screen. */
export const drawerOpen = signal(false);
/** Whether the server has a newer version of the app. */
export const outdated = signal(false);
/** Text to put into the composer. */
export const compose = signal("");
/** Open dialog: palette, choices, branches or help. @type {Signal<Overlay | null>} */
export const overlay = signal(null);
/** Commands for the next new conversation, by name: its model, effort and personality. @type {Signal<Map<string, string>>} */
export const choices = signal(new Map());
/** Open conversation; `null` for a new one. @type {Signal<Conversation | null>} */
export const conversation = signal(null);
/** First message of a conversation that is being created. */
export const firstMessage = signal("");

/** Stream topics of the current page. */
export const pageTopics = signal(/** @type {string[]} */ ([]));
/** Last page that changed on the server. */
export const pageChange = signal({ page: "", count: 0 });

/** Registry of pages, once one of them is opened. @type {Signal<typeof import("./pages/registry.js") | null>} */
export const pages = signal(null);
/** Path of the static files of this version of the app. */
export const assetBase = new URL("..", import.meta.url).pathname.replace(/\/$/, "");

/** Whether a management page is open, not a conversation. */
export const onPage = () => path.value !== "/" && !path.value.startsWith("/c/");

/** @type {Stream | null} */
let stream = null;

/** Number of the message to show in the conversation that is opened next. */
let target = 0;
/** Number of navigations. */
let visits = 0;
/** Stream messages received while a conversation is being created, whose id is not known yet. @type {Set<ConversationMessage[]>} */
const earlyMessages = new Set();
/** Rows received while the list is being loaded. @type {Set<[SessionRow[], string[]][]>} */
const pendingRows = new Set();

/**
 * Navigate to a path; in a conversation, show the message with the number `seq`.
 * @param {string} to
 * @param {{ replace?: boolean, seq?: number }} [options]
 */
export function navigate(to, { replace = false, seq = 0 } = {}) {
  if (to !== location.pathname) {
    if (replace) history.replaceState(null, "", to);
    else history.pushState(null, "", to);
  }
  target = seq;
  visits++;
  if (seq && to === path.peek()) void conversation.peek()?.load(seq);
  batch(() => {
    path.value = to;
    drawerOpen.value = false;
    overlay.value = null;
    firstMessage.value = "";
  });
}

/** Create a function that navigates unless the user has navigated since. @returns {typeof navigate} */
export function navigateFromHere() {
  const visit = visits;
  return (to, options) => {
    if (visit === visits) navigate(to, options);
  };
}

/** Follow a link within the app, unless the user opens it in another tab. @type {(event: MouseEvent, to: string) => void} */
export function followLink(event, to) {
  if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  navigate(to);
}

/** Sign in with a one-use code. @param {string} code */
export async function signIn(code) {
  await post("/web/login", { code: code.trim() });
  await start();
}

/** Sign this browser out. */
export async function signOut() {
  await post("/web/logout");
  leave();
}

function leave() {
  stream?.close();
  stream = null;
  startListRequest(); // drop responses in transit: another person may sign in
  batch(() => {
    me.value = null;
    sessions.value = [];
    sessionsLoaded.value = false;
    nextPage.value = "";
    conversation.value = null;
  });
}

/** Load the signed-in person, open the stream and load the conversations. */
export async function start() {
  signedOut.call = leave;
  try {
    me.value = await get("/web/me");
  } catch (error) {
    if (error instanceof RequestFailed && !error.status) {
      unreachable.value = true;
      setTimeout(start, RETRY_MILLISECONDS);
    } else me.value = null;
    return;
  }
  unreachable.value = false;
  removeOtherDrafts(me.peek()?.name ?? "");
  stream?.close();
  stream = new Stream({ onMessage: receive, onState: (state) => (connected.value = state), onSignedOut: leave });
  open();
  stream.watch(topics());
  stream.start();
  await loadSessions();
}

const startListRequest = trackNewest();

/** Load the first page of the list. With `again`, the rows after it stay. @param {boolean} [again] */
export async function loadSessions(again = false) {
  const isNewest = startListRequest();
  /** @type {[SessionRow[], string[]][]} */
  const meanwhile = [];
  pendingRows.add(meanwhile);
  try {
    /** @type {SessionPage} */
    const page = await get(`/web/sessions?archived=${archivedShown.value}`);
    if (!isNewest()) return;
    batch(() => {
      const last = page.next && page.sessions[page.sessions.length - 1]?.updated_at || "";
      const rest = again ? sessions.peek().filter((one) => one.updated_at < last) : [];
      sessions.value = [...page.sessions, ...rest];
      if (!rest.length) nextPage.value = page.next;
      sessionsLoaded.value = true;
      for (const [rows, gone] of meanwhile) mergeRows(rows, gone);
    });
  } finally {
    pendingRows.delete(meanwhile);
  }
}

/** Load the next page of the list. */
export async function loadMoreSessions() {
  const isNewest = startListRequest();
  /** @type {SessionPage} */
  const page = await get(`/web/sessions?archived=${archivedShown.value}&after=${encodeURIComponent(nextPage.value)}`);
  if (!isNewest()) return;
  const known = new Set(sessions.value.map((one) => one.id));
  batch(() => {
    sessions.value = [...sessions.value, ...page.sessions.filter((one) => !known.has(one.id))];
    nextPage.value = page.next;
  });
}

/** @type {(message: StreamMessage) => void} */
function receive(message) {
  switch (message.topic) {
    case "hello":
      outdated.value = me.peek()?.digest !== undefined && me.peek()?.digest !== message.digest;
      void loadSessions(true).catch(() => {}); // what changed before the stream was open; the next one tries again
      break;
    case "sessions":
      for (const one of pendingRows) one.push([message.rows, message.gone]);
      mergeRows(message.rows, message.gone);
      break;
    case "changed":
      pageChange.value = { page: message.page, count: pageChange.peek().count + 1 };
      break;
    case "session":
    case "delivered": {
      const shown = conversation.peek();
      if (shown?.id === message.session) shown.receive(message);
      for (const one of earlyMessages) one.push(message);
      break;
    }
    case "notice":
      if (!message.session || message.session !== conversation.peek()?.id) {
        toast.value = {
          text: `${message.title || "News"}: ${message.text.slice(0, 120)}`,
          path: message.path,
        };
      }
      break;
  }
}

/** @type {(rows: SessionRow[], gone: string[]) => void} */
function mergeRows(rows, gone) {
  const changed = new Map(rows.map((one) => [one.id, one]));
  const removed = new Set(gone);
  const unchanged = sessions.peek().filter((one) => !changed.has(one.id) && !removed.has(one.id));
  const added = rows.filter((one) => one.archived === archivedShown.peek());
  sessions.value = [...added, ...unchanged].sort((one, other) => (one.updated_at < other.updated_at ? 1 : -1));
  const shown = conversation.peek();
  const row = shown && changed.get(shown.id);
  if (shown && row) shown.update(row);
}

/** Open the conversation that the path names. */
function open() {
  if (onPage()) return;
  const id = /^\/c\/([\w-]+)$/.exec(path.peek())?.[1] ?? "";
  if (id === (conversation.peek()?.id ?? "")) return;
  conversation.value = id ? new Conversation(id) : null;
  void conversation.value?.load(target);
  target = 0;
}

effect(() => {
  void path.value;
  if (me.peek()) open();
});

effect(() => {
  if (!onPage() || pages.value) return;
  import("./pages/registry.js").then((loaded) => (pages.value = loaded), (error) => (toast.value = describe(error)));
});

effect(() => {
  void conversation.value;
  void pageTopics.value;
  stream?.watch(topics());
});

/** Stream topics of this tab, and the conversation that is visible in it. */
function topics() {
  const id = conversation.peek()?.id;
  const seen = document.visibilityState === "visible" ? [`seen:${id ?? "app"}`] : [];
  return ["sessions", ...(id ? [`session:${id}`] : []), ...pageTopics.peek(), ...seen];
}

addEventListener("visibilitychange", () => stream?.watch(topics()));

/** Create a conversation with a first message, and show it. @type {(text: string, id: string, files?: string[]) => Promise<void>} */
export async function begin(text, id, files = []) {
  const [visit, commands] = [visits, [...choices.peek().values()]];
  /** @type {ConversationMessage[]} */
  const messages = [];
  earlyMessages.add(messages);
  firstMessage.value = text;
  try {
    /** @type {BegunSession} */
    const { session_id } = await post("/web/sessions", { text, id, files, commands, stream: stream?.id ?? "" });
    choices.value = new Map();
    if (visit !== visits) return; // the user has navigated
    const shown = new Conversation(session_id);
    shown.begin(text, messages.filter((one) => one.session === session_id));
    moveDraft("", session_id);
    batch(() => {
      conversation.value = shown;
      navigate(`/c/${session_id}`);
    });
  } finally {
    earlyMessages.delete(messages);
    if (visit === visits) firstMessage.value = "";
  }
}

/** Send a message, or store it if the server can't be reached. @type {(shown: Conversation | null, message: { text: string, id: string, steer: boolean, files: string[] }) => Promise<void>} */
export async function deliver(shown, message) {
  try {
    if (shown) await shown.send(message.text, message.id, message.steer, message.files);
    else await begin(message.text, message.id, message.files);
  } catch (error) {
    if (!(error instanceof RequestFailed) || error.status) throw error;
    (await import("./unsent_messages.js")).storeUnsent({ session: shown?.id ?? "", ...message });
  }
}

/**
 * Run a slash command in the open conversation or in a new one.
 * @param {string} text
 * @returns {Promise<string[]>} Output of the command.
 */
export async function runCommand(text) {
  const shown = conversation.peek();
  const go = navigateFromHere();
  /** @type {CommandReply} */
  const reply = await post(shown ? `/web/sessions/${shown.id}/commands` : "/web/commands", { text });
  if (reply.session_id && reply.session_id !== shown?.id) go(`/c/${reply.session_id}`);
  else if (shown) await shown.refresh();
  return reply.shown;
}

/** Rename, archive or restore a conversation. @type {(id: string, changes: { title?: string, archived?: boolean }) => Promise<void>} */
export async function changeSession(id, changes) {
  /** @type {SessionRow} */
  const row = await request("PATCH", `/web/sessions/${id}`, changes);
  mergeRows([row], []);
}

/** Delete a conversation permanently. @param {string} id */
export async function deleteSession(id) {
  await request("DELETE", `/web/sessions/${id}`);
  if (path.peek() === `/c/${id}`) navigate("/", { replace: true });
  mergeRows([], [id]);
}

/** Run an action and show its error; return whether it succeeded. @param {() => Promise<unknown>} action */
export async function attempt(action) {
  try {
    await action();
    return true;
  } catch (error) {
    toast.value = describe(error);
    return false;
  }
}

addEventListener("popstate", () => navigate(location.pathname));
