/**
 * Drafts: unsent text and files of each conversation, stored in this browser for one person.
 * @module
 */

/** Storage key of the name of the person who wrote the drafts. */
const PERSON = "person";
const PERSONAL = /^(?:draft:|files:|unsent$)/;

/** @type {(id: string) => string} */
const textKey = (id) => `draft:${id || "new"}`;

/** Storage key of the files of a conversation; its id is empty for a new one. @type {(id: string) => string} */
export const filesKey = (id) => `files:${id || "new"}`;

/** Unsent text of a conversation. @type {(id: string) => string} */
export const readDraft = (id) => localStorage.getItem(textKey(id)) ?? "";

/** @type {(id: string, text: string) => void} */
export function storeDraft(id, text) {
  if (text) localStorage.setItem(textKey(id), text);
  else localStorage.removeItem(textKey(id));
}

/** Join a message that could not be sent and newly typed text. @type {(unsent: string, typed: string) => string} */
export const putBefore = (unsent, typed) => (typed ? `${unsent}\n${typed}` : unsent);

/** Move the draft of one conversation to another. @type {(from: string, to: string) => void} */
export function moveDraft(from, to) {
  for (const key of [textKey, filesKey]) {
    const draft = localStorage.getItem(key(from));
    if (draft) localStorage.setItem(key(to), draft);
    localStorage.removeItem(key(from));
  }
}

/** Remove drafts of another person. @param {string} name Name of the person who is signed in. */
export function removeOtherDrafts(name) {
  const before = localStorage.getItem(PERSON);
  if (before !== null && before !== name) {
    for (const key of Object.keys(localStorage)) if (PERSONAL.test(key)) localStorage.removeItem(key);
  }
  localStorage.setItem(PERSON, name);
}
