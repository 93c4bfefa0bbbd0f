/**
 * Browsers that are signed in.
 * @module
 */
import { h, useEffect, useSignal } from "../../vendor/preact.js";
import { get, request } from "../server.js";
import { button, code, div, li, p, span, time, ul } from "../elements.js";
import { attempt, me, signOut } from "../state.js";
import { PageFrame } from "./frame.js";

/** @import { Child } from "../../vendor/preact.d.ts" */
/** @import { BrowserView } from "../wire.d.ts" */

/** @type {(props: object) => Child} */
export function Page() {
  const browsers = useSignal(/** @type {BrowserView[]} */ ([]));
  const load = () =>
    attempt(async () => {
      browsers.value = await get("/web/browsers");
    });
  useEffect(() => void load(), []);
  return h(
    PageFrame,
    { title: "Signed-in browsers" },
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
  );
}
