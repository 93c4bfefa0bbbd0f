/**
 * Signing in, and the browsers that are signed in.
 * @module
 */
import { useEffect, useSignal } from "../vendor/preact.js";
import { describe, get, request } from "./server.js";
import {
  button,
  code,
  div,
  form,
  header,
  heading,
  icon,
  input,
  label,
  li,
  main,
  p,
  span,
  time,
  ul,
} from "./elements.js";
import { attempt, drawerOpen, me, signIn, signOut } from "./state.js";

/** @import { Child } from "../vendor/preact.d.ts" */
/** @import { BrowserView } from "./wire.d.ts" */

/** @type {(props: { problem: string }) => Child} */
export function SignInPage({ problem }) {
  const typed = useSignal("");
  const failure = useSignal(problem);
  const busy = useSignal(false);
  const submit = async () => {
    busy.value = true;
    failure.value = "";
    try {
      await signIn(typed.peek());
    } catch (error) {
      failure.value = describe(error);
    }
    busy.value = false;
  };
  return main(
    { class: "sign-in", id: "main" },
    heading(1, null, "Talaria"),
    p(null, "Sign in with a code from the computer on which Talaria runs:"),
    ul(
      null,
      li(null, code(null, "talaria web"), " opens a signed-in browser there."),
      li(null, code(null, "talaria web pair"), " shows a code for a phone or another computer."),
    ),
    form(
      {
        onSubmit: (event) => {
          event.preventDefault();
          void submit();
        },
      },
      label({ for: "code" }, "Code"),
      input({
        id: "code",
        type: "text",
        autocomplete: "one-time-code",
        spellcheck: false,
        maxlength: 64,
        value: typed.value,
        onInput: (event) => (typed.value = /** @type {HTMLInputElement} */ (event.target).value),
      }),
      button({ type: "submit", class: "primary", disabled: busy.value || !typed.value.trim() }, "Sign in"),
    ),
    failure.value ? p({ class: "notice error", role: "alert" }, failure.value) : null,
  );
}

/** @type {(props: object) => Child} */
export function BrowsersPage() {
  const browsers = useSignal(/** @type {BrowserView[]} */ ([]));
  const load = () =>
    attempt(async () => {
      browsers.value = await get("/web/browsers");
    });
  useEffect(() => void load(), []);
  return main(
    { class: "page", id: "main" },
    header(
      { class: "chat-head" },
      button(
        {
          class: "quiet only-small",
          type: "button",
          "aria-label": "Conversations",
          onClick: () => (drawerOpen.value = true),
        },
        icon("menu"),
      ),
      heading(1, null, "Signed-in browsers"),
    ),
    div(
      { class: "page-body" },
      me.value && !me.value.secure
        ? p({ class: "notice" }, "This connection isn't encrypted. Use it only in a network that you trust.")
        : null,
      ul(
        { class: "cards" },
        ...browsers.value.map((one) =>
          li(
            { key: one.id, class: "card" },
            div(
              null,
              p(
                { class: "card-title" },
                one.label || "Browser",
                one.current ? span({ class: "chip" }, "This one") : null,
              ),
              p(
                { class: "caption" },
                one.person ? `${one.person} · ` : "",
                "Last used ",
                time({ datetime: one.seen_at }, new Date(one.seen_at).toLocaleString()),
              ),
            ),
            button(
              {
                type: "button",
                class: "danger",
                onClick: () =>
                  void attempt(async () => {
                    if (one.current) await signOut();
                    else {
                      await request("DELETE", `/web/browsers/${one.id}`);
                      await load();
                    }
                  }),
              },
              "Sign out",
            ),
          )
        ),
      ),
      p({ class: "caption" }, "To add a phone or another computer, run ", code(null, "talaria web pair"), "."),
      p({ class: "caption" }, `Talaria ${me.value?.version ?? ""}`),
    ),
  );
}
