/**
 * Message composer: drafts that survive a reload, slash commands with completion, send, steer and stop.
 * @module
 */
import { h, useEffect, useLayoutEffect, useRef, useSignal } from "../vendor/preact.js";
import { get, newId, trackNewest } from "./server.js";
import { filesKey, putBefore, readDraft, storeDraft } from "./drafts.js";
import { button, div, form, icon, label, li, span, textarea, ul } from "./elements.js";
import { attempt, compose, conversation, deliver, me, navigateFromHere, runCommand } from "./state.js";

/** @import { Attachments } from "./attachments.js" */
/** @import { Conversation } from "./conversation.js" */
/** @import { Child, Signal } from "../vendor/preact.d.ts" */
/** @import { ChoiceView } from "./wire.d.ts" */

const MOST_OFFERED = 8;
const COMPLETION_DELAY = 120;
/** Whether this is a phone or tablet with an on-screen keyboard; a device without a pointer has a physical one. */
const coarse = matchMedia("(pointer: coarse)").matches;

/** Whether a text is a slash command, not a path. @type {(text: string) => boolean} */
export const isCommand = (text) => /^\/[^\s/]+(\s|$)/.test(text);

/** @type {(props: { id: string, onNotes: (notes: string[]) => void }) => Child} */
export function Composer({ id, onNotes }) {
  const text = useSignal(readDraft(id));
  const sending = useSignal(false);
  const box = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  const caret = useSignal(text.value.length);
  const offers = useOffers(text, caret, box);
  const shown = conversation.value;
  const running = shown?.running ?? false;
  const editing = shown?.editing.value ?? null;
  const attached = useSignal(/** @type {Attachments | null} */ (null));
  const isEmpty = !text.value.trim() && !attached.value?.files.value.length;

  /** Load the attachments module and run an action with it. @param {(loaded: Attachments) => void} action */
  const withFiles = (action) =>
    void attempt(async () => {
      const { Attachments } = await import("./attachments.js");
      attached.value ??= new Attachments(id);
      action(attached.value);
    });
  /** @type {(event: Event, files: FileList | undefined) => void} */
  const addFiles = (event, files) => {
    if (!files?.length) return;
    event.preventDefault();
    const chosen = [...files];
    withFiles((loaded) => loaded.add(chosen));
  };
  const voice = useSignal(/** @type {typeof import("./voice.js") | null} */ (null));
  useEffect(() => {
    if (localStorage.getItem(filesKey(id))) withFiles(() => {});
    if (me.peek()?.voice && navigator.mediaDevices) void import("./voice.js").then((loaded) => (voice.value = loaded));
  }, []);

  useLayoutEffect(() => {
    if (!editing) storeDraft(id, text.value);
  }, [text.value]);
  // A layout effect runs before the next input event, so it can't overwrite newly typed text.
  useLayoutEffect(() => {
    if (editing) setText(editing.text);
    else if (box.current) text.value = readDraft(id);
  }, [editing]);
  useLayoutEffect(() => {
    if (!compose.value) return;
    setText(compose.value);
    compose.value = "";
  }, [compose.value]);
  useLayoutEffect(() => fit(box.current), [text.value]);
  const isOpen = useRef(true);
  useLayoutEffect(() => {
    if (!coarse) box.current?.focus();
    return () => void (isOpen.current = false);
  }, []);

  /** @param {string} value */
  const setText = (value) => {
    text.value = value;
    caret.value = value.length;
    box.current?.focus();
  };

  /** Restore a message after a failed send, before newly typed text. @param {string} message */
  const putBack = (message) =>
    isOpen.current ? (text.value = putBefore(message, text.peek())) : storeDraft(id, putBefore(message, readDraft(id)));

  /** @param {boolean} steer */
  const send = async (steer) => {
    const message = text.peek().trim();
    if (isEmpty || sending.peek()) return;
    sending.value = true;
    text.value = "";
    const uploads = isCommand(message) ? [] : await attached.peek()?.take() ?? [];
    const done = await attempt(async () => {
      if (shown && editing) await sendEdited(shown, editing.seq, message);
      else if (isCommand(message)) onNotes(await runCommand(message));
      else await deliver(shown, { text: message, id: newId(), steer, files: uploads.map((one) => one.id) });
    });
    sending.value = false;
    if (!done && message) putBack(message);
    if (!done) attached.peek()?.putBack(uploads);
  };

  /** @param {KeyboardEvent} event */
  const press = (event) => {
    // Enter belongs to an active input method; Safari reports it only by the key code.
    if (event.isComposing || event.keyCode === 229) return;
    if (offers.press(event)) return;
    if (event.key === "Enter" && !event.shiftKey && !coarse) {
      event.preventDefault();
      void send(event.ctrlKey || event.metaKey || event.altKey);
    } else if (event.key === "Escape" && editing && shown) {
      event.preventDefault();
      shown.editing.value = null;
    } else if (event.key === "Escape" && running) {
      event.preventDefault();
      if (shown) void attempt(() => shown.stop());
    }
  };

  const hint = editing ? "Edit your message" : running ? "Queue a message" : "Message Talaria";
  return form(
    {
      class: "composer",
      onDragOver: (event) => event.preventDefault(),
      onDrop: (event) => addFiles(event, event.dataTransfer?.files),
      onSubmit: (event) => {
        event.preventDefault();
        void send(false);
      },
    },
    offers.list(),
    shown && editing
      ? div(
        { class: "banner", role: "status" },
        span(null, "Your edited message continues in a branch; this conversation stays as it is."),
        button({ type: "button", onClick: () => (shown.editing.value = null) }, "Cancel"),
      )
      : null,
    attached.value?.view(),
    div(
      { class: "composer-box" },
      button(
        {
          class: "quiet attach",
          type: "button",
          "aria-label": "Attach files",
          title: "Attach files",
          onClick: () => withFiles((loaded) => loaded.choose(false)),
        },
        icon("clip"),
      ),
      coarse
        ? button(
          {
            class: "quiet attach",
            type: "button",
            "aria-label": "Take a photo",
            onClick: () => withFiles((loaded) => loaded.choose(true)),
          },
          icon("camera"),
        )
        : null,
      label({ class: "offscreen", for: "composer" }, "Message"),
      textarea({
        ref: box,
        id: "composer",
        rows: 1,
        placeholder: hint,
        value: text.value,
        autocomplete: "off",
        enterkeyhint: "enter",
        "aria-autocomplete": "list",
        "aria-controls": "offers",
        "aria-activedescendant": offers.open ? `offer-${offers.index}` : undefined,
        onInput: (event) => {
          const field = /** @type {HTMLTextAreaElement} */ (event.target);
          caret.value = field.selectionStart;
          text.value = field.value;
        },
        onKeyDown: press,
        onPaste: (event) => addFiles(event, event.clipboardData?.files),
      }),
      voice.value ? h(voice.value.VoiceButton, { text }) : null,
      running && shown
        ? button(
          {
            class: "round stop",
            type: "button",
            "aria-label": "Stop",
            title: "Stop (Esc)",
            onClick: () => void attempt(() => shown.stop()),
          },
          icon("stop"),
        )
        : null,
      running && text.value.trim() && !isCommand(text.value)
        ? button(
          {
            class: "steer",
            type: "button",
            title: "Join the running turn (Ctrl+Enter)",
            onClick: () => void send(true),
          },
          "Steer",
        )
        : null,
      button(
        {
          class: "round primary",
          type: "submit",
          "aria-label": running ? "Queue" : "Send",
          disabled: isEmpty || sending.value,
        },
        icon("send"),
      ),
    ),
  );
}

