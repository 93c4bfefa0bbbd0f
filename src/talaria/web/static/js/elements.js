/**
 * HTML elements as typed functions: `div({ class: "card" }, "text")`. No string ever becomes HTML.
 * @module
 */
import { h, signal } from "../vendor/preact.js";

/** @import { Child, Ref, Signal, VNode } from "../vendor/preact.d.ts" */

/**
 * Attributes and listeners that the app uses.
 * @typedef {object} Attributes
 * @property {string | number} [key]
 * @property {Ref<any>} [ref]
 * @property {string} [id]
 * @property {string} [class]
 * @property {string} [role]
 * @property {string} [title]
 * @property {string} [lang]
 * @property {string} [type]
 * @property {string} [name]
 * @property {string} [for]
 * @property {string} [href]
 * @property {string} [target]
 * @property {string} [rel]
 * @property {string} [src]
 * @property {string} [alt]
 * @property {string} [loading]
 * @property {string} [download]
 * @property {string} [placeholder]
 * @property {string} [autocomplete]
 * @property {string} [inputmode]
 * @property {string} [enterkeyhint]
 * @property {string} [scope]
 * @property {string} [datetime]
 * @property {string | number} [value]
 * @property {number} [rows]
 * @property {number} [tabIndex]
 * @property {number} [maxlength]
 * @property {number} [start]
 * @property {number} [max]
 * @property {"true" | "false"} [aria-checked]
 * @property {"true" | "false"} [aria-invalid]
 * @property {boolean} [checked]
 * @property {boolean} [disabled]
 * @property {boolean} [hidden]
 * @property {boolean} [open]
 * @property {boolean} [spellcheck]
 * @property {boolean} [inert]
 * @property {boolean} [autofocus]
 * @property {string} [viewBox]
 * @property {string} [d]
 * @property {string} [aria-label]
 * @property {string} [aria-labelledby]
 * @property {string} [aria-describedby]
 * @property {string} [aria-live]
 * @property {string} [aria-controls]
 * @property {string} [aria-activedescendant]
 * @property {string} [aria-autocomplete]
 * @property {"true" | "false"} [aria-expanded]
 * @property {"true" | "false"} [aria-selected]
 * @property {"true" | "false"} [aria-pressed]
 * @property {"true" | "false"} [aria-hidden]
 * @property {"true" | "false"} [aria-busy]
 * @property {"page" | "true"} [aria-current]
 * @property {"true" | "listbox" | "menu" | "dialog"} [aria-haspopup]
 * @property {boolean} [controls]
 * @property {"none" | "metadata"} [preload]
 * @property {string} [data-kind]
 * @property {string} [data-state]
 * @property {string} [data-seq]
 * @property {(event: MouseEvent) => void} [onClick]
 * @property {(event: InputEvent) => void} [onInput]
 * @property {(event: Event) => void} [onChange]
 * @property {(event: SubmitEvent) => void} [onSubmit]
 * @property {(event: KeyboardEvent) => void} [onKeyDown]
 * @property {(event: PointerEvent) => void} [onPointerDown]
 * @property {(event: PointerEvent) => void} [onPointerUp]
 * @property {(event: WheelEvent) => void} [onWheel]
 * @property {(event: ClipboardEvent) => void} [onPaste]
 * @property {(event: DragEvent) => void} [onDragOver]
 * @property {(event: DragEvent) => void} [onDrop]
 * @property {(event: FocusEvent) => void} [onBlur]
 * @property {(event: FocusEvent) => void} [onFocus]
 * @property {(event: Event) => void} [onScroll]
 * @property {(event: Event) => void} [onToggle]
 * @property {(event: Event) => void} [onCancel]
 * @property {(event: Event) => void} [onClose]
 */

/** @typedef {(attributes?: Attributes | null, ...children: Child[]) => VNode} ElementFunction */

/** @type {(tag: string) => ElementFunction} */
const element = (tag) => (attributes, ...children) => h(tag, attributes ?? null, ...children);

export const a = element("a");
export const article = element("article");
export const aside = element("aside");
export const blockquote = element("blockquote");
export const br = element("br");
export const button = element("button");
export const canvas = element("canvas");
export const code = element("code");
export const del = element("del");
export const details = element("details");
export const dialog = element("dialog");
export const div = element("div");
export const em = element("em");
export const footer = element("footer");
export const form = element("form");
export const header = element("header");
export const hr = element("hr");
export const img = element("img");
export const audio = element("audio");
export const input = element("input");
export const label = element("label");
export const li = element("li");
export const main = element("main");
export const nav = element("nav");
export const ol = element("ol");
export const option = element("option");
export const p = element("p");
export const path = element("path");
export const pre = element("pre");
export const progress = element("progress");
export const section = element("section");
export const select = element("select");
export const span = element("span");
export const strong = element("strong");
export const summary = element("summary");
export const svg = element("svg");
export const table = element("table");
export const tbody = element("tbody");
export const td = element("td");
export const textarea = element("textarea");
export const th = element("th");
export const thead = element("thead");
export const time = element("time");
export const tr = element("tr");
export const ul = element("ul");

