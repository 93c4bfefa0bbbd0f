/**
 * Registry of all pages but the chat. Each is loaded when it is opened; the server reads their paths from this list.
 * @module
 */
import { effect, h, signal, useEffect } from "../../vendor/preact.js";
import { a, heading, icon, li, nav, section, ul } from "../elements.js";
import { describe } from "../server.js";
import { followLink, me, path, toast } from "../state.js";
import { addStyles, COMMON_STYLES, emptyState, PageFrame, useOnly } from "./frame.js";

/** @import { Child } from "../../vendor/preact.d.ts" */
/** @import { IconName } from "../elements.js" */

/**
 * @typedef {object} PageEntry
 * @property {string} path Path; paths below it belong to the page too.
 * @property {string} title
 * @property {IconName} icon
 * @property {string} group Heading of its group in the menu.
 * @property {boolean} owner Whether only the owner of the agent can see it.
 * @property {string} [styles] Style sheet in addition to that of all pages.
 * @property {() => Promise<{ Page: (props: object) => Child }>} load
 */

/** @type {PageEntry[]} */
export const PAGES = [
  {
    path: "/home",
    title: "Home",
    icon: "home",
    group: "Work",
    owner: false,
    styles: "work.css",
    load: () => import("./home.js"),
  },
  {
    path: "/goals",
    title: "Goals",
    icon: "target",
    group: "Work",
    owner: false,
    styles: "work.css",
    load: () => import("./goals.js"),
  },
  {
    path: "/schedules",
    title: "Schedules",
    icon: "clock",
    group: "Work",
    owner: false,
    styles: "work.css",
    load: () => import("./schedules.js"),
  },
  {
    path: "/background",
    title: "Background",
    icon: "layers",
    group: "Work",
    owner: false,
    styles: "work.css",
    load: () => import("./background.js"),
  },
  {
    path: "/browser",
    title: "Browser",
    icon: "window",
    group: "Work",
    owner: true,
    styles: "work.css",
    load: () => import("./agent_browser.js"),
  },
  {
    path: "/usage",
    title: "Usage",
    icon: "chart",
    group: "Look inside",
    owner: false,
    styles: "work.css",
    load: () => import("./usage.js"),
  },
  {
    path: "/files",
    title: "Files",
    icon: "file",
    group: "Look inside",
    owner: false,
    load: () => import("./files.js"),
  },
  {
    path: "/trace",
    title: "Traces",
    icon: "timeline",
    group: "Look inside",
    owner: false,
    styles: "work.css",
    load: () => import("./trace.js"),
  },
  {
    path: "/gateway",
    title: "Gateway",
    icon: "network",
    group: "Look inside",
    owner: true,
    styles: "work.css",
    load: () => import("./gateway.js"),
  },
  {
    path: "/logs",
    title: "Logs",
    icon: "log",
    group: "Look inside",
    owner: true,
    styles: "work.css",
    load: () => import("./logs.js"),
  },
  {
    path: "/doctor",
    title: "Doctor",
    icon: "pulse",
    group: "Look inside",
    owner: true,
    styles: "work.css",
    load: () => import("./doctor.js"),
  },
  {
    path: "/models",
    title: "Models",
    icon: "model",
    group: "Agent",
    owner: true,
    styles: "manage.css",
    load: () => import("./models.js"),
  },
  {
    path: "/tools",
    title: "Tools and memory",
    icon: "tool",
    group: "Agent",
    owner: false,
    styles: "manage.css",
    load: () => import("./tools.js"),
  },
  {
    path: "/settings",
    title: "Settings",
    icon: "settings",
    group: "Agent",
    owner: true,
    styles: "manage.css",
    load: () => import("./settings.js"),
  },
  {
    path: "/people",
    title: "People",
    icon: "people",
    group: "Access",
    owner: true,
    styles: "manage.css",
    load: () => import("./people.js"),
  },
  {
    path: "/browsers",
    title: "Browsers",
    icon: "devices",
    group: "Access",
    owner: false,
    styles: "manage.css",
    load: () => import("./browsers.js"),
  },
  {
    path: "/notifications",
    title: "Notifications",
    icon: "bell",
    group: "Access",
    owner: false,
    load: () => import("./notifications.js"),
  },
];

/** Loaded pages, by path. @type {Map<string, (props: object) => Child>} */
const loaded = new Map();
const loadedCount = signal(0);

/** Whether the style sheet of the menu is loaded, and so its height final. */
const isStyled = signal(false);
void addStyles(COMMON_STYLES).then(() => (isStyled.value = true));

/** Pages that the signed-in person can see. @type {() => PageEntry[]} */
export const visiblePages = () => PAGES.filter((page) => !page.owner || me.value?.owner);

/** Page of the current path. @type {() => PageEntry | undefined} */
const findPage = () =>
  visiblePages().find((page) => path.value === page.path || path.value.startsWith(`${page.path}/`));

// The style sheet of a page applies only while the page is shown, so that class names can't collide.
effect(() => {
  void loadedCount.value;
  useOnly(findPage()?.styles ?? "");
});

/** Current page. @type {(props: object) => Child} */
export function CurrentPage() {
  const entry = findPage();
  void loadedCount.value;
  if (!entry) return h(PageFrame, { title: "Not found" }, emptyState("There is no such page."));
  const Page = loaded.get(entry.path);
  if (Page) return h(Page, { key: entry.path });
  Promise.all([entry.load(), entry.styles ? addStyles(entry.styles) : null]).then(
    ([module]) => {
      loaded.set(entry.path, module.Page);
      loadedCount.value++;
    },
    (error) => (toast.value = describe(error)),
  );
  return h(PageFrame, { title: entry.title });
}

/** Menu of pages, in place of the list of conversations. @type {(props: object) => Child} */
export function PageMenu() {
  const shown = [path.value, isStyled.value];
  useEffect(() => document.querySelector(".page-menu [aria-current]")?.scrollIntoView({ block: "nearest" }), shown);
  const groups = Map.groupBy(visiblePages(), (page) => page.group);
  return nav(
    { class: "list page-menu", "aria-label": "Pages" },
    ...[...groups].map(([group, pages]) =>
      section({ key: group, "aria-label": group }, heading(2, { class: "day" }, group), ul(null, ...pages.map(item)))
    ),
  );
}

/** @type {(page: PageEntry) => Child} */
function item(page) {
  const current = path.value === page.path || path.value.startsWith(`${page.path}/`);
  return li(
    { key: page.path },
    a(
      {
        class: `row page-link ${current ? "current" : ""}`,
        href: page.path,
        "aria-current": current ? "page" : undefined,
        onClick: (event) => followLink(event, page.path),
      },
      icon(page.icon),
      page.title,
    ),
  );
}
