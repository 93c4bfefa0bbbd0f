/**
 * Blocks of code: colours, which are loaded with the first block, and a button to copy.
 * @module
 */
import { h, signal, useEffect, useSignal } from "../vendor/preact.js";
import { button, code, div, icon, pre, span } from "./elements.js";

/** @import { Child, Signal, VNode } from "../vendor/preact.d.ts" */

const MOST_COLOURED = 40_000;
const COPIED_MILLISECONDS = 1500;
/** @type {Record<string, string>} */
const ALIASES = {
  "c++": "c",
  cpp: "c",
  cs: "java",
  dockerfile: "docker",
  golang: "go",
  h: "c",
  htm: "html",
  javascript: "js",
  jsonc: "json",
  jsx: "js",
  makefile: "make",
  markdown: "md",
  patch: "diff",
  perl: "pl",
  py3: "py",
  python: "py",
  rust: "rs",
  sh: "bash",
  shell: "bash",
  console: "bash",
  svg: "xml",
  tsx: "ts",
  typescript: "ts",
  yml: "yaml",
  zsh: "bash",
};

/** @typedef {typeof import("../vendor/highlight.d.ts")} Highlighter */

/** @type {Signal<Highlighter | null>} */
const highlighter = signal(null);
let isLoading = false;

function load() {
  if (isLoading) return;
  isLoading = true;
  import("../vendor/highlight.js").then(
    (loaded) => {
      highlighter.value = loaded;
    },
    () => {
      isLoading = false;
    },
  );
}

/**
 * Code with its language and a button to copy it; colours come when it is `finished`.
 * @param {string} text
 * @param {string} language
 * @param {boolean} finished
 * @returns {VNode}
 */
export function codeBlock(text, language, finished) {
  const name = language.trim().split(/[\s,{]/)[0] ?? "";
  return div(
    { class: "code" },
    div({ class: "code-head" }, span(null, name || "text"), h(CopyButton, { text })),
    pre({ tabIndex: 0, "aria-label": name ? `Code, ${name}` : "Code" }, h(Coloured, { text, name, finished })),
  );
}

/** @type {(props: { text: string, name: string, finished: boolean }) => Child} */
function Coloured({ text, name, finished }) {
  const colours = finished && text.length <= MOST_COLOURED;
  useEffect(() => {
    if (colours && name) load();
  }, [colours, name]);
  const loaded = highlighter.value;
  return code(null, ...(colours && name && loaded ? colour(loaded, text, name) : [text]));
}

/** @type {(loaded: Highlighter, text: string, name: string) => Child[]} */
function colour(loaded, text, name) {
  const lower = name.toLowerCase();
  const language = ALIASES[lower] ?? lower;
  if (!Object.hasOwn(loaded.languages, language)) return [text];
  /** @type {Child[]} */
  const pieces = [];
  loaded.tokenizeWith(
    text,
    language,
    (piece, kind) => {
      if (piece) pieces.push(kind ? span({ class: `hl-${kind}` }, piece) : piece);
    },
    { languages: loaded.languages },
  );
  return pieces;
}

/** @type {(props: { text: string, label?: string }) => Child} */
export function CopyButton({ text, label = "Copy code" }) {
  const copied = useSignal(false);
  const copy = async () => {
    if (!(await writeClipboard(text))) return;
    copied.value = true;
    setTimeout(() => (copied.value = false), COPIED_MILLISECONDS);
  };
  return button(
    { class: "quiet", type: "button", "aria-label": copied.value ? "Copied" : label, onClick: () => void copy() },
    icon(copied.value ? "check" : "copy"),
  );
}

/**
 * Write to the clipboard; without HTTPS the browser offers only the old way.
 * @param {string} text
 * @returns {Promise<boolean>}
 */
async function writeClipboard(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "offscreen";
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}
