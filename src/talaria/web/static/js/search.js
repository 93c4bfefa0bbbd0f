/**
 * Search in all conversations, with filters; a result links to its message.
 * @module
 */
import { useEffect, useRef, useSignal } from "../vendor/preact.js";
import { a, div, heading, label, li, nav, option, p, section, select, span, ul } from "./elements.js";
import { get, trackNewest } from "./server.js";
import { surfaceName } from "./sidebar.js";
import { attempt, me, navigate, sessions } from "./state.js";

/** @import { Child, VNode } from "../vendor/preact.d.ts" */
/** @import { SearchHitView, SessionRow } from "./wire.d.ts" */

const SEARCH_DELAY = 200;
const MOST_TITLES = 8;

/** @type {(props: { query: string, item: (row: SessionRow) => Child }) => Child} */
export function SearchResults({ query, item }) {
  const hits = useSignal(/** @type {SearchHitView[] | null} */ (null));
  const source = useSignal("");
  const owner = useSignal("*");
  const archived = useSignal("");
  const filters = new URLSearchParams({ q: query });
  if (source.value) filters.set("source", source.value);
  if (owner.value !== "*") filters.set("owner", owner.value);
  if (archived.value) filters.set("archived", archived.value);
  const address = String(filters);
  const startRequest = useRef(trackNewest()).current;
  useEffect(() => {
    const isNewest = startRequest();
    const timer = setTimeout(() => {
      void attempt(async () => {
        /** @type {SearchHitView[]} */
        const found = await get(`/web/search?${address}`);
        if (isNewest()) hits.value = found;
      });
    }, SEARCH_DELAY);
    return () => clearTimeout(timer);
  }, [address]);
  const titled = sessions.value.filter((row) => isTitled(row, query, source.value, owner.value)).slice(0, MOST_TITLES);
  return nav(
    { class: "list", "aria-label": "Search results" },
    div(
      { class: "filters" },
      filter("Surface", source, [["", "Surface"], ...known((row) => row.source).map(named(surfaceName))]),
      me.value?.owner
        ? filter("Person", owner, [["*", "Person"], ["", "You"], ...known((row) => row.owner).map(named())])
        : null,
      filter("Status", archived, [["", "Status"], ["false", "Active"], ["true", "Archived"]]),
    ),
    titled.length && archived.value !== "true"
      ? ul(null, ...titled.map((row) => li({ key: row.id }, item(row))))
      : null,
    hits.value?.length
      ? section(
        { "aria-label": "In messages" },
        heading(2, { class: "day" }, "In messages"),
        ul(null, ...hits.value.map((hit) => li(null, hitView(hit)))),
      )
      : null,
    hits.value && !hits.value.length && !titled.length ? p({ class: "empty" }, "Nothing found.") : null,
  );
}

/** @type {(row: SessionRow, query: string, source: string, owner: string) => boolean} */
const isTitled = (row, query, source, owner) =>
  row.title.toLowerCase().includes(query.toLowerCase()) &&
  (!source || row.source === source) &&
  (owner === "*" || row.owner === owner);

/** Distinct values in the list of conversations. @type {(value: (row: SessionRow) => string) => string[]} */
const known = (value) => [...new Set(sessions.value.map(value))].filter(Boolean).sort();

/** @type {(name?: (value: string) => string) => (value: string) => [string, string]} */
const named = (name = (value) => value) => (value) => [value, name(value)];

/** @type {(title: string, chosen: { value: string }, options: [string, string][]) => VNode} */
function filter(title, chosen, options) {
  const id = `filter-${title.toLowerCase()}`;
  return span(
    null,
    label({ class: "offscreen", for: id }, title),
    select(
      {
        id,
        value: chosen.value,
        onChange: (event) => (chosen.value = /** @type {HTMLSelectElement} */ (event.target).value),
      },
      ...options.map(([value, text]) => option({ value }, text)),
    ),
  );
}

/** @type {(hit: SearchHitView) => VNode} */
function hitView(hit) {
  const to = `/c/${hit.session_id}`;
  return a(
    {
      class: "hit",
      href: to,
      onClick: (event) => {
        if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
        event.preventDefault();
        navigate(to, { seq: hit.seq });
      },
    },
    span({ class: "row-title" }, hit.title || "Untitled conversation"),
    span({ class: "snippet" }, ...marked(hit.snippet)),
  );
}

/** Highlight the matching words, which are in brackets. @type {(snippet: string) => Child[]} */
function marked(snippet) {
  return snippet.split(/(\[[^\]]*\])/).map((piece) =>
    /^\[.*\]$/.test(piece) ? span({ class: "match" }, piece.slice(1, -1)) : piece
  );
}
