/**
 * Signing in.
 * @module
 */
import { useSignal } from "../../vendor/preact.js";
import { describe } from "../server.js";
import { button, code, form, heading, input, label, li, main, p, ul } from "../elements.js";
import { signIn } from "../state.js";

/** @import { Child } from "../../vendor/preact.d.ts" */

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
