/**
 * Modal dialogs: command palette, choices of a command, tree of branches, and keyboard help.
 * @module
 */
import { h, useEffect, useLayoutEffect, useRef, useSignal } from "../vendor/preact.js";
import {
  a,
  button,
  dialog,
  div,
  heading,
  icon,
  input,
  label,
  li,
  p,
  span,
  table,
  tbody,
  td,
  tr,
  ul,
} from "./elements.js";
import { farItems, nearItems } from "./palette.js";
import { get } from "./server.js";
import { attempt, choices, conversation, followLink, me, navigate, overlay, runCommand, toast } from "./state.js";

/** @import { Child } from "../vendor/preact.d.ts" */
/** @import { Item } from "./palette.js" */
/** @import { Overlay } from "./state.js" */
/** @import { BranchView, ChoiceView } from "./wire.d.ts" */

const MOST_ITEMS = 40;
const SEARCH_DELAY = 200;
const TABS = { model: "Model", reasoning: "Effort", personality: "Personality" };
const KEYS = [
  ["Ctrl+K", "Command palette"],
  ["/", "Search conversations"],
  ["j, k", "Next and previous conversation in the list"],
  ["g c, g m", "New conversation; pages"],
  ["Enter, Shift+Enter", "Send; new line"],
  ["Ctrl+Enter", "Steer the running turn"],
  ["Esc", "Stop the running turn, while you are in the message field"],
  ["Alt+1 … Alt+4", "Answer an approval: once, in this conversation, always, no"],
  ["@", "Mention a file"],
  ["?", "This help"],
];

