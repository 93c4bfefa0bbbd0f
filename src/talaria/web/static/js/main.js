/**
 * The start of the app: sign in if the address has a code, then draw.
 * @module
 */
import { effect, h, render, signal } from "../vendor/preact.js";
import { describe } from "./server.js";
import { ChatPage } from "./chat.js";
import { a, button, div, icon, p, span } from "./elements.js";
import { setTheme, Sidebar } from "./sidebar.js";
import { connected, drawerOpen, me, navigate, notice, onPage, pages, signIn, start, toast } from "./state.js";

/** @import { NoticeMessage } from "./wire.d.ts" */
/** @import { Child, Signal } from "../vendor/preact.d.ts" */

const TOAST_MILLISECONDS = 8000;
let problem = "";
/** The page for signing in, once it is loaded. @type {Signal<typeof import("./pages/sign_in.js") | null>} */
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
  if (me.value === undefined) return div({ class: "boot" }, "Talaria");
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
    onPage() ? (pages.value ? h(pages.value.CurrentPage, {}) : null) : h(ChatPage, {}),
    notice.value ? noticeView(notice.value) : null,
    toast.value
      ? div(
        { class: "toast", role: "alert" },
        span(null, toast.value),
        button({ class: "quiet", type: "button", onClick: () => (toast.value = "") }, "Close"),
      )
      : null,
  );
}

/** News of another conversation, which a click opens. @type {(news: NoticeMessage) => Child} */
function noticeView({ kind, session, title, text }) {
  const close = () => (notice.value = null);
  const open = () => {
    close();
    navigate(session ? `/c/${session}` : "/");
  };
  const names = { asked: "Waiting for you", answered: "New answer", delivered: "New message", pairing: "Pairing" };
  const name = /** @type {Record<string, string>} */ (names)[kind] ?? "New";
  return div(
    { class: "toast news", role: "status" },
    button({ class: "quiet", type: "button", onClick: open }, `${title || name}: ${text.slice(0, 120)}`),
    button({ class: "quiet", type: "button", "aria-label": "Close", onClick: close }, icon("close")),
  );
}

effect(() => {
  if (!notice.value) return;
  const timer = setTimeout(() => (notice.value = null), TOAST_MILLISECONDS);
  return () => clearTimeout(timer);
});

effect(() => {
  if (!toast.value) return;
  const timer = setTimeout(() => (toast.value = ""), TOAST_MILLISECONDS);
  return () => clearTimeout(timer);
});

addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    drawerOpen.value = true;
    document.getElementById("search")?.focus();
  }
});

/** Do what can wait: install the app, send what could not be sent. */
function finishLater() {
  const later = globalThis.requestIdleCallback ?? ((/** @type {() => void} */ work) => setTimeout(work, 500));
  later(() => void import("./installed.js").then(({ install }) => install()).catch(() => null));
}

effect(() => {
  if (!me.value || !connected.value || !localStorage.getItem("unsent")) return;
  void import("./unsent.js").then(({ sendWaiting }) => sendWaiting()).catch(() => null);
});

async function boot() {
  setTheme(localStorage.getItem("theme") ?? "system");
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (code) {
    // The code is good for one use: it leaves the address at once, so that it is in no history.
    history.replaceState(null, "", location.pathname);
    try {
      await signIn(code);
    } catch (error) {
      problem = describe(error);
      await start();
    }
  } else await start();
  finishLater();
}

const root = document.getElementById("app");
if (root) {
  render(h(App, {}), root);
  boot().catch((error) => render(p({ class: "notice error", role: "alert" }, describe(error)), root));
}
