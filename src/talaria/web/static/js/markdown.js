/**
 * Incremental Markdown renderer: finished blocks of a streamed reply are rendered once.
 * @module
 */
import { h } from "../vendor/preact.js";
import { lexer } from "../vendor/marked.js";
import {
  a,
  blockquote,
  br,
  code,
  del,
  div,
  em,
  heading,
  hr,
  input,
  lazy,
  li,
  ol,
  p,
  pre,
  span,
  strong,
  table,
  tbody,
  td,
  th,
  thead,
  tr,
  ul,
} from "./elements.js";

/** @import { Child, VNode } from "../vendor/preact.d.ts" */
/** @import { TableCell, Token } from "../vendor/marked.d.ts" */

/** Maximum number of characters that are parsed; the rest is shown as plain text. */
export const MOST_PARSED = 200_000;

const coloured = lazy(() => import("./code.js"));
const mathematics = lazy(() => import("./math.js"));
/** Formulas contain no blank line. A dollar sign next to a space or before a digit is an amount of money. */
const INSIDE = "((?:(?!\\n[ \\t]*\\n)[^])+?)";
const DISPLAY_MATH = `\\$\\$${INSIDE}\\$\\$|\\\\\\[${INSIDE}\\\\\\]`;
const MATH_BLOCK = new RegExp(`^ {0,3}(?:${DISPLAY_MATH})[ \\t]*(?:\\n+|$)`);
const MATH_INLINE = new RegExp(
  `^(?:${DISPLAY_MATH}|\\\\\\(${INSIDE}\\\\\\)|\\$(?!\\s)((?:\\\\[^\\n]|[^$\\\\\\n])+?)(?<!\\s)\\$(?!\\d))`,
);
const OPEN_MATH = /^ {0,3}(?:\$\$|\\\[)/;
/** Lexer extensions for formulas. */
const EXTENSIONS = {
  block: [(/** @type {string} */ source) => mathToken(MATH_BLOCK.exec(source))],
  inline: [(/** @type {string} */ source) => mathToken(MATH_INLINE.exec(source))],
  startInline: [(/** @type {string} */ source) => source.match(/\$|\\[([]/)?.index],
};
const SAFE_LINK = /^(https?:|mailto:)/i;
/** @type {Record<string, string>} */
const ENTITIES = {
  amp: "&",
  apos: "'",
  copy: "©",
  gt: ">",
  hellip: "…",
  laquo: "«",
  ldquo: "“",
  lsquo: "‘",
  lt: "<",
  mdash: "—",
  middot: "·",
  nbsp: "\u00a0",
  ndash: "–",
  quot: '"',
  raquo: "»",
  rdquo: "”",
  rsquo: "’",
  times: "×",
};

/** Blocks of a growing text: `done` are final, `open` may still change. */
export class Blocks {
  constructor() {
    /** @type {Token[]} */
    this.done = [];
    /** @type {Token[]} */
    this.open = [];
    this._rest = "";
    this._parsed = 0;
    this._plain = "";
  }

  /** All blocks so far. */
  get all() {
    return [...this.done, ...this.open];
  }

  /**
   * Append text. Only the last block is parsed again.
   * @param {string} text
   */
  append(text) {
    if (this._plain || this._parsed + text.length > MOST_PARSED) {
      this._plain += text;
      this.open = [...parse(this._rest), { type: "plain", raw: this._plain, text: this._plain }];
      return;
    }
    this._parsed += text.length;
    // A trailing "\r" may be the first half of a line break.
    this._rest = (this._rest + text).replace(/\r\n/g, "\n");
    const tokens = parse(this._rest);
    let last = tokens.length - 1;
    while (last > 0 && tokens[last]?.type === "space") last--;
    const open = tokens.findIndex((token, index) => index < last && OPEN_MATH.test(token.raw) && token.type !== "math");
    if (open >= 0 && !/\n[ \t]*\n/.test(tokens.slice(open).map((token) => token.raw).join(""))) last = open; // it may close
    const finished = tokens.slice(0, Math.max(last, 0));
    const source = finished.map((token) => token.raw).join("");
    if (this._rest.startsWith(source)) {
      this.done.push(...finished);
      this.open = tokens.slice(finished.length);
      this._rest = this._rest.slice(source.length);
    } else this.open = tokens;
  }
}

/** @type {(text: string) => Token[]} */
function parse(text) {
  return text ? lexer(text, { gfm: true, extensions: EXTENSIONS }) : [];
}

/** @type {(found: RegExpExecArray | null) => Token | undefined} */
function mathToken(found) {
  const text = found?.slice(1).find((one) => one?.trim());
  if (!found || !text) return undefined;
  return { type: "math", raw: found[0], text: text.trim(), display: Boolean(found[1] ?? found[2]) };
}

/** Formula; shown as source until the math module is loaded. @type {(token: Token) => VNode} */
const formulaView = (token) => h(FormulaView, { text: token.text ?? "", display: token.display ?? false });

/** @type {(props: { text: string, display: boolean }) => Child} */
function FormulaView({ text, display }) {
  return mathematics(({ formula }) => formula(text, display)) ?? code(null, text);
}

/** @type {WeakMap<Token, VNode>} */
const rendered = new WeakMap();

/**
 * Render blocks as elements; elements of finished blocks are reused.
 * @param {Blocks} blocks
 * @returns {Child[]}
 */
export function renderBlocks(blocks) {
  // The page title is heading 1, and heading levels below it must not be skipped.
  let level = 1;
  const done = blocks.done.filter(isVisible);
  return [...done, ...blocks.open.filter(isVisible)].map((token, index) => {
    const finished = index < done.length;
    if (token.type === "heading") {
      level = Math.min((token.depth ?? 1) + 1, level + 1);
      return heading(level, { class: `depth-${token.depth ?? 1}` }, ...inlines(token.tokens));
    }
    if (!finished) return block(token, false);
    const known = rendered.get(token) ?? block(token, true);
    rendered.set(token, known);
    return known;
  });
}

/** Render a complete text as elements. @type {(text: string) => Child[]} */
export function renderMarkdown(text) {
  const blocks = new Blocks();
  blocks.append(text);
  return renderBlocks(blocks);
}

/** @type {(token: Token) => boolean} */
const isVisible = (token) => token.type !== "space" && token.type !== "def";

/** @type {(token: Token, finished: boolean) => VNode} */
function block(token, finished) {
  switch (token.type) {
    case "heading":
      return p({ class: "depth-4" }, strong(null, ...inlines(token.tokens)));
    case "paragraph":
      return p(null, ...inlines(token.tokens));
    case "code":
      return h(CodeBlock, { text: token.text ?? "", language: token.lang ?? "", finished });
    case "blockquote":
      return blockquote(null, ...(token.tokens ?? []).filter(isVisible).map((one) => block(one, finished)));
    case "list":
      return list(token, finished);
    case "table":
      return tableBlock(token);
    case "hr":
      return hr();
    case "math":
      return div({ class: "formula-block", tabIndex: 0, role: "region", "aria-label": "Formula" }, formulaView(token));
    case "text":
      return token.tokens ? span(null, ...inlines(token.tokens)) : span(null, decode(token.text ?? ""));
    case "plain":
      return pre({ class: "plain", tabIndex: 0 }, token.text ?? "");
    default:
      // Show HTML and everything else as its source.
      return p({ class: "raw" }, token.raw.trim());
  }
}

/** @type {(props: { text: string, language: string, finished: boolean }) => Child} */
function CodeBlock(props) {
  return coloured(({ CodeView }) => h(CodeView, props)) ?? pre({ tabIndex: 0 }, code(null, props.text));
}

/** @type {(token: Token, finished: boolean) => VNode} */
function list(token, finished) {
  const items = (token.items ?? []).map((item) => {
    const box = item.task
      ? input({ type: "checkbox", checked: item.checked ?? false, disabled: true, "aria-label": "Task" })
      : null;
    const children = (item.tokens ?? []).filter((one) => isVisible(one) && one.type !== "checkbox");
    return li({ class: item.task ? "task" : "" }, box, ...children.map((one) => block(one, finished)));
  });
  return token.ordered ? ol({ start: Number(token.start ?? 1) }, ...items) : ul(null, ...items);
}

/** @type {(token: Token) => VNode} */
function tableBlock(token) {
  /** @type {(cell: TableCell, index: number, make: typeof td) => VNode} */
  const cell = (one, index, make) => make({ class: token.align?.[index] ?? "" }, ...inlines(one.tokens));
  return div(
    { class: "table", role: "region", tabIndex: 0, "aria-label": "Table" },
    table(
      null,
      thead(null, tr(null, ...(token.header ?? []).map((one, index) => cell(one, index, th)))),
      tbody(null, ...(token.rows ?? []).map((row) => tr(null, ...row.map((one, index) => cell(one, index, td))))),
    ),
  );
}

/** @type {(tokens: Token[] | undefined) => Child[]} */
const inlines = (tokens) => (tokens ?? []).map(inline);

/** @type {(token: Token) => Child} */
function inline(token) {
  switch (token.type) {
    case "strong":
      return strong(null, ...inlines(token.tokens));
    case "em":
      return em(null, ...inlines(token.tokens));
    case "del":
      return del(null, ...inlines(token.tokens));
    case "codespan":
      return code(null, token.text ?? "");
    case "br":
      return br();
    case "math":
      return formulaView(token);
    case "link":
      return link(token, inlines(token.tokens));
    case "image":
      // Loading remote images would tell their server what is read here, so show links.
      return link(token, [token.text || "picture"]);
    case "text":
      return token.tokens ? inlines(token.tokens) : decode(token.text ?? "");
    case "escape":
      return token.text ?? "";
    default:
      return token.raw;
  }
}

/** @type {(token: Token, children: Child[]) => Child} */
function link(token, children) {
  const href = decode(token.href ?? "");
  if (!SAFE_LINK.test(href)) return span(null, ...children);
  return a({ href, target: "_blank", rel: "noopener noreferrer", title: token.title ?? undefined }, ...children);
}

/**
 * Decode character references, which the lexer leaves unchanged.
 * @param {string} text
 */
export function decode(text) {
  if (!text.includes("&")) return text;
  return text.replace(/&(?:#x([0-9a-f]{1,6})|#(\d{1,7})|([a-z]{2,8}));/gi, (whole, hex, decimal, name) => {
    if (name) return ENTITIES[name] ?? whole;
    const number = hex ? parseInt(hex, 16) : parseInt(decimal, 10);
    return number > 0 && number <= 0x10ffff && (number < 0xd800 || number > 0xdfff)
      ? String.fromCodePoint(number)
      : "\ufffd";
  });
}
