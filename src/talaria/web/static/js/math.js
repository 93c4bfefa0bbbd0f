/**
 * Formulas: converts common LaTeX mathematics to MathML, which browsers render. Loaded with the first formula.
 * @module
 */
import { h } from "../vendor/preact.js";

/** @import { VNode } from "../vendor/preact.d.ts" */

const MOST_DEPTH = 50;
/** Greek letters and other letters by command. */
const LETTERS = words(
  "alpha α beta β gamma γ delta δ epsilon ϵ varepsilon ε zeta ζ eta η theta θ vartheta ϑ iota ι kappa κ lambda λ mu μ nu ν " +
    "xi ξ pi π varpi ϖ rho ρ sigma σ varsigma ς tau τ upsilon υ phi ϕ varphi φ chi χ psi ψ omega ω Gamma Γ Delta Δ Theta Θ " +
    "Lambda Λ Xi Ξ Pi Π Sigma Σ Upsilon Υ Phi Φ Psi Ψ Omega Ω infty ∞ partial ∂ nabla ∇ hbar ℏ ell ℓ Re ℜ Im ℑ aleph ℵ " +
    "emptyset ∅ varnothing ∅ imath ı jmath ȷ top ⊤ bot ⊥ degree °",
);
/** Operators, relations and arrows by command. */
const OPERATORS = words(
  "cdot ⋅ times × div ÷ pm ± mp ∓ ast ∗ star ⋆ circ ∘ bullet ∙ oplus ⊕ otimes ⊗ le ≤ leq ≤ ge ≥ geq ≥ ne ≠ neq ≠ ll ≪ gg ≫ " +
    "approx ≈ equiv ≡ sim ∼ simeq ≃ cong ≅ propto ∝ in ∈ notin ∉ ni ∋ subset ⊂ subseteq ⊆ supset ⊃ supseteq ⊇ cup ∪ cap ∩ " +
    "setminus ∖ land ∧ wedge ∧ lor ∨ vee ∨ lnot ¬ neg ¬ forall ∀ exists ∃ nexists ∄ to → rightarrow → leftarrow ← " +
    "leftrightarrow ↔ Rightarrow ⇒ Leftarrow ⇐ Leftrightarrow ⇔ implies ⟹ iff ⟺ mapsto ↦ uparrow ↑ downarrow ↓ mid ∣ parallel ∥ " +
    "perp ⊥ angle ∠ ldots … dots … cdots ⋯ vdots ⋮ ddots ⋱ colon : lbrace { rbrace } langle ⟨ rangle ⟩ lfloor ⌊ rfloor ⌋ " +
    "lceil ⌈ rceil ⌉ vert | Vert ‖ prime ′ therefore ∴ because ∵ models ⊨ vdash ⊢",
);
const LARGE = words("sum ∑ prod ∏ coprod ∐ int ∫ iint ∬ iiint ∭ oint ∮ bigcup ⋃ bigcap ⋂ bigoplus ⨁ bigotimes ⨂");
const ACCENTS = words(
  "hat ^ widehat ^ bar ¯ overline ¯ vec → dot ˙ ddot ¨ tilde ~ widetilde ~ overrightarrow → overbrace ⏞",
);
const SPACES = words(", 0.17em : 0.22em ; 0.28em ! -0.17em quad 1em qquad 2em space 0.33em");
const VARIANTS = words(
  "mathrm normal mathbf bold mathbb double-struck mathcal script mathscr script mathfrak fraktur mathsf sans-serif mathtt monospace " +
    "mathit italic boldsymbol bold",
);
const NAMES = new Set(
  ("sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln lg exp det dim ker deg gcd arg hom Pr lim limsup liminf " +
    "max min sup inf").split(" "),
);
const WITH_LIMITS = new Set(["lim", "limsup", "liminf", "max", "min", "sup", "inf", "det", "gcd", "Pr"]);
/** Brackets around a table, by environment. @type {Record<string, [string, string]>} */
const TABLES = {
  pmatrix: ["(", ")"],
  bmatrix: ["[", "]"],
  Bmatrix: ["{", "}"],
  vmatrix: ["|", "|"],
  Vmatrix: ["‖", "‖"],
  cases: ["{", ""],
};
const TOKEN = /\\(?:[A-Za-z]+|[\s\S])|\d+(?:[.,]\d+)*|\s+|[\s\S]/gu;

