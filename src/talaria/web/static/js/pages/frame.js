/**
 * Common parts of pages: frame with a title, loading of data, and style sheets.
 * @module
 */
import { h, useEffect, useRef, useSignal } from "../../vendor/preact.js";
import { button, div, header, heading, icon, main, p } from "../elements.js";
import { describe, get } from "../server.js";
import { assetBase, connected, drawerOpen, pageChange, pageTopics } from "../state.js";
import { acceptInOrder } from "./request_order.js";

/** @import { Child, Signal } from "../../vendor/preact.d.ts" */

/** Style sheet of all pages. */
export const COMMON_STYLES = "pages.css";

/**
 * Page with its title, `actions` next to it, and its content.
 * @type {(props: { title: string, actions?: Child, wide?: boolean, children?: Child }) => Child}
 */
export function PageFrame({ title, actions = null, wide = false, children }) {
  useEffect(() => void (document.title = `${title} · Talaria`), [title]);
  return main(
    { class: "page", id: "main" },
    header(
      { class: "chat-head" },
      button(
        {
          class: "quiet only-small",
          type: "button",
          "aria-label": "Menu",
          onClick: () => (drawerOpen.value = true),
        },
        icon("menu"),
      ),
      heading(1, null, title),
      actions ? div({ class: "page-actions" }, actions) : null,
    ),
    div({ class: wide ? "page-body wide" : "page-body", tabIndex: 0 }, children),
  );
}

/**
 * Page of cards with a button that adds one. `form` gets a function that closes the form; `content` gets one that opens
 * it, or `null` while it is open.
 * @type {(props: {
 *   title: string, add: string, failure: string, form: (onClose: () => void) => Child, content: (onOpen: (() => void) | null) => Child[],
 * }) => Child}
 */
export function CardPage({ title, add, failure, form, content }) {
  const adding = useSignal(false);
  const open = () => (adding.value = true);
  const close = () => (adding.value = false);
  const actions = button(
    { type: "button", class: "primary", onClick: adding.value ? close : open },
    icon("plus"),
    add,
  );
  return h(
    PageFrame,
    { title, actions },
    failureNotice(failure),
    adding.value ? form(close) : null,
    ...content(adding.value ? null : open),
  );
}

/**
 * @template T
 * @typedef {object} Loaded
 * @property {Signal<T | null>} data Loaded data; `null` until then.
 * @property {Signal<string>} failure Error message; empty if the data was loaded.
 * @property {() => Promise<void>} reload Load it again.
 */

/**
 * Load data when a page opens, and again when `address` changes.
 * @template T
 * @param {string} address
 * @returns {Loaded<T>}
 */
export function useLoaded(address) {
  const data = useSignal(/** @type {T | null} */ (null));
  const failure = useSignal("");
  const startRequest = useRef(acceptInOrder()).current;
  const current = useRef(address);
  current.current = address;
  const reload = async () => {
    const isNewer = startRequest();
    try {
      /** @type {T} */
      const found = await get(address);
      if (address !== current.current || !isNewer()) return;
      data.value = found;
      failure.value = "";
    } catch (error) {
      if (address === current.current && isNewer()) failure.value = describe(error);
    }
  };
  useEffect(() => void reload(), [address]);
  return { data, failure, reload };
}

/**
 * Load data, and load it again when the server reports a change of this page, or after a lost connection.
 * @template T
 * @param {string} address
 * @param {string} topic
 * @returns {Loaded<T>}
 */
export function useLive(address, topic) {
  const loaded = /** @type {Loaded<T>} */ (useLoaded(address));
  useEffect(() => {
    pageTopics.value = [topic];
    return () => void (pageTopics.value = []);
  }, [topic]);
  const { page, count } = pageChange.value;
  const changed = page === topic ? count : 0;
  const isConnected = connected.value;
  const first = useRef(true);
  useEffect(() => {
    if (!first.current && isConnected) void loaded.reload();
    first.current = false;
  }, [changed, isConnected]);
  return loaded;
}

/** Create a function that runs a change and then loads the page again. @type {(reload: () => Promise<void>) => (change: () => unknown) => () => Promise<void>} */
export const reloadAfter = (reload) => (change) => async () => {
  await change();
  await reload();
};

/** Requested style sheets, by file. @type {Map<string, { link: HTMLLinkElement, loading: Promise<void> }>} */
const styles = new Map();

/** Enable the style sheet of one page and disable those of others; empty for none. @type {(file: string) => void} */
export function useOnly(file) {
  for (const [name, { link }] of styles) {
    if (name !== COMMON_STYLES && link.sheet) link.sheet.disabled = name !== file;
  }
}

/** Load a style sheet once; if that fails, the page stays unstyled. @type {(file: string) => Promise<void>} */
export function addStyles(file) {
  const known = styles.get(file);
  if (known) return known.loading;
  const link = document.createElement("link");
  const loading = new Promise((/** @type {(nothing: void) => void} */ resolve) => {
    link.onload = link.onerror = () => resolve();
  });
  link.rel = "stylesheet";
  link.href = `${assetBase}/${file}`;
  document.head.append(link);
  styles.set(file, { link, loading });
  return loading;
}

/** Placeholder for an empty list. @type {(text: string, ...more: Child[]) => Child} */
export const emptyState = (text, ...more) => div({ class: "empty-state" }, p(null, text), ...more);

/** Error message as a notice. @type {(text: string) => Child} */
export const failureNotice = (text) => (text ? p({ class: "notice error", role: "alert" }, text) : null);
