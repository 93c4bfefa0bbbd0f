import { Blocks, decode, MOST_PARSED, renderMarkdown } from "../../../src/talaria/web/static/js/markdown.js";
import { assertEquals } from "./assert.js";

const TEXTS = [
  "# Title\n\nA *paragraph* with `code`, [a link](https://example.org) and **bold** text.\n\nAnother.\n",
  "- one\n\n  more of one\n- two\n\n    code in two\n\nafter",
  "1. one\n2. two\n   - nested\n\n\n\nEnd",
  "```js\nconst a = 1;\n\nconst b = 2;\n```\n\ntext\n~~~\nopen",
  "| a | b |\n| - | -: |\n| 1 | 2 |\n| 3 | 4 |\n\nafter the table",
  "Setext\n======\n\n> quote\ncontinued\n>\n> more\n\n---\n\n<b>html</b>\n\nend",
  "- [ ] open\n- [x] done\n\ntext\n    not code\n\n    code\n\n\n    same code\n",
  "Before\n$$\na_1\n- b^2\n$$\nafter $x_1$ and \\(y\\), for $5 or $6.\n\n\\[ E = mc^2 \\]\n\n$$ never closed\n\n- a list\n",
  "para\r\nwith\r\nwindows breaks\r\n\r\n* list\r\n",
];

/** @type {(blocks: Blocks) => string[]} */
const kinds = (blocks) =>
  blocks.all.filter((one) => one.type !== "space").map((one) => `${one.type}:${one.raw.trim()}`);

Deno.test("text that arrives in pieces has the blocks of the full text", () => {
  for (const text of TEXTS) {
    const whole = new Blocks();
    whole.append(text);
    for (const size of [1, 2, 3, 7, 19]) {
      const pieces = new Blocks();
      for (let at = 0; at < text.length; at += size) pieces.append(text.slice(at, at + size));
      assertEquals(kinds(pieces), kinds(whole), `pieces of ${size}`);
    }
  }
});

/** @type {(text: string) => string[]} */
const formulas = (text) => {
  const blocks = new Blocks();
  blocks.append(text);
  /** @type {(tokens: readonly any[]) => any[]} */
  const all = (tokens) => tokens.flatMap((one) => [one, ...all(one.tokens ?? []), ...all(one.items ?? [])]);
  return all(blocks.all).filter((one) => one.type === "math").map((one) =>
    `${one.display ? "block" : "line"}:${one.text}`
  );
};

Deno.test("formulas are found, and amounts of money are not formulas", () => {
  assertEquals(formulas("So $x_1 * y_1 * z$ is \\(a\\)."), ["line:x_1 * y_1 * z", "line:a"]);
  assertEquals(formulas("$$\n\\frac{a}{b}\n$$"), ["block:\\frac{a}{b}"]);
  assertEquals(formulas("- It is \\[x\\] here"), ["block:x"]);
  for (const text of ["$5 and $6", "US$5, A$6", "`$x$`", "$ x $", "a $ b", "$$", "$$$$", "\\(\\)", "```\n$x$\n```"]) {
    assertEquals(formulas(text), [], text);
  }
});

Deno.test("finished blocks are not parsed again", () => {
  const blocks = new Blocks();
  blocks.append("first\n\nsecond");
  const [first] = blocks.done;
  blocks.append(" goes on\n\nthird");
  assertEquals(blocks.done[0] === first, true);
});

/** @type {(node: any) => any[]} */
const flatten = (node) =>
  Array.isArray(node) ? node.flatMap(flatten) : node?.props ? [node, ...flatten([node.props.children])] : [];

/** @type {(text: string) => any[]} */
const elements = (text) => renderMarkdown(text).flatMap(flatten);

Deno.test("only links to the web and to mail are allowed", () => {
  const links = [
    "javascript:alert(1)",
    "data:text/html,x",
    "vbscript:x",
    "/web/logout",
    "JaVaScRiPt:x",
    "&#106;avascript:x",
  ];
  for (const href of links) {
    assertEquals(elements(`[x](${href}) ![y](${href})`).filter((one) => one.type === "a"), [], href);
  }
  const [safe] = elements("[x](https://example.org)").filter((one) => one.type === "a");
  assertEquals(safe.props.rel, "noopener noreferrer");
});

Deno.test("a picture of another server is shown as a link", () => {
  const found = elements("![cat](https://example.org/cat.png)");
  assertEquals(found.filter((one) => one.type === "img"), []);
  assertEquals(found.filter((one) => one.type === "a").length, 1);
});

Deno.test("HTML is shown as text", () => {
  const found = elements("<script>alert(1)</script>\n\n<img src=x onerror=alert(1)> and <b>bold</b>");
  assertEquals(found.map((one) => one.type).filter((type) => ["script", "img", "b"].includes(type)), []);
});

Deno.test("character references are decoded once", () => {
  assertEquals(decode("&lt;b&gt; &amp;amp; &#8364; &#x20AC; &unknown; &#0;"), "<b> &amp; € € &unknown; \ufffd");
});

Deno.test("a very long text is shown without parsing all of it", () => {
  const blocks = new Blocks();
  blocks.append("x\n\n");
  blocks.append("y".repeat(MOST_PARSED + 1));
  assertEquals(blocks.all.at(-1)?.type, "plain");
});