/** @type {(text: string) => Map<string, string>} */
function words(text) {
  const all = text.split(" ");
  return new Map(all.flatMap((word, index) => (index % 2 ? [] : [[word, all[index + 1] ?? ""]])));
}

/** Render a formula as an element. @type {(source: string, display: boolean) => VNode} */
export function formula(source, display) {
  const row = new Reader(source, display).read();
  return h("math", { display: display ? "block" : "inline", class: display ? "formula" : "" }, row);
}

/** Parser for formulas; unknown commands are shown as source. */
class Reader {
  /** @param {string} source @param {boolean} display */
  constructor(source, display) {
    /** @type {string[]} */
    this._tokens = source.match(TOKEN) ?? [];
    this._position = 0;
    this._display = display;
    this._depth = 0;
  }

  /** Parse the complete formula. @returns {VNode} */
  read() {
    const found = [];
    while (this._peek() !== undefined) {
      found.push(...this._row(() => false));
      const left = this._next(); // an unmatched bracket or command
      if (left !== undefined) found.push(operator(left));
    }
    return h("mrow", null, ...found);
  }

  /** Return the next token; spaces between tokens are skipped. */
  _peek() {
    while (/^\s/.test(this._tokens[this._position] ?? "")) this._position++;
    return this._tokens[this._position];
  }

  _next() {
    const token = this._peek();
    this._position++;
    return token;
  }

  /** @param {string} token */
  _skip(token) {
    if (this._peek() !== token) return false;
    this._position++;
    return true;
  }

  /** Parse everything up to a token that ends the row. @param {(token: string) => boolean} ends @returns {VNode[]} */
  _row(ends) {
    const found = [];
    for (let token = this._peek(); token !== undefined && token !== "}" && !ends(token); token = this._peek()) {
      if (["&", "\\\\", "\\right", "\\end"].includes(token)) break;
      found.push(this._scripted());
    }
    return found;
  }

  /** Parse an atom with its subscript and superscript. @returns {VNode} */
  _scripted() {
    const start = this._peek() ?? "";
    const atom = this._atom();
    const name = start.slice(1);
    const hasLimits = WITH_LIMITS.has(name) || (LARGE.has(name) && !name.endsWith("int"));
    /** @type {VNode | null} */
    let below = null;
    /** @type {VNode | null} */
    let above = null;
    for (;;) {
      if (this._skip("_")) below = this._argument();
      else if (this._skip("^")) above = this._argument();
      else if (this._peek() === "'") above = h("mrow", null, ...[above].filter(Boolean), this._primes());
      else if (!this._skip("\\limits") && !this._skip("\\nolimits")) break;
    }
    const under = hasLimits && this._display;
    if (below && above) return h(under ? "munderover" : "msubsup", null, atom, below, above);
    if (below) return h(under ? "munder" : "msub", null, atom, below);
    if (above) return h(under ? "mover" : "msup", null, atom, above);
    return atom;
  }

  _primes() {
    let count = 0;
    while (this._skip("'")) count++;
    return operator("′".repeat(count));
  }

  /** Parse the argument of a command or script: a group or one token. @returns {VNode} */
  _argument() {
    if (++this._depth > MOST_DEPTH) {
      this._position = this._tokens.length;
      return h("mtext", null, "…");
    }
    const token = this._peek() ?? "";
    if (/^\d\d/.test(token)) this._tokens.splice(this._position, 1, token.slice(0, 1), token.slice(1)); // \frac12 is a half
    const found = token === "{" ? this._group() : this._atom();
    this._depth--;
    return found;
  }

