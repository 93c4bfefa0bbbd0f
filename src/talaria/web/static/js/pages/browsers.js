/**
 * Signed-in browsers, and codes to sign in others.
 * @module
 */
import { h, useEffect, useSignal } from "../../vendor/preact.js";
import { get, post, request } from "../server.js";
import { button, code, div, label, li, option, p, path, select, span, svg, time, ul } from "../elements.js";
import { attempt, me, signOut, toast } from "../state.js";
import { ActionButton, panel, plainForm, textField, textOf } from "./controls.js";
import { failureNotice, PageFrame, useLive } from "./frame.js";
import { insecureNotice } from "./parts.js";

/** @import { Child } from "../../vendor/preact.d.ts" */
/** @import { BrowserCode, BrowserView, SettingsView } from "../wire.d.ts" */

/** @type {(props: object) => Child} */
export function Page() {
  /** @type {import("./frame.js").Loaded<BrowserView[]>} */
  const { data, failure, reload } = useLive("/web/browsers", "browsers");
  const people = useSignal(/** @type {string[]} */ ([]));
  useEffect(() => {
    if (!me.peek()?.owner) return;
    void attempt(async () => {
      /** @type {SettingsView} */
      const settings = await get("/web/settings");
      people.value = settings.sections.find((one) => one.name === "people")?.entries ?? [];
    });
  }, []);
  return h(
    PageFrame,
    { title: "Signed-in browsers" },
    insecureNotice(),
    failureNotice(failure.value),
    ul({ class: "cards" }, ...(data.value ?? []).map((one) => h(BrowserCard, { key: one.id, one, load: reload }))),
    me.value?.owner ? h(ApproveBrowser, { people: people.value, load: reload }) : null,
    me.value?.owner ? h(AddDevice, { people: people.value }) : null,
    p({ class: "caption" }, `Talaria ${me.value?.version ?? ""}`),
  );
}

/** @type {(props: { one: BrowserView, load: () => Promise<unknown> }) => Child} */
function BrowserCard({ one, load }) {
  const leave = async () => {
    if (one.current) await signOut();
    else {
      await request("DELETE", `/web/browsers/${one.id}`);
      await load();
    }
  };
  return li(
    { class: "card" },
    div(
      { class: "grow" },
      p({ class: "card-title" }, one.label || "Browser", one.current ? span({ class: "chip" }, "This one") : null),
      p(
        { class: "caption" },
        one.person ? `${one.person} · ` : "",
        "Last used ",
        time({ datetime: one.seen_at }, new Date(one.seen_at).toLocaleString()),
      ),
    ),
    h(ActionButton, { class: "danger", label: "Sign out", onRun: leave }),
  );
}

/** @type {(id: string, chosen: string, people: string[], onChange: (name: string) => void) => Child} */
const personField = (id, chosen, people, onChange) =>
  div(
    { class: "field" },
    label({ for: id }, "Whose browser it is"),
    select(
      { id, value: chosen, onChange: (event) => onChange(textOf(event)) },
      option({ value: "" }, "Mine (sees everything)"),
      ...people.map((name) => option({ key: name, value: name }, name)),
    ),
  );

/** @type {(props: { people: string[], load: () => Promise<unknown> }) => Child} */
function ApproveBrowser({ people, load }) {
  const typed = useSignal("");
  const person = useSignal("");
  const approve = () =>
    attempt(async () => {
      await post("/web/browsers/approve", { code: typed.peek(), person: person.peek() });
      toast.value = "The browser is signed in.";
      typed.value = "";
      await load();
    });
  return panel(
    "A browser shows a code",
    "The sign-in page can show a code of 8 letters. Type it here to let that browser in.",
    plainForm(
      "inline-form",
      approve,
      textField("browser-code", "The code it shows", typed.value, (text) => (typed.value = text), {
        placeholder: "ABCD-EFGH",
        maxlength: 20,
      }),
      personField("browser-person", person.value, people, (name) => (person.value = name)),
      button({ type: "submit", class: "primary", disabled: typed.value.trim().length < 8 }, "Sign it in"),
    ),
  );
}

/** @type {(props: { people: string[] }) => Child} */
function AddDevice({ people }) {
  const created = useSignal(/** @type {BrowserCode | null} */ (null));
  const person = useSignal("");
  const make = async () => {
    const whose = person.peek();
    /** @type {BrowserCode} */
    const code = await post("/web/browsers/code", { person: whose });
    if (whose === person.peek()) created.value = code;
  };
  const shown = created.value;
  return panel(
    "Add a phone or another computer",
    "Scan a code with it. The device must reach this address: " + location.origin,
    div(
      { class: "inline-form" },
      personField("device-person", person.value, people, (name) => {
        person.value = name;
        created.value = null;
      }),
      h(ActionButton, { label: shown ? "Make another code" : "Show a code", onRun: make }),
    ),
    shown
      ? div(
        { class: "qr-box", role: "status" },
        qrCode(shown.modules),
        div(
          { class: "stack" },
          p(null, "Scan it, or open ", code(null, shown.address), " there and type"),
          p({ class: "big-code" }, shown.code),
          p({ class: "caption" }, `It works once, for ${shown.minutes} minutes.`),
        ),
      )
      : null,
  );
}

/** QR code, drawn from its rows of modules. @type {(rows: string[]) => Child} */
export function qrCode(rows) {
  const quiet = 3;
  const size = rows.length + 2 * quiet;
  const drawn = rows.flatMap((row, y) =>
    [...row].map((one, x) => one === "1" ? `M${x + quiet} ${y + quiet}h1v1h-1z` : "")
  );
  return svg(
    { class: "qr", viewBox: `0 0 ${size} ${size}`, role: "img", "aria-label": "QR code to sign in" },
    path({ d: drawn.join("") }),
  );
}
