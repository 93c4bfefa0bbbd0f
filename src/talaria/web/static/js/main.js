/**
 * Entry point of the app: sign in if the address has a code, then render.
 * @module
 */
import { effect, h, render, signal } from "../vendor/preact.js";
import { describe } from "./server.js";
import { ChatPage } from "./chat.js";
import { a, button, div, lazy, p, span } from "./elements.js";
import { setTheme, Sidebar } from "./sidebar.js";
import {
  connected,
  drawerOpen,
  followLink,
  me,
  navigate,
  onPage,
  outdated,
  overlay,
  pages,
  signIn,
  start,
  toast,
  unreachable,
} from "./state.js";

/** @import { Child, Signal } from "../vendor/preact.d.ts" */

const TOAST_MILLISECONDS = 8000;
const INSTALL_MILLISECONDS = 1000;
const SEQUENCE_MILLISECONDS = 1500;
let problem = "";
/** Time at which the first key of a sequence was pressed. */
let begunAt = -Infinity;
/** Sign-in page, once it is loaded. @type {Signal<typeof import("./pages/sign_in.js") | null>} */
const signInPage = signal(null);

/** @type {(props: object) => Child} */
function SignIn() {
  if (signInPage.value) return h(signInPage.value.SignInPage, { problem });
  import("./pages/sign_in.js").then(
    (loaded) => (signInPage.value = loaded),
    (error) => (toast.value = describe(error)),
  );
  return null;
}

/** @type {(props: object) => Child} */
function App() {
  if (me.value === undefined) {
    return div(
      { class: "boot", role: "status" },
      unreachable.value ? "Talaria can't be reached. Trying again …" : "Talaria",
    );
  }
  if (me.value === null) return h(SignIn, {});
  return div(
    { class: "app" },
    a({ class: "skip", href: "#main" }, "Skip to the conversation"),
    h(Sidebar, {}),
    drawerOpen.value
      ? button({
        class: "scrim",
        type: "button",
        "aria-label": "Close the list",
        onClick: () => (drawerOpen.value = false),
      })
      : null,
    h(LineBanner, {}),
    onPage() ? (pages.value ? h(pages.value.CurrentPage, {}) : null) : h(ChatPage, {}),
    overlay.value
      ? overlays(({ OverlayView }) =>
        overlay.value && h(OverlayView, { key: overlay.value.kind, shown: overlay.value })
      )
      : null,
    toast.value
      ? div(
        { class: "toast", role: "alert" },
        typeof toast.value === "string"
          ? span(null, toast.value)
          : a({ href: toast.value.path, onClick: openNews }, toast.value.text),
        button({ class: "quiet", type: "button", onClick: () => (toast.value = "") }, "Close"),
      )
      : null,
  );
}

/** Connection problem or available update, shown on every page. @type {(props: object) => Child} */
function LineBanner() {
  if (outdated.value) {
    return div(
      { class: "banner line-banner", role: "status" },
      span(null, "A new version of Talaria is running."),
      button({ type: "button", onClick: () => location.reload() }, "Reload"),
    );
  }
  if (connected.value) return null;
  return div({ class: "banner line-banner", role: "status" }, span(null, "Connection lost. Trying again …"));
}

/** Open the page that a toast links to. @param {MouseEvent} event */
function openNews(event) {
  if (typeof toast.value !== "string") followLink(event, toast.value.path);
  toast.value = "";
}

effect(() => {
  if (!toast.value) return;
  const timer = setTimeout(() => (toast.value = ""), TOAST_MILLISECONDS);
  return () => clearTimeout(timer);
});

/** Dialogs above the page, loaded when one is first opened. */
const overlays = lazy(() => import("./overlays.js"));

addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    overlay.value = overlay.peek()?.kind === "palette" ? null : { kind: "palette" };
  } else if (!isTyping(event)) pressKey(event); // at once: the next key may open the focused row
});

effect(() => {
  if (!me.value || !connected.value || !localStorage.getItem("unsent")) return;
  void import("./unsent_messages.js").then(({ sendUnsent }) => sendUnsent()).catch(() => null);
});
/** Whether a key belongs to a field, a dialog or the browser. @param {KeyboardEvent} event */
function isTyping(event) {
  const target = /** @type {Element} */ (event.target);
  return event.ctrlKey || event.metaKey || event.altKey || !me.peek() || overlay.peek() !== null ||
    target.closest("input, textarea, select, dialog") !== null;
}

/** Handle a keyboard shortcut. @param {KeyboardEvent} event */
function pressKey(event) {
  const isSecond = event.timeStamp - begunAt < SEQUENCE_MILLISECONDS;
  begunAt = event.key === "g" && !isSecond ? event.timeStamp : -Infinity;
  if (isSecond && event.key === "c") navigate("/");
  else if (isSecond && event.key === "m") navigate("/home");
  else if (event.key === "?") overlay.value = { kind: "help" };
  else if (event.key === "/") focusSearch(event);
  else if (event.key === "j" || event.key === "k") move(event.key === "j" ? 1 : -1);
}

/** @param {KeyboardEvent} event */
function focusSearch(event) {
  event.preventDefault();
  drawerOpen.value = true;
  document.getElementById("search")?.focus();
}

/** Move to the next or previous row of the list; Enter opens it. @param {number} step */
function move(step) {
  const rows = [...document.querySelectorAll(".list .row-link, .list .hit, .list .page-link")];
  const at = rows.findIndex((row) => row === document.activeElement);
  const current = at >= 0 ? at + step : Math.max(rows.findIndex((row) => row.matches("[aria-current]")), 0);
  const row = rows[Math.min(Math.max(current, 0), rows.length - 1)];
  if (row instanceof HTMLElement) row.focus();
}

// A sign-in link opened in a tab with the app changes only the fragment.
addEventListener("hashchange", () => {
  if (location.hash.startsWith("#code=")) location.reload();
});

async function boot() {
  setTheme(localStorage.getItem("theme") ?? "system");
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (code) {
    // Remove the one-use code from the address, so that it isn't in the history.
    history.replaceState(null, "", location.pathname);
    try {
      await signIn(code);
    } catch (error) {
      problem = describe(error);
      await start();
    }
  } else await start();
  setTimeout(() => {
    void import("./service_worker.js").then(({ install }) => install(), () => null);
    void import("./unsent_messages.js").catch(() => null); // while there is a connection to load it
  }, INSTALL_MILLISECONDS);
}

const root = document.getElementById("app");
if (root) {
  render(h(App, {}), root);
  boot().catch((error) => render(p({ class: "notice error", role: "alert" }, describe(error)), root));
}
