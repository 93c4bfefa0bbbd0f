/**
 * Sidebar: list of conversations with live state, search, rename, archive and delete.
 * @module
 */
import { h, useLayoutEffect, useRef, useSignal } from "../vendor/preact.js";
import {
  a,
  aside,
  button,
  div,
  footer,
  form,
  heading,
  icon,
  input,
  label,
  lazy,
  li,
  nav,
  option,
  p,
  section,
  select,
  span,
  ul,
} from "./elements.js";
import {
  archivedShown,
  attempt,
  changeSession,
  conversation,
  deleteSession,
  drawerOpen,
  followLink,
  loadMoreSessions,
  loadSessions,
  me,
  nextPage,
  onPage,
  pages,
  sessions,
  sessionsLoaded,
} from "./state.js";

/** @import { Child } from "../vendor/preact.d.ts" */
/** @import { SessionRow } from "./wire.d.ts" */

/** Search results, loaded with the first search. */
const search = lazy(() => import("./search.js"));
/** @type {Record<string, string>} */
const SOURCES = { api: "API", cli: "Terminal", web: "Web", cron: "Schedule" };

/** Display name of a chat network or another surface. @type {(name: string) => string} */
export const surfaceName = (name) => SOURCES[name] ?? name.charAt(0).toUpperCase() + name.slice(1);

/** @type {(props: object) => Child} */
export function Sidebar() {
  return aside(
    { class: `sidebar ${drawerOpen.value ? "open" : ""}`, "aria-label": "Navigation" },
    div(
      { class: "sidebar-head" },
      span({ class: "brand" }, "Talaria"),
      a(
        { class: "button new", href: "/", onClick: (event) => followLink(event, "/") },
        icon("plus"),
        "New",
      ),
      button(
        {
          class: "quiet only-small",
          type: "button",
          "aria-label": "Close the list",
          onClick: () => (drawerOpen.value = false),
        },
        icon("close"),
      ),
    ),
    h(Switch, {}),
    onPage() ? (pages.value ? h(pages.value.PageMenu, {}) : div({ class: "list" })) : h(Conversations, {}),
    h(SidebarFoot, {}),
  );
}

/** Links to the conversations and to the pages. @type {(props: object) => Child} */
function Switch() {
  const link = (/** @type {string} */ to, /** @type {boolean} */ current, /** @type {string} */ text) =>
    a({ href: to, "aria-current": current ? "true" : undefined, onClick: (event) => followLink(event, to) }, text);
  return nav(
    { class: "switch", "aria-label": "Sections" },
    link(conversation.value ? `/c/${conversation.value.id}` : "/", !onPage(), "Chats"),
    link(me.value?.owner ? "/home" : "/browsers", onPage(), "Manage"),
  );
}

/** List of conversations, or search results. @type {(props: object) => Child} */
function Conversations() {
  const query = useSignal("");
  return [
    div(
      { class: "search" },
      icon("search"),
      label({ class: "offscreen", for: "search" }, "Search conversations"),
      input({
        id: "search",
        type: "search",
        placeholder: "Search",
        autocomplete: "off",
        value: query.value,
        onInput: (event) => (query.value = /** @type {HTMLInputElement} */ (event.target).value),
      }),
    ),
    query.value.trim()
      ? search(({ SearchResults }) =>
        h(SearchResults, { query: query.value.trim(), item: (row) => h(SessionItem, { row }) })
      )
      : h(SessionList, {}),
  ];
}

/** @type {(props: object) => Child} */
function SessionList() {
  const groups = groupByDay(sessions.value);
  const focused = document.activeElement?.closest(".row-link")?.getAttribute("href");
  useLayoutEffect(() => { // a row that moves to another day is mounted again
    const row = document.querySelector(`.row-link[href="${focused}"]`);
    if (document.activeElement === document.body && row instanceof HTMLElement) row.focus();
  });
  return nav(
    { class: "list", "aria-label": archivedShown.value ? "Archived conversations" : "Recent conversations" },
    ...groups.map(([day, rows]) =>
      section(
        { key: day, "aria-label": day },
        heading(2, { class: "day" }, day),
        ul(null, ...rows.map((row) => li({ key: row.id }, h(SessionItem, { row })))),
      )
    ),
    sessionsLoaded.value && !sessions.value.length
      ? p({ class: "empty" }, archivedShown.value ? "Nothing is archived." : "No conversations yet.")
      : null,
    nextPage.value
      ? button({ class: "earlier", type: "button", onClick: () => void attempt(loadMoreSessions) }, "Show more")
      : null,
  );
}

