/**
 * Items of the command palette: pages, conversations, commands, settings and messages.
 * @module
 */
import { visiblePages } from "./pages/registry.js";
import { get } from "./server.js";
import { attempt, compose, conversation, me, navigate, overlay, runCommand, sessions, toast } from "./state.js";

/** @import { ChoiceView, CommandInfo, SearchHitView } from "./wire.d.ts" */

/** @typedef {{ text: string, about: string, run: () => void }} Item */

const MOST_CONVERSATIONS = 8;
const SHORTEST_SEARCH = 3;
/** Settings with their descriptions, once they are loaded. @type {ChoiceView[] | null} */
let settings = null;

/** Create a predicate: whether a text contains all typed words. @type {(typed: string) => (text: string) => boolean} */
function matcher(typed) {
  const words = typed.toLowerCase().replace(/^\//, "").split(/\s+/).filter(Boolean);
  return (text) => words.every((word) => text.toLowerCase().includes(word));
}

/** Matching items that are known without a request; after a slash only commands. @type {(typed: string) => Item[]} */
export function nearItems(typed) {
  const fits = matcher(typed);
  const commands = (me.value?.commands ?? []).filter((one) => fits(`/${one.name} ${one.help}`)).map(commandItem);
  if (typed.startsWith("/")) return commands;
  const pages = [
    { text: "New conversation", about: "Page", run: () => navigate("/") },
    ...visiblePages().map((page) => ({ text: page.title, about: "Page", run: () => navigate(page.path) })),
  ];
  const titled = sessions.value.filter((row) => row.title && fits(row.title)).slice(0, MOST_CONVERSATIONS);
  const conversations = titled.map((row) => ({
    text: row.title,
    about: "Conversation",
    run: () => navigate(`/c/${row.id}`),
  }));
  return [...pages.filter((one) => fits(one.text)), ...conversations, ...commands];
}

/** @type {(command: CommandInfo) => Item} */
function commandItem(command) {
  const line = `/${command.name}`;
  const run = async () => {
    overlay.value = null;
    if (command.usage.includes("<") || command.usage.includes("[")) compose.value = `${line} `;
    else {
      const before = conversation.peek();
      const shown = await runCommand(line);
      const target = before ?? conversation.peek();
      if (target) target.notes.value = [...target.notes.peek(), ...shown].slice(-20);
      else if (shown.length) toast.value = shown.join(" ");
    }
  };
  return { text: line, about: command.help, run: () => void attempt(run) };
}

/** Matching settings and messages, loaded from the server. @type {(typed: string) => Promise<Item[]>} */
export async function farItems(typed) {
  if (typed.length < SHORTEST_SEARCH || typed.startsWith("/")) return [];
  const fits = matcher(typed);
  settings ??= me.peek()?.owner ? await get("/web/completions?text=%2Fconfig%20").catch(() => []) : [];
  /** @type {SearchHitView[]} */
  const hits = await get(`/web/search?q=${encodeURIComponent(typed)}`).catch(() => []);
  const messages = hits.slice(0, MOST_CONVERSATIONS).map((hit) => ({
    text: hit.snippet.replace(/[[\]]/g, ""),
    about: hit.title || "Message",
    run: () => navigate(`/c/${hit.session_id}`, { seq: hit.seq }),
  }));
  const keys = (settings ?? []).filter((one) => fits(`${one.value} ${one.help}`)).map((one) => ({
    text: one.value,
    about: one.help,
    run: () => navigate(`/settings/${one.value.split(".")[0]}`),
  }));
  return [...keys, ...messages];
}