  /** @returns {VNode} */
  _group() {
    this._skip("{");
    const row = this._row(() => false);
    while (this._peek() !== undefined && !this._skip("}")) row.push(operator(this._next() ?? ""));
    return row.length === 1 && row[0] ? row[0] : h("mrow", null, ...row);
  }

  /** Return the source of a group. */
  _text() {
    if (!this._skip("{")) return this._next() ?? "";
    let text = "";
    for (let depth = 1; this._position < this._tokens.length;) {
      const token = this._tokens[this._position++] ?? "";
      if (token === "{") depth++;
      else if (token === "}" && --depth === 0) break;
      text += token;
    }
    return text;
  }

  /** @returns {VNode} */
  _atom() {
    const token = this._next() ?? "";
    if (token === "{") {
      this._position--;
      return this._argument();
    }
    if (token.startsWith("\\")) return this._command(token.slice(1));
    if (/^\d/.test(token)) return h("mn", null, token);
    if (/^\p{L}$/u.test(token)) return h("mi", null, token);
    return operator(token === "-" ? "−" : token === "*" ? "∗" : token);
  }

  /** @param {string} name @returns {VNode} */
  _command(name) {
    const letter = LETTERS.get(name);
    if (letter) return h("mi", null, letter);
    const sign = OPERATORS.get(name);
    if (sign) return operator(sign);
    const large = LARGE.get(name);
    if (large) return h("mo", { largeop: "true", movablelimits: "true" }, large);
    if (NAMES.has(name)) return h("mi", null, name.replace(/^lim(sup|inf)$/, "lim\u2009$1"));
    const space = SPACES.get(name) ?? (name === " " ? "0.33em" : undefined);
    if (space) return h("mspace", { width: space });
    const accent = ACCENTS.get(name);
    if (accent) return h("mover", { accent: "true" }, this._argument(), operator(accent));
    const variant = VARIANTS.get(name);
    if (variant) return h("mstyle", null, styled(this._text(), variant));
    return this._structure(name);
  }

  /** @param {string} name @returns {VNode} */
  _structure(name) {
    switch (name) {
      case "frac":
      case "dfrac":
      case "tfrac":
        return h("mfrac", null, this._argument(), this._argument());
      case "binom":
        return h(
          "mrow",
          null,
          operator("("),
          h("mfrac", { linethickness: "0" }, this._argument(), this._argument()),
          operator(")"),
        );
      case "sqrt":
        return this._root();
      case "text":
      case "textrm":
      case "textbf":
      case "textit":
      case "operatorname":
        return h("mtext", null, this._text().replaceAll(" ", "\u00a0"));
      case "underline":
      case "underbrace":
        return h("munder", null, this._argument(), operator(name === "underline" ? "_" : "⏟"));
      case "overset":
      case "stackrel": {
        const above = this._argument();
        return h("mover", null, this._argument(), above);
      }
      case "underset": {
        const below = this._argument();
        return h("munder", null, this._argument(), below);
      }
      case "left":
        return this._fenced();
      case "begin":
        return this._table();
      case "big":
      case "Big":
      case "bigg":
      case "Bigg":
      case "displaystyle":
      case "textstyle":
        return h("mrow", null);
      default:
        return /^[A-Za-z]/.test(name) ? h("mtext", { class: "unknown" }, `\\${name}`) : operator(name);
    }
  }

  /** @returns {VNode} */
  _root() {
    if (!this._skip("[")) return h("msqrt", null, this._argument());
    const degree = h("mrow", null, ...this._row((token) => token === "]"));
    this._skip("]");
    return h("mroot", null, this._argument(), degree);
  }

  /** Parse the content between `\left` and `\right`. @returns {VNode} */
  _fenced() {
    const open = this._fence();
    const row = this._row(() => false);
    const close = this._skip("\\right") ? this._fence() : "";
    return h("mrow", null, open ? fence(open) : null, ...row, close ? fence(close) : null);
  }

