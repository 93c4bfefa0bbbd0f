/**
 * Browsers of the agent: a list, and a live view in which the person can take over.
 * @module
 */
import { h, useEffect, useRef, useSignal } from "../../vendor/preact.js";
import { a, button, canvas, div, form, input, label, li, p, span, ul } from "../elements.js";
import { post } from "../server.js";
import { attempt, followLink, path } from "../state.js";
import { acceptInOrder } from "./request_order.js";
import { ActionButton, textOf } from "./controls.js";
import { emptyState, failureNotice, PageFrame, useLoaded } from "./frame.js";

/** @import { Child } from "../../vendor/preact.d.ts" */
/** @import { AgentBrowserView, BrowserInput } from "../wire.d.ts" */

/**
 * Frame of the live view; without an image, only the other fields have changed.
 * @typedef {{ image?: string, width?: number, height?: number, url?: string, title?: string, dialog?: string }} ViewFrame
 */

const BASE = "/web/agent-browsers";
const NAMED_KEYS = new Set([
  "Enter",
  "Backspace",
  "Delete",
  "Escape",
  "ArrowUp",
  "ArrowDown",
  "ArrowLeft",
  "ArrowRight",
  "Home",
  "End",
  "PageUp",
  "PageDown",
]);

/** @type {(props: object) => Child} */
export function Page() {
  const sessionId = path.value.split("/")[2] ?? "";
  const { data, failure, reload } = /** @type {import("./frame.js").Loaded<AgentBrowserView[]>} */ (useLoaded(BASE));
  const found = data.value?.find((one) => one.session_id === sessionId);
  return h(
    PageFrame,
    { title: "Browser", wide: Boolean(sessionId) },
    failureNotice(failure.value),
    sessionId && data.value
      ? found ? h(View, { browser: found, reload }) : emptyState("This conversation has no browser.")
      : null,
    !sessionId && data.value && !data.value.length
      ? emptyState("The agent has no browser open. The toolset `browser` gives it one.")
      : null,
    !sessionId && data.value?.length ? ul({ class: "cards" }, ...data.value.map(row)) : null,
  );
}

/** @type {(browser: AgentBrowserView) => Child} */
function row(browser) {
  const address = `/browser/${browser.session_id}`;
  const state = browser.with_person ? "You have it" : browser.running ? "Running" : "Closed";
  return li(
    { key: browser.session_id, class: "card" },
    a({ href: address, onClick: (event) => followLink(event, address) }, browser.title || browser.session_id),
    p({ class: "caption" }, `${state} · ${browser.url || "empty page"}`),
  );
}

/** @type {(props: { browser: AgentBrowserView, reload: () => Promise<void> }) => Child} */
function View({ browser, reload }) {
  const address = `${BASE}/${browser.session_id}`;
  const screen = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const frame = useSignal(/** @type {ViewFrame} */ ({}));
  const typed = useSignal("");
  const mine = browser.with_person;
  /** @type {(...inputs: BrowserInput[]) => void} */
  const send = (...inputs) => void (mine && attempt(() => post(`${address}/input`, { inputs })));
  useEffect(() => {
    const events = new EventSource(`${address}/view`);
    const startRequest = acceptInOrder();
    events.onmessage = (event) => {
      /** @type {ViewFrame} */
      const next = JSON.parse(event.data);
      frame.value = next.image ? next : { ...frame.peek(), dialog: "", title: "", ...next };
      if (next.image && screen.current) void draw(next.image, screen.current, startRequest());
    };
    events.onerror = () => void reload(); // it may have ended
    return () => events.close();
  }, [address]);
  const control = async () => {
    await post(`${address}/control`, { person: !mine });
    await reload();
  };
  return div(
    { class: "work-stack" },
    div(
      { class: "toolbar browser-bar" },
      h(ActionButton, { label: mine ? "Hand back" : "Take over", class: "primary", onRun: control }),
      span({ class: "caption" }, frame.value.title ?? ""),
      span({ class: "caption" }, frame.value.url ?? browser.url),
    ),
    browser.running ? null : p(
      { class: "notice", role: "status" },
      "This browser isn't running. The agent starts it again when it needs it.",
    ),
    frame.value.dialog ? dialogNotice(frame.value.dialog, send) : null,
    canvas({
      ref: screen,
      class: "browser-screen",
      tabIndex: 0,
      role: "img",
      "aria-label": `Page: ${frame.value.title || frame.value.url || "empty"}`,
      onPointerDown: (event) => send({ kind: "down", ...locate(event, frame.value) }),
      onPointerUp: (event) => send({ kind: "move", ...locate(event, frame.value) }, { kind: "up" }),
      onWheel: (event) => send({ kind: "wheel", delta_x: event.deltaX, delta_y: event.deltaY }),
      onKeyDown: (event) => pressKey(event, send),
    }),
    mine
      ? form(
        {
          class: "toolbar browser-bar",
          onSubmit: (event) => {
            event.preventDefault();
            send({ kind: "type", text: typed.peek() });
            typed.value = "";
          },
        },
        label({ class: "offscreen", for: "browser-text" }, "Text to type into the page"),
        input({
          id: "browser-text",
          type: "text",
          autocomplete: "off",
          placeholder: "Text to type into the page",
          value: typed.value,
          onInput: (event) => (typed.value = textOf(event)),
        }),
        button({ type: "submit" }, "Type"),
        button({ type: "button", onClick: () => send({ kind: "key", text: "Enter" }) }, "Enter"),
        button({ type: "button", onClick: () => send({ kind: "key", text: "Tab" }) }, "Tab"),
        button({ type: "button", onClick: () => send({ kind: "back" }) }, "Back"),
      )
      : p({ class: "caption" }, "Take over to click and type. The agent waits until you hand the browser back."),
  );
}

/** @type {(text: string, send: (...inputs: BrowserInput[]) => void) => Child} */
function dialogNotice(text, send) {
  return div(
    { class: "notice toolbar", role: "alert" },
    span(null, text),
    button({ type: "button", onClick: () => send({ kind: "dialog", accept: true }) }, "OK"),
    button({ type: "button", onClick: () => send({ kind: "dialog" }) }, "Cancel"),
  );
}

/**
 * Draw an image, unless a newer one has arrived by the time it is decoded.
 * @param {string} image
 * @param {HTMLCanvasElement} screen
 * @param {() => boolean} isNewer
 */
async function draw(image, screen, isNewer) {
  const bytes = Uint8Array.from(atob(image), (one) => one.charCodeAt(0));
  const picture = await createImageBitmap(new Blob([bytes], { type: "image/jpeg" }));
  if (!isNewer()) return;
  screen.width = picture.width;
  screen.height = picture.height;
  screen.getContext("2d")?.drawImage(picture, 0, 0);
}

/**
 * Position of the pointer in pixels of the page.
 * @param {PointerEvent} event
 * @param {ViewFrame} frame
 */
function locate(event, frame) {
  const box = /** @type {HTMLElement} */ (event.currentTarget).getBoundingClientRect();
  return {
    x: ((event.clientX - box.left) * (frame.width ?? 0)) / box.width,
    y: ((event.clientY - box.top) * (frame.height ?? 0)) / box.height,
  };
}

/** Forward a key, except Tab, which leaves the view. @type {(event: KeyboardEvent, send: (...inputs: BrowserInput[]) => void) => void} */
function pressKey(event, send) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key.length === 1) send({ kind: "type", text: event.key });
  else if (NAMED_KEYS.has(event.key)) send({ kind: "key", text: event.key });
  else return;
  event.preventDefault();
}
