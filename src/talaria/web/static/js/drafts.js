/**
 * What was written or attached and not sent: it stays in this browser, for each conversation and for one person.
 * @module
 */

/** Who has written it. */
const PERSON = "person";
const PERSONAL = /^(?:draft:|files:|unsent$)/;

/** @type {(id: string) => string} */
const textKey = (id) => `draft:${id || "new"}`;

/** The place of the files of a conversation; an empty id is that of a new one. @type {(id: string) => string} */
export const filesKey = (id) => `files:${id || "new"}`;

/** The text that was written in a conversation. @type {(id: string) => string} */
export const readDraft = (id) => localStorage.getItem(textKey(id)) ?? "";

/** @type {(id: string, text: string) => void} */
export function storeDraft(id, text) {
  if (text) localStorage.setItem(textKey(id), text);
  else localStorage.removeItem(textKey(id));
}

/** Put a text that could not be sent before what was written since. @type {(unsent: string, typed: string) => string} */
export const putBefore = (unsent, typed) => (typed ? `${unsent}\n${typed}` : unsent);

/** Move what was written from one conversation to another. @type {(from: string, to: string) => void} */
export function moveDraft(from, to) {
  for (const key of [textKey, filesKey]) {
    const draft = localStorage.getItem(key(from));
    if (draft) localStorage.setItem(key(to), draft);
    localStorage.removeItem(key(from));
  }
}

/** Remove what another person has written. @param {string} name Who is signed in. */
export function removeOtherDrafts(name) {
  const before = localStorage.getItem(PERSON);
  if (before !== null && before !== name) {
    for (const key of Object.keys(localStorage)) if (PERSONAL.test(key)) localStorage.removeItem(key);
  }
  localStorage.setItem(PERSON, name);
}
