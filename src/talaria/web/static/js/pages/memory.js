/**
 * Memory of the agent about a person: read, add, change and delete facts.
 * @module
 */
import { h, useSignal } from "../../vendor/preact.js";
import { button, div, heading, label, li, option, p, select, textarea, ul } from "../elements.js";
import { post } from "../server.js";
import { attempt, me } from "../state.js";
import { ActionButton, panel, plainForm, textOf } from "./controls.js";
import { failureNotice, useLoaded } from "./frame.js";

/** @import { Child } from "../../vendor/preact.d.ts" */
/** @import { MemoryBook, MemoryItem, MemoryView } from "../wire.d.ts" */

/** @type {(props: object) => Child} */
export function Memory() {
  const person = useSignal("");
  /** @type {import("./frame.js").Loaded<MemoryView>} */
  const { data, failure } = useLoaded(`/web/memory?person=${encodeURIComponent(person.value)}`);
  const view = data.value;
  /** @type {(change: { kind: string, old?: string, new?: string }) => Promise<boolean>} */
  const edit = (change) =>
    attempt(async () => {
      const whose = person.peek();
      /** @type {MemoryView} */
      const changed = await post("/web/memory", { ...change, person: whose });
      if (whose === person.peek()) data.value = changed;
    });
  return panel(
    "Memory",
    "What the agent remembers between conversations. New conversations know it; open ones may still know the old text.",
    failureNotice(failure.value),
    me.value?.owner && view?.people.length
      ? div(
        { class: "field narrow" },
        label({ for: "memory-person" }, "Whose memory"),
        select(
          { id: "memory-person", value: person.value, onChange: (event) => (person.value = textOf(event)) },
          option({ value: "" }, "Mine"),
          ...view.people.map((name) => option({ key: name, value: name }, name)),
        ),
      )
      : null,
    ...(view?.books ?? []).map((book) => h(Book, { key: `${view?.person}:${book.kind}`, book, edit })),
  );
}

/** @type {(props: { book: MemoryBook, edit: (change: { kind: string, old?: string, new?: string }) => Promise<boolean> }) => Child} */
function Book({ book, edit }) {
  const typed = useSignal("");
  const title = book.kind === "user" ? "About the person" : "Notes of the agent";
  const id = `memory-${book.kind}`;
  const add = async () => {
    if (await edit({ kind: book.kind, new: typed.peek() })) typed.value = "";
  };
  return div(
    { class: "card block" },
    div(
      { class: "inline spread" },
      heading(3, { class: "card-title" }, title),
      p({ class: "caption" }, `${book.size.toLocaleString()} of ${book.limit.toLocaleString()} characters`),
    ),
    book.entries.length
      ? ul(
        { class: "plain-list entries-list" },
        ...book.entries.map((entry) => h(Entry, { key: entry.id, entry, kind: book.kind, edit })),
      )
      : p({ class: "caption" }, "Nothing is remembered yet."),
    plainForm(
      "inline-form",
      add,
      div(
        { class: "field grow" },
        label({ class: "offscreen", for: id }, `Add to: ${title}`),
        textarea({
          id,
          rows: 1,
          placeholder: "Something to remember",
          value: typed.value,
          onInput: (event) => (typed.value = textOf(event)),
        }),
      ),
      button({ type: "submit", disabled: !typed.value.trim() }, "Add"),
    ),
  );
}

/** @type {(props: { entry: MemoryItem, kind: string, edit: (change: { kind: string, old?: string, new?: string }) => Promise<boolean> }) => Child} */
function Entry({ entry, kind, edit }) {
  const text = entry.text;
  const draft = useSignal(/** @type {string | null} */ (null));
  const typed = draft.value;
  if (typed !== null) {
    return li(
      null,
      plainForm(
        "inline-form",
        () => edit({ kind, old: text, new: typed }).then((saved) => saved && (draft.value = null)),
        div(
          { class: "field grow" },
          label({ class: "offscreen", for: `edit-${kind}` }, "Entry"),
          textarea({ id: `edit-${kind}`, rows: 2, value: typed, onInput: (event) => (draft.value = textOf(event)) }),
        ),
        button({ type: "submit", class: "primary", disabled: !typed.trim() || typed === text }, "Save"),
        button({ type: "button", onClick: () => (draft.value = null) }, "Cancel"),
      ),
    );
  }
  return li(
    { class: "inline spread" },
    div(
      { class: "grow" },
      p(null, text),
      entry.at
        ? p({ class: "caption" }, `${new Date(entry.at).toLocaleString()} · ${entry.surface || "unknown"}`)
        : null,
    ),
    div(
      { class: "actions-row end" },
      button(
        { type: "button", class: "quiet", "aria-label": `Edit: ${text}`, onClick: () => (draft.value = text) },
        "Edit",
      ),
      h(ActionButton, {
        class: "quiet danger",
        label: "Forget",
        confirm: "Forget it?",
        name: `Forget: ${text}`,
        onRun: () => edit({ kind, old: text }),
      }),
    ),
  );
}