  _fence() {
    const token = this._next() ?? "";
    if (token === ".") return "";
    return token.startsWith("\\") ? OPERATORS.get(token.slice(1)) ?? token.slice(1) : token;
  }

  /** @returns {VNode} */
  _table() {
    const name = this._text();
    if (name === "array") this._text(); // its columns
    const [open, close] = TABLES[name] ?? ["", ""];
    /** @type {VNode[][]} */
    const rows = [[]];
    while (this._peek() !== undefined && this._peek() !== "\\end") {
      rows.at(-1)?.push(h("mtd", null, ...this._row(() => false)));
      if (this._skip("\\\\")) rows.push([]);
      else if (!this._skip("&") && this._peek() !== "\\end") this._position++;
    }
    if (this._skip("\\end")) this._text();
    const filled = rows.filter((row) => row.some((cell) => /** @type {any} */ (cell).props?.children !== undefined));
    const isAligned = name.startsWith("align") || name === "cases";
    const body = h(
      "mtable",
      isAligned ? { class: "aligned", displaystyle: "true" } : null,
      ...filled.map((row) => h("mtr", null, ...row)),
    );
    return h("mrow", null, open ? fence(open) : null, body, close ? fence(close) : null);
  }
}

/** @type {(text: string) => VNode} */
const operator = (text) => h("mo", /^[()[\]{}|‖⟨⟩]$/.test(text) ? { stretchy: "false" } : null, text);

/** @type {(text: string) => VNode} */
const fence = (text) => h("mo", { fence: "true", stretchy: "true" }, text);

/** Text in another mathematical alphabet. @type {(text: string, variant: string) => VNode} */
function styled(text, variant) {
  const mapped = [...text].map((one) => alphabet(one, variant)).join("");
  return h("mi", variant === "normal" ? { mathvariant: "normal" } : null, mapped);
}

/** Code points of the capital A, the small a and the digit 0 of each alphabet, and its letters outside these ranges. */
/** @type {Record<string, { upper: number, lower: number, digit?: number, others?: Record<string, string> }>} */
const ALPHABETS = {
  bold: { upper: 0x1d400, lower: 0x1d41a, digit: 0x1d7ce },
  "double-struck": {
    upper: 0x1d538,
    lower: 0x1d552,
    digit: 0x1d7d8,
    others: { C: "ℂ", H: "ℍ", N: "ℕ", P: "ℙ", Q: "ℚ", R: "ℝ", Z: "ℤ" },
  },
  script: {
    upper: 0x1d49c,
    lower: 0x1d4b6,
    others: { B: "ℬ", E: "ℰ", F: "ℱ", H: "ℋ", I: "ℐ", L: "ℒ", M: "ℳ", R: "ℛ", e: "ℯ", g: "ℊ", o: "ℴ" },
  },
  fraktur: { upper: 0x1d504, lower: 0x1d51e, others: { C: "ℭ", H: "ℌ", I: "ℑ", R: "ℜ", Z: "ℨ" } },
  "sans-serif": { upper: 0x1d5a0, lower: 0x1d5ba, digit: 0x1d7e2 },
  monospace: { upper: 0x1d670, lower: 0x1d68a, digit: 0x1d7f6 },
};

/** @type {(one: string, variant: string) => string} */
function alphabet(one, variant) {
  const known = ALPHABETS[variant];
  if (!known) return one;
  const code = one.charCodeAt(0);
  if (known.others?.[one]) return known.others[one];
  if (/^[A-Z]$/.test(one)) return String.fromCodePoint(known.upper + code - 65);
  if (/^[a-z]$/.test(one)) return String.fromCodePoint(known.lower + code - 97);
  if (known.digit && /^\d$/.test(one)) return String.fromCodePoint(known.digit + code - 48);
  return one;
}
