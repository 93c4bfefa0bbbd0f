/** What the web app uses of marked: the lexer only. Nothing is ever turned into HTML. */
export interface Token {
  type: string;
  raw: string;
  text?: string;
  tokens?: Token[];
  depth?: number;
  lang?: string;
  href?: string;
  title?: string | null;
  ordered?: boolean;
  start?: number | "";
  loose?: boolean;
  task?: boolean;
  checked?: boolean;
  items?: Token[];
  header?: TableCell[];
  rows?: TableCell[][];
  align?: ("center" | "left" | "right" | null)[];
  display?: boolean;
}
export interface Extensions {
  block: ((source: string) => Token | undefined)[];
  inline: ((source: string) => Token | undefined)[];
  startInline: ((source: string) => number | undefined)[];
}
export interface TableCell {
  text: string;
  tokens: Token[];
}
export function lexer(text: string, options?: { gfm?: boolean; breaks?: boolean; extensions?: Extensions }): Token[];