/** Send an edited message, which starts a branch. @type {(shown: Conversation, seq: number, text: string) => Promise<void>} */
async function sendEdited(shown, seq, text) {
  const go = navigateFromHere();
  const { session_id } = await shown.branch(seq, text);
  shown.editing.value = null;
  if (session_id) go(`/c/${session_id}`);
}

/** Fit the height of the field to its text. @param {HTMLTextAreaElement | null} box */
function fit(box) {
  if (!box) return;
  box.style.height = "auto";
  box.style.height = `${Math.min(box.scrollHeight, innerHeight * 0.4)}px`;
}

/** Completable text before the caret: a command line, or a file name after `@`. @param {string} before */
export function findCompletable(before) {
  if (before.startsWith("/") && !before.includes("\n")) return before;
  return /(?:^|\s)(@[^\s"]*)$/.exec(before)?.[1] ?? "";
}

/**
 * Completions for the text before the caret: commands, arguments of a command, and files after `@`.
 * @param {Signal<string>} text
 * @param {Signal<number>} caret
 * @param {{ current: HTMLTextAreaElement | null }} box
 */
function useOffers(text, caret, box) {
  const found = useSignal(/** @type {ChoiceView[]} */ ([]));
  const index = useSignal(0);
  const dismissed = useSignal("");
  const value = findCompletable(text.value.slice(0, caret.value));
  const isName = value.startsWith("/") && !value.includes(" ");

  const startRequest = useRef(trackNewest()).current;
  useEffect(() => {
    const isNewest = startRequest();
    index.value = 0;
    if (!value || isName) {
      found.value = isName ? offerCommands(value.slice(1).toLowerCase()) : [];
      return;
    }
    const timer = setTimeout(() => {
      const query = new URLSearchParams({ text: value, session: conversation.peek()?.id ?? "" });
      get(`/web/completions?${query}`).then(
        (/** @type {ChoiceView[]} */ choices) => void (isNewest() && (found.value = filterChoices(choices, value))),
        () => void (isNewest() && (found.value = [])),
      );
    }, COMPLETION_DELAY);
    return () => clearTimeout(timer);
  }, [value]);

  const open = found.value.length > 0 && dismissed.value !== value;
  /** @param {ChoiceView} choice */
  const take = (choice) => {
    const before = text.peek().slice(0, caret.peek() - value.length) + complete(value, choice.value);
    text.value = before + text.peek().slice(caret.peek());
    caret.value = before.length;
    requestAnimationFrame(() => {
      box.current?.focus();
      box.current?.setSelectionRange(before.length, before.length);
    });
  };

  /** @param {KeyboardEvent} event */
  const press = (event) => {
    if (!open) return false;
    const count = found.peek().length;
    const chosen = found.peek()[index.peek()];
    if (event.key === "ArrowDown") index.value = (index.peek() + 1) % count;
    else if (event.key === "ArrowUp") index.value = (index.peek() + count - 1) % count;
    else if (event.key === "Escape") dismissed.value = value;
    else if (event.key === "Tab" && !event.shiftKey && chosen) take(chosen);
    else if (event.key === "Enter" && chosen && canTake(value, chosen)) take(chosen);
    else return false;
    event.preventDefault();
    return true;
  };

  const list = () =>
    ul(
      { id: "offers", class: "offers", role: "listbox", "aria-label": "Completions", hidden: !open },
      ...(open ? found.value : []).map((choice, position) =>
        li(
          {
            id: `offer-${position}`,
            role: "option",
            "aria-selected": position === index.value ? "true" : "false",
            onClick: () => take(choice),
          },
          span({ class: "offer-value" }, isName ? `/${choice.value}` : choice.value),
          span({ class: "offer-help" }, choice.help),
        )
      ),
    );

  return { open, index: index.value, press, list };
}

/** Whether Enter accepts a completion: an incomplete command name, or a file. @type {(value: string, choice: ChoiceView) => boolean} */
const canTake = (value, choice) =>
  value.startsWith("@") ? `@${choice.value}` !== value : !value.includes(" ") && `/${choice.value}` !== value;

/** @type {(value: string, chosen: string) => string} */
function complete(value, chosen) {
  if (value.startsWith("@")) {
    const end = chosen.endsWith("/") ? "" : " ";
    return chosen.includes(" ") ? `@"${chosen}"${end}` : `@${chosen}${end}`;
  }
  return value.includes(" ") ? `${value.slice(0, value.indexOf(" "))} ${chosen}` : `/${chosen} `;
}

/** Choices that contain the typed text; those that start with it come first. @type {(choices: ChoiceView[], value: string) => ChoiceView[]} */
function filterChoices(choices, value) {
  const typed = value.startsWith("@") ? "" : value.slice(value.indexOf(" ") + 1).toLowerCase();
  const matching = choices.filter((one) => one.value.toLowerCase().includes(typed));
  const rank = (/** @type {ChoiceView} */ one) => (one.value.toLowerCase().startsWith(typed) ? 0 : 1);
  return matching.sort((one, other) => rank(one) - rank(other)).slice(0, MOST_OFFERED);
}

/** @type {(typed: string) => ChoiceView[]} */
function offerCommands(typed) {
  const commands = me.peek()?.commands ?? [];
  return commands
    .filter((one) => one.name.startsWith(typed))
    .slice(0, MOST_OFFERED)
    .map((one) => ({ value: one.name, help: one.help }));
}