/** A heading of level 1 to 6. @type {(level: number, attributes: Attributes | null, ...children: Child[]) => VNode} */
export const heading = (level, attributes, ...children) =>
  h(`h${Math.min(Math.max(level, 1), 6)}`, attributes, ...children);

/** Paths of the icons, drawn on a grid of 24. */
const ICONS = {
  bell: "M6 17V11a6 6 0 0112 0v6l2 2H4zM10 21h4",
  camera: "M4 8h4l2-3h4l2 3h4v11H4zM12 10a3 3 0 100 6 3 3 0 000-6z",
  clip: "M8 12l6-6a3 3 0 014 4l-8 8a5 5 0 01-7-7l7-7",
  file: "M6 3h8l4 4v14H6zM14 3v4h4",
  mic: "M12 4a2 2 0 012 2v5a2 2 0 01-4 0V6a2 2 0 012-2zM6 11a6 6 0 0012 0M12 17v3",
  archive: "M4 4h16v4H4zM6 8v12h12V8M10 12h4",
  back: "M15 5l-7 7 7 7",
  branch: "M7 4v16M7 14c8 0 10-3 10-8M17 4v3",
  chart: "M4 20h16M7 16v-5M12 16V6M17 16v-8",
  check: "M5 12l5 5 9-10",
  clock: "M12 4a8 8 0 100 16 8 8 0 000-16zM12 8v4l3 2",
  close: "M6 6l12 12M18 6L6 18",
  copy: "M9 9h11v11H9zM5 15V4h11",
  devices: "M3 5h13v9H3zM6 18h7M18 9h3v10h-5v-3",
  home: "M4 11l8-7 8 7v9h-6v-6h-4v6H4z",
  layers: "M12 4l9 5-9 5-9-5zM3 14l9 5 9-5",
  log: "M5 4h14v16H5zM8 8h8M8 12h8M8 16h5",
  edit: "M4 20l1-5L16 4l4 4L9 19zM14 6l4 4",
  model: "M12 3l8 4.5v9L12 21l-8-4.5v-9zM4 7.5l8 4.5 8-4.5M12 12v9",
  people: "M9 5a3 3 0 100 6 3 3 0 000-6zM3 19a6 6 0 0112 0M16 5a3 3 0 010 6M17 14a6 6 0 014 5",
  settings: "M4 7h9M17 7h3M15 5v4M4 12h3M11 12h9M9 10v4M4 17h7M15 17h5M13 15v4",
  menu: "M4 7h16M4 12h16M4 17h16",
  more: "M12 5v.01M12 12v.01M12 19v.01",
  network: "M12 4v6M5 20v-5h14v5M12 10v5M9 3h6v5H9zM3 18h4v3H3zM17 18h4v3h-4z",
  plus: "M12 5v14M5 12h14",
  pulse: "M3 12h4l3-7 4 14 3-7h4",
  retry: "M5 12a7 7 0 107-7H7M10 2L7 5l3 3",
  search: "M11 4a7 7 0 100 14 7 7 0 000-14zM16 16l5 5",
  send: "M12 19V5M6 11l6-6 6 6",
  stop: "M7 7h10v10H7z",
  target: "M12 4a8 8 0 100 16 8 8 0 000-16zM12 9a3 3 0 100 6 3 3 0 000-6z",
  timeline: "M4 6h9M9 12h11M4 18h7",
  tool: "M14 6a4 4 0 015-1l-3 3 2 2 3-3a4 4 0 01-5 5l-7 8-3-3 8-7a4 4 0 010-4z",
  window: "M3 5h18v14H3zM3 9h18M6 7v.01M9 7v.01",
  undo: "M9 6l-5 5 5 5M4 11h10a5 5 0 010 10h-3",
};

/** @typedef {keyof typeof ICONS} IconName */

/** Decorative icon, hidden from screen readers. @type {(name: IconName) => VNode} */
export const icon = (name) =>
  svg({ class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true" }, path({ d: ICONS[name] }));

/**
 * Create a function that renders with a lazily loaded module; it renders nothing until the module is loaded.
 * @template T
 * @param {() => Promise<T>} load
 * @returns {(draw: (loaded: T) => Child) => Child}
 */
export function lazy(load) {
  /** @type {Signal<T | null>} */
  const loaded = signal(null);
  let isLoading = false;
  return (draw) => {
    const known = loaded.value;
    if (known) return draw(known);
    if (!isLoading) {
      isLoading = true;
      load().then((found) => (loaded.value = found), () => (isLoading = false));
    }
    return null;
  };
}
