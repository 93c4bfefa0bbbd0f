import { formula } from "../../../src/talaria/web/static/js/math.js";
import { assertEquals } from "./assert.js";

/** An element as text, tags with their children. @type {(node: any) => string} */
const show = (node) => {
  if (typeof node !== "object" || node === null) return String(node ?? "");
  const children = [node.props?.children ?? []].flat(9).filter((one) => one !== null && one !== undefined);
  return `${node.type}(${children.map(show).join(" ")})`;
};
/** @type {(source: string, display?: boolean) => string} */
const mathml = (source, display = false) => show(formula(source, display)).replace(/^math\(mrow\((.*)\)\)$/, "$1");

Deno.test("letters, numbers and operators", () => {
  assertEquals(mathml("a+2.5-\\alpha"), "mi(a) mo(+) mn(2.5) mo(−) mi(α)");
  assertEquals(mathml("a \\le b \\to \\infty"), "mi(a) mo(≤) mi(b) mo(→) mi(∞)");
  assertEquals(mathml("\\sin x"), "mi(sin) mi(x)");
});

Deno.test("scripts, fractions and roots", () => {
  assertEquals(mathml("x_1^2"), "msubsup(mi(x) mn(1) mn(2))");
  assertEquals(mathml("e^{i\\pi}"), "msup(mi(e) mrow(mi(i) mi(π)))");
  assertEquals(mathml("f'"), "msup(mi(f) mrow(mo(′)))");
  assertEquals(mathml("\\frac12 x"), "mfrac(mn(1) mn(2)) mi(x)");
  assertEquals(mathml("\\frac{a}{b}"), "mfrac(mi(a) mi(b))");
  assertEquals(mathml("\\sqrt[3]{x}"), "mroot(mi(x) mrow(mn(3)))");
  assertEquals(mathml("\\sum_{i=1}^n", true), "munderover(mo(∑) mrow(mi(i) mo(=) mn(1)) mi(n))");
  assertEquals(mathml("\\sum_{i}"), "msub(mo(∑) mi(i))");
});

Deno.test("brackets, tables and text", () => {
  assertEquals(mathml("\\left( x \\right)"), "mrow(mo(() mi(x) mo()))");
  assertEquals(
    mathml("\\begin{pmatrix} 1 & 0 \\\\ 0 & 1 \\end{pmatrix}"),
    "mrow(mo(() mtable(mtr(mtd(mn(1)) mtd(mn(0))) mtr(mtd(mn(0)) mtd(mn(1)))) mo()))",
  );
  assertEquals(mathml("x \\text{ if } y"), "mi(x) mtext(\u00a0if\u00a0) mi(y)");
  assertEquals(mathml("\\mathbb{R}"), "mstyle(mi(ℝ))");
});

Deno.test("broken formulas are shown without an endless loop", () => {
  assertEquals(mathml("\\unknown{x}"), "mtext(\\unknown) mi(x)");
  for (
    const source of [
      "",
      "{",
      "}",
      "}}",
      "\\frac{",
      "x^",
      "_",
      "\\left(",
      "\\right)",
      "\\begin{matrix} 1 &",
      "\\end{x}",
      "&",
      "\\\\",
    ]
  ) mathml(source, true);
  mathml("{".repeat(5000));
  mathml("\\sqrt".repeat(5000));
  mathml("x^".repeat(5000));
});