/** @type {(props: { row: SessionRow }) => Child} */
function SessionItem({ row }) {
  const menu = useSignal(false);
  const renaming = useSignal(false);
  const deleting = useSignal(false);
  const current = conversation.value?.id === row.id;
  const title = row.title || (current && conversation.value?.title) || "Untitled conversation";
  if (renaming.value) return h(Rename, { row, onDone: () => (renaming.value = false) });
  const surface = row.network || (row.source === "web" ? "" : row.source);
  return div(
    { class: `row ${current ? "current" : ""}` },
    a(
      {
        href: `/c/${row.id}`,
        class: "row-link",
        "aria-current": current ? "page" : undefined,
        onClick: (event) => followLink(event, `/c/${row.id}`),
      },
      row.running ? span({ class: "live-dot", role: "img", "aria-label": "Running", title: "Running" }) : null,
      row.unread && !current ? span({ class: "unread", role: "img", "aria-label": "New", title: "New" }) : null,
      span({ class: "row-title" }, title),
      surface ? span({ class: "surface" }, surfaceName(surface)) : null,
    ),
    button(
      {
        class: "quiet row-more",
        type: "button",
        "aria-label": `Actions for ${title}`,
        "aria-expanded": menu.value ? "true" : "false",
        onClick: () => (menu.value = !menu.value),
      },
      icon("more"),
    ),
    menu.value
      ? div(
        {
          class: "menu",
          onKeyDown: (event) => {
            if (event.key === "Escape") menu.value = false;
          },
        },
        button({ type: "button", onClick: () => (renaming.value = true) }, "Rename"),
        button(
          {
            type: "button",
            onClick: () => {
              menu.value = false;
              void attempt(() => changeSession(row.id, { archived: !row.archived }));
            },
          },
          row.archived ? "Restore" : "Archive",
        ),
        button(
          {
            type: "button",
            class: "danger",
            onClick: () => {
              if (deleting.peek()) void attempt(() => deleteSession(row.id));
              else deleting.value = true;
            },
          },
          deleting.value ? "Delete for good?" : "Delete",
        ),
      )
      : null,
  );
}

/** @type {(props: { row: SessionRow, onDone: () => void }) => Child} */
function Rename({ row, onDone }) {
  const field = useRef(/** @type {HTMLInputElement | null} */ (null));
  const typed = useSignal(row.title);
  useLayoutEffect(() => field.current?.select(), []); // before the next key
  const save = async () => {
    const title = typed.peek().trim();
    if (title && title !== row.title) await attempt(() => changeSession(row.id, { title }));
    onDone();
  };
  return form(
    {
      class: "row rename",
      onSubmit: (event) => {
        event.preventDefault();
        void save();
      },
    },
    input({
      ref: field,
      type: "text",
      "aria-label": "Title",
      maxlength: 200,
      value: typed.value,
      onInput: (event) => (typed.value = /** @type {HTMLInputElement} */ (event.target).value),
      onKeyDown: (event) => {
        if (event.key === "Escape") onDone();
      },
    }),
    button({ type: "submit", class: "quiet", "aria-label": "Save" }, icon("check")),
  );
}

/** @type {(props: object) => Child} */
function SidebarFoot() {
  const theme = useSignal(localStorage.getItem("theme") ?? "system");
  return footer(
    { class: "sidebar-foot" },
    onPage() ? span(null) : button(
      {
        class: "quiet",
        type: "button",
        "aria-pressed": archivedShown.value ? "true" : "false",
        onClick: () => {
          archivedShown.value = !archivedShown.value;
          void attempt(loadSessions);
        },
      },
      icon("archive"),
      "Archive",
    ),
    label({ class: "offscreen", for: "theme" }, "Colours"),
    select(
      {
        id: "theme",
        value: theme.value,
        onChange: (event) => {
          theme.value = /** @type {HTMLSelectElement} */ (event.target).value;
          setTheme(theme.value);
        },
      },
      option({ value: "system" }, "Auto"),
      option({ value: "light" }, "Light"),
      option({ value: "dark" }, "Dark"),
    ),
  );
}

/** Apply and store the colour theme. @param {string} theme */
export function setTheme(theme) {
  if (theme === "system") {
    localStorage.removeItem("theme");
    delete document.documentElement.dataset.theme;
  } else {
    localStorage.setItem("theme", theme);
    document.documentElement.dataset.theme = theme;
  }
}

/** @type {(rows: SessionRow[], now?: Date) => [string, SessionRow[]][]} */
export function groupByDay(rows, now = new Date()) {
  const today = new Date(now.getFullYear(), now.getMonth(), now.getDate()).getTime();
  const day = 86_400_000;
  /** @type {Map<string, SessionRow[]>} */
  const groups = new Map();
  for (const row of rows) {
    const at = new Date(row.updated_at).getTime();
    const name = at >= today
      ? "Today"
      : at >= today - day
      ? "Yesterday"
      : at >= today - 6 * day
      ? "Last 7 days"
      : "Earlier";
    groups.set(name, [...(groups.get(name) ?? []), row]);
  }
  return [...groups];
}