/** @type {(props: { shown: Overlay }) => Child} */
export function OverlayView({ shown }) {
  const box = useRef(/** @type {HTMLDialogElement | null} */ (null));
  // The close event of a dialog arrives late: another dialog may be open by then.
  const close = () => void (overlay.peek() === shown && (overlay.value = null));
  useLayoutEffect(() => {
    const before = document.activeElement;
    const opened = box.current;
    opened?.showModal();
    return () => {
      opened?.close(); // nothing behind an open dialog can get the focus
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  const title = shown.kind === "choose"
    ? shown.title
    : { palette: "Command palette", branches: "Branches", help: "Keys" }[shown.kind];
  return dialog(
    {
      ref: box,
      class: `overlay ${shown.kind}`,
      "aria-label": title,
      onCancel: close,
      onClose: close,
      onClick: (event) => {
        if (event.target === box.current) close();
      },
    },
    div(
      { class: "overlay-head" },
      heading(2, { class: shown.kind === "palette" ? "offscreen" : "" }, title),
      button({ class: "quiet", type: "button", "aria-label": "Close", onClick: close }, icon("close")),
    ),
    shown.kind === "palette"
      ? h(Palette, {})
      : shown.kind === "choose"
      ? h(Choose, { key: shown.command, command: shown.command })
      : shown.kind === "branches"
      ? h(Branches, {})
      : help(),
  );
}

function help() {
  return table(
    { class: "keys" },
    tbody(null, ...KEYS.map(([keys, meaning]) => tr(null, td(null, keys), td(null, meaning)))),
  );
}

/** @type {(props: object) => Child} */
function Palette() {
  const typed = useSignal("");
  const far = useSignal(/** @type {Item[]} */ ([]));
  useEffect(() => {
    far.value = [];
    const query = typed.value;
    const timer = setTimeout(async () => {
      const found = await farItems(query);
      if (typed.peek() === query) far.value = found;
    }, SEARCH_DELAY);
    return () => clearTimeout(timer);
  }, [typed.value]);
  const items = [...nearItems(typed.value), ...far.value];
  return h(ItemList, { typed, items, label: "Pages, conversations, commands and settings" });
}

/** Choices of a command: models, efforts, personalities, or chats to move to. @type {(props: { command: string }) => Child} */
function Choose({ command }) {
  const typed = useSignal("");
  const offered = useSignal(/** @type {ChoiceView[] | null} */ (null));
  useEffect(() => {
    const query = new URLSearchParams({ text: `/${command} `, session: conversation.peek()?.id ?? "" });
    void attempt(async () => (offered.value = await get(`/web/completions?${query}`)));
  }, []);
  /** @param {string} value */
  const choose = async (value) => {
    const line = `/${command} ${value}`;
    overlay.value = null;
    if (!conversation.peek()) {
      choices.value = new Map(choices.peek()).set(command, line);
      return;
    }
    const shown = await runCommand(line);
    if (shown.length) toast.value = shown.join(" ").replaceAll("`", "");
  };
  const lower = typed.value.toLowerCase();
  const items = (offered.value ?? [])
    .filter((one) => one.value.toLowerCase().includes(lower) && !["show", "hide"].includes(one.value))
    .map((one) => ({ text: one.value, about: one.help, run: () => void attempt(() => choose(one.value)) }));
  return div(
    { class: "choose" },
    command in TABS
      ? div(
        { class: "tabs" },
        ...Object.entries(TABS).map(([name, title]) =>
          button(
            {
              type: "button",
              class: "quiet",
              "aria-pressed": name === command ? "true" : "false",
              onClick: () => (overlay.value = { kind: "choose", command: name, title }),
            },
            title,
          )
        ),
      )
      : null,
    h(ItemList, { typed, items, label: "Filter" }),
    offered.value && !items.length ? p({ class: "empty" }, "Nothing to choose from.") : null,
    command === "model" && me.value?.owner ? comparison() : null,
  );
}

/** Link to the page with prices and context limits of all models. @type {() => Child} */
function comparison() {
  const id = conversation.value?.id;
  const to = id ? `/models/for/${id}` : "/models";
  return p(
    { class: "overlay-foot" },
    a({ href: to, onClick: (event) => followLink(event, to) }, "Compare models and prices"),
  );
}

/**
 * Text field with a list of items, selected with the arrow keys.
 * @type {(props: { typed: { value: string }, items: Item[], label: string }) => Child}
 */
function ItemList({ typed, items, label: title }) {
  const index = useSignal(0);
  const list = useRef(/** @type {HTMLElement | null} */ (null));
  const field = useRef(/** @type {HTMLElement | null} */ (null));
  useLayoutEffect(() => field.current?.focus(), []); // before the next key
  const shown = items.slice(0, MOST_ITEMS);
  const current = Math.min(index.value, shown.length - 1);
  useLayoutEffect(() => {
    list.current?.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest" });
  });
  /** @param {KeyboardEvent} event */
  const press = (event) => {
    if (event.isComposing || !shown.length) return;
    if (event.key === "ArrowDown") index.value = (current + 1) % shown.length;
    else if (event.key === "ArrowUp") index.value = (current + shown.length - 1) % shown.length;
    else if (event.key === "Enter") shown[current]?.run();
    else return;
    event.preventDefault();
  };
  return div(
    { class: "items" },
    label({ class: "offscreen", for: "overlay-field" }, title),
    input({
      id: "overlay-field",
      type: "text",
      role: "combobox",
      ref: field,
      autofocus: true,
      placeholder: title,
      autocomplete: "off",
      value: typed.value,
      "aria-expanded": "true",
      "aria-controls": "overlay-items",
      "aria-activedescendant": shown.length ? `item-${current}` : undefined,
      onInput: (event) => {
        typed.value = /** @type {HTMLInputElement} */ (event.target).value;
        index.value = 0;
      },
      onKeyDown: press,
    }),
    ul(
      { id: "overlay-items", role: "listbox", "aria-label": title, ref: list },
      ...shown.map((item, position) =>
        li(
          {
            id: `item-${position}`,
            role: "option",
            "aria-selected": position === current ? "true" : "false",
            onClick: item.run,
          },
          span({ class: "item-text" }, item.text),
          item.about ? span({ class: "item-about" }, item.about) : null,
        )
      ),
    ),
  );
}

/** @type {(props: object) => Child} */
function Branches() {
  const tree = useSignal(/** @type {BranchView[] | null} */ (null));
  const here = conversation.value?.id ?? "";
  useEffect(() => {
    void attempt(async () => (tree.value = await get(`/web/sessions/${here}/tree`)));
  }, []);
  return ul({ class: "tree" }, ...(tree.value ? branchViews(tree.value, "", here) : []));
}

/** @type {(tree: BranchView[], parent: string, here: string) => Child[]} */
function branchViews(tree, parent, here) {
  const known = new Set(tree.map((one) => one.id));
  return tree
    .filter((one) => (parent ? one.parent_id === parent : !known.has(one.parent_id)))
    .map((one) =>
      li(
        null,
        button(
          {
            type: "button",
            class: "quiet",
            "aria-current": one.id === here ? "true" : undefined,
            onClick: () => navigate(`/c/${one.id}`),
          },
          icon("branch"),
          span({ class: "item-text" }, one.title || "Untitled conversation"),
          span(
            { class: "item-about" },
            one.parent_id && parent ? `from message ${one.parent_seq}, ` : "",
            `${one.message_count} messages`,
            one.archived ? ", archived" : "",
          ),
        ),
        ul({ class: "tree" }, ...branchViews(tree, one.id, here)),
      )
    );
}
