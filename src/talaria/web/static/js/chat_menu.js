/**
 * Menu of a conversation: effort, personality, branches, handoff, trace, export and archive.
 * @module
 */
import { useEffect, useRef } from "../vendor/preact.js";
import { a, button, div } from "./elements.js";
import { attempt, changeSession, followLink, me, navigateFromHere, overlay } from "./state.js";

/** @import { Child } from "../vendor/preact.d.ts" */
/** @import { Conversation } from "./conversation.js" */
/** @import { Overlay } from "./state.js" */

/** @type {(props: { conversation: Conversation, onClose: () => void }) => Child} */
export function ChatMenu({ conversation, onClose }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const { detail: { value: detail }, id } = conversation;
  useEffect(() => {
    box.current?.querySelector("button")?.focus();
    /** @param {Event} event */
    const leave = (event) => {
      const target = /** @type {Element} */ (event.target);
      if (!box.current?.contains(target) && !target.closest(".chat-head")) onClose();
    };
    addEventListener("pointerdown", leave);
    return () => removeEventListener("pointerdown", leave);
  }, []);
  if (!detail) return null;
  const commands = new Set(me.value?.commands.map((one) => one.name));
  /** @type {(text: string, next: Overlay, shown?: unknown) => Child} */
  const opens = (text, next, shown = true) =>
    shown
      ? button({
        type: "button",
        onClick: () => {
          onClose();
          overlay.value = next;
        },
      }, text)
      : null;
  const archive = async () => {
    const go = navigateFromHere();
    await changeSession(id, { archived: !detail.archived });
    if (!detail.archived) go("/");
  };
  const isHere = !detail.elsewhere;
  return div(
    {
      class: "menu head-menu",
      ref: box,
      onKeyDown: (event) => {
        if (event.key === "Escape") onClose();
      },
    },
    opens("Reasoning effort …", choice("reasoning", "Effort"), isHere && commands.has("reasoning")),
    opens("Personality …", choice("personality", "Personality"), isHere && commands.has("personality")),
    opens(`Branches (${detail.branches}) …`, { kind: "branches" }, detail.branches),
    opens("Move to …", choice("move", "Move this conversation to"), isHere && commands.has("move")),
    a({ href: `/trace/${id}`, onClick: (event) => followLink(event, `/trace/${id}`) }, "Trace"),
    a({ href: `/web/sessions/${id}/export`, download: "", onClick: onClose }, "Export as Markdown"),
    a({ href: `/web/sessions/${id}/export?format=json`, download: "", onClick: onClose }, "Export as JSON"),
    button({ type: "button", onClick: () => void attempt(archive) }, detail.archived ? "Restore" : "Archive"),
  );
}

/** @type {(command: string, title: string) => Overlay} */
const choice = (command, title) => ({ kind: "choose", command, title });
