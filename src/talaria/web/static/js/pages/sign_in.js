/**
 * Sign-in page: enter a code from the agent's computer, or show a code that the owner approves.
 * @module
 */
import { h, useEffect, useSignal } from "../../vendor/preact.js";
import { describe, get, post } from "../server.js";
import { button, code, div, form, heading, input, label, li, main, p, ul } from "../elements.js";
import { signIn, start } from "../state.js";
import { insecureNotice } from "./parts.js";

/** @import { Child } from "../../vendor/preact.d.ts" */
/** @import { PairingCodeView, PairingState } from "../wire.d.ts" */

/** @type {(props: { problem: string }) => Child} */
export function SignInPage({ problem }) {
  const typed = useSignal("");
  const failure = useSignal(problem);
  const busy = useSignal(false);
  const shown = useSignal(/** @type {PairingCodeView | null} */ (null));
  /** @param {() => Promise<unknown>} action */
  const run = async (action) => {
    busy.value = true;
    failure.value = "";
    try {
      await action();
    } catch (error) {
      failure.value = describe(error);
    }
    busy.value = false;
  };
  const ask = () =>
    run(async () => {
      shown.value = await post("/web/pairing");
    });
  return main(
    { class: "sign-in", id: "main" },
    heading(1, null, "Talaria"),
    insecureNotice(),
    shown.value
      ? h(WaitForOwner, {
        shown: shown.value,
        onEnd: (text) => {
          shown.value = null;
          failure.value = text;
        },
      })
      : div(
        { class: "sign-in-ways" },
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
              void run(() => signIn(typed.peek()));
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
        button(
          { type: "button", class: "quiet", disabled: busy.value, onClick: () => void ask() },
          "Ask the owner instead",
        ),
      ),
    failure.value ? p({ class: "notice error", role: "alert" }, failure.value) : null,
  );
}

/** Code to show to the owner, until they have decided. @type {(props: { shown: PairingCodeView, onEnd: (failure: string) => void }) => Child} */
function WaitForOwner({ shown, onEnd }) {
  useEffect(() => {
    let isOpen = true;
    const wait = async () => {
      while (isOpen) {
        /** @type {PairingState} */
        const state = await get("/web/pairing");
        if (!isOpen || state.waiting) continue;
        if (state.approved) await start();
        else onEnd("The owner refused, or the code has expired.");
        return;
      }
    };
    wait().catch((error) => isOpen && onEnd(describe(error)));
    return () => void (isOpen = false);
  }, []);
  return div(
    { class: "sign-in-ways" },
    p(null, "Show this code to the owner of the agent:"),
    p({ class: "big-code" }, shown.code),
    ul(
      null,
      li(null, "in a signed-in browser, on the page Browsers,"),
      li(null, "in a terminal: ", code(null, `talaria pairing approve web ${shown.code}`)),
      li(null, "or in a chat: ", code(null, `/pairing approve web ${shown.code}`)),
    ),
    p({ class: "caption", role: "status" }, `Waiting for the owner. The code works for ${shown.minutes} minutes.`),
    button({ type: "button", onClick: () => onEnd("") }, "Cancel"),
  );
}
