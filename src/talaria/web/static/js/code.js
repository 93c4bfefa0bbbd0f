/**
 * Code blocks with syntax highlighting. Loaded with the first block.
 * @module
 */
import { h, signal, useEffect } from "../vendor/preact.js";
import { CopyButton } from "./entries.js";
import { code, div, pre, span } from "./elements.js";
import { diffLines } from "./tool.js";

/** @import { Child, Signal } from "../vendor/preact.d.ts" */

const MOST_COLOURED = 40_000;
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
 * Code block with its language and a copy button; highlighted once it is `finished`.
 * @type {(props: { text: string, language: string, finished: boolean }) => Child}
 */
export function CodeView({ text, language, finished }) {
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
  if (name === "diff" || name === "patch") return code(null, ...diffLines(text));
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
