/** What the web app uses of @speed-highlight/core: the tokenizer and the grammars. */
export type Grammar = unknown;
export function tokenizeWith(
  text: string,
  language: string | Grammar,
  onToken: (text: string, kind?: string) => void,
  options?: { languages?: Record<string, Grammar> },
): void;
export const languages: Record<string, Grammar>;
