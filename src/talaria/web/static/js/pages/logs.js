/**
 * Log: its latest entries, followed as it grows, filtered by level, text and conversation.
 * @module
 */
import { h, useEffect, useRef, useSignal } from "../../vendor/preact.js";
import { describe, get } from "../server.js";
import { button, div, input, label, ol, p, span, time } from "../elements.js";
import { pageChange, pageTopics, path } from "../state.js";
import { oneAtATime } from "./request_order.js";
import { failureNotice, PageFrame } from "./frame.js";
import { conversationLink, Segments } from "./parts.js";

/** @import { Child, Signal } from "../../vendor/preact.d.ts" */
/** @import { LogEntry, LogView } from "../wire.d.ts" */

const MOST_ENTRIES = 2000;
const TYPING_DELAY = 250;
const LEVELS = /** @type {const} */ ([["", "All"], ["info", "Info"], ["warning", "Warnings"], ["error", "Errors"]]);

/** @typedef {"" | "info" | "warning" | "error"} Level */

/** @type {(props: object) => Child} */
export function Page() {
  const level = useSignal(/** @type {Level} */ (""));
  const text = useSignal("");
  const session = useSignal(path.value.split("/")[2] ?? "");
  const following = useSignal(true);
  const query = new URLSearchParams({ level: level.value, text: text.value, session: session.value }).toString();
  const log = useLog(query, following);
  const list = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    if (following.value && list.current) list.current.scrollTop = list.current.scrollHeight;
  }, [log.entries.value, following.value]);
  return h(
    PageFrame,
    { title: "Logs", wide: true },
    failureNotice(log.failure.value),
    div(
      { class: "toolbar" },
      Segments({ label: "Level", value: level.value, options: LEVELS, onChange: (value) => (level.value = value) }),
      filterField("log-text", "Text", text),
      filterField("log-session", "Conversation", session),
      button(
        {
          type: "button",
          "aria-pressed": following.value ? "true" : "false",
          onClick: () => (following.value = !following.value),
        },
        following.value ? "Following" : "Follow",
      ),
    ),
    div(
      { class: "log", ref: list, tabIndex: 0, role: "region", "aria-label": "Log entries" },
      log.start.value > 0
        ? button({ type: "button", class: "earlier", onClick: () => void log.earlier() }, "Show earlier entries")
        : null,
      log.entries.value.length
        ? ol(null, ...log.entries.value.map(entryView))
        : p({ class: "caption log-empty" }, "No entries match."),
    ),
  );
}

/** @type {(id: string, name: string, value: Signal<string>) => Child} */
function filterField(id, name, value) {
  return div(
    { class: "filter" },
    label({ class: "offscreen", for: id }, name),
    input({
      id,
      type: "search",
      placeholder: name,
      autocomplete: "off",
      value: value.value,
      onInput: (event) => (value.value = /** @type {HTMLInputElement} */ (event.target).value),
    }),
  );
}

/** Load the entries for a query, and append new ones as the log grows.
 * @param {string} query
 * @param {Signal<boolean>} following */
function useLog(query, following) {
  const entries = useSignal(/** @type {LogEntry[]} */ ([]));
  const failure = useSignal("");
  const start = useSignal(0);
  const end = useRef(-1);
  const isFirst = useRef(true);
  const current = useRef(query);
  current.current = query;
  /** Load entries; `null` on failure or if the query has changed since. @type {(more: string) => Promise<LogView | null>} */
  const read = async (more) => {
    const sent = current.current;
    try {
      /** @type {LogView} */
      const page = await get(`/web/logs?${sent}${more}`);
      if (sent !== current.current) return null;
      failure.value = "";
      return page;
    } catch (error) {
      if (sent === current.current) failure.value = describe(error);
      return null;
    }
  };
  useEffect(() => {
    end.current = -1; // append nothing before the response to this query
    const timer = setTimeout(async () => {
      const page = await read("");
      if (!page) return;
      entries.value = page.entries;
      start.value = page.start;
      end.current = page.end;
    }, isFirst.current ? 0 : TYPING_DELAY);
    isFirst.current = false;
    return () => clearTimeout(timer);
  }, [query]);
  useEffect(() => {
    pageTopics.value = ["logs"];
    return () => void (pageTopics.value = []);
  }, []);
  const { page, count } = pageChange.value;
  const follow = useRef(oneAtATime(async () => {
    const from = end.current;
    const found = from < 0 ? null : await read(`&after=${from}`);
    if (!found || from !== end.current) return;
    entries.value = [...entries.peek(), ...found.entries].slice(-MOST_ENTRIES);
    end.current = found.end;
  })).current;
  useEffect(() => {
    if (page === "logs" && following.peek()) void follow();
  }, [page === "logs" ? count : 0, following.value]);
  const earlier = async () => {
    const before = start.peek();
    const found = await read(`&before=${before}`);
    if (!found || before !== start.peek()) return;
    entries.value = [...found.entries, ...entries.peek()].slice(0, MOST_ENTRIES);
    start.value = found.start;
  };
  return { entries, failure, start, earlier };
}

/** @type {(entry: LogEntry, index: number) => Child} */
function entryView(entry, index) {
  return h(
    "li",
    { key: `${entry.at}:${index}`, class: "log-entry", "data-level": entry.level },
    time({ datetime: entry.at, title: entry.at }, entry.at.slice(5, 19).replace("T", " ")),
    span({ class: "level" }, entry.level),
    span(
      { class: "entry-text" },
      span({ class: "logger" }, `${entry.logger.replace(/^talaria\./, "")} `),
      entry.message,
      entry.session ? span({ class: "logger" }, " ", conversationLink(entry.session, "conversation")) : null,
    ),
  );
}
