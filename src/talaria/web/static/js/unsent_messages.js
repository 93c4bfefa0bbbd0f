/**
 * Messages that could not be sent: stored in this browser until the server can be reached, and sent once.
 * @module
 */
import { describe, post, RequestFailed } from "./server.js";
import { navigate, path, toast } from "./state.js";

/** @typedef {{ session: string, text: string, id: string, steer: boolean, files: string[] }} UnsentMessage */

const KEY = "unsent";
const RETRY_MILLISECONDS = 3000;
let sending = false;

/** @returns {UnsentMessage[]} */
function read() {
  try {
    return JSON.parse(localStorage.getItem(KEY) ?? "[]");
  } catch {
    return [];
  }
}

/** @param {UnsentMessage[]} waiting */
function write(waiting) {
  if (waiting.length) localStorage.setItem(KEY, JSON.stringify(waiting));
  else localStorage.removeItem(KEY);
}

/** Store a message for later. @param {UnsentMessage} message */
export function storeUnsent(message) {
  write([...read(), message]);
  toast.value = "You're offline. Your message will be sent as soon as Talaria can be reached.";
  setTimeout(sendUnsent, RETRY_MILLISECONDS);
}

/** Send the stored messages, oldest first; the server ignores repeated ids. */
export async function sendUnsent() {
  if (sending) return;
  sending = true;
  let id = "";
  try {
    for (let [first] = read(); first; [first] = read()) {
      const { session, ...message } = first;
      id = message.id;
      /** @type {{ session_id?: string }} */
      const reply = await post(session ? `/web/sessions/${session}/messages` : "/web/sessions", message);
      write(read().filter((one) => one.id !== message.id));
      if (reply.session_id && path.peek() === "/") navigate(`/c/${reply.session_id}`);
    }
  } catch (error) {
    if (error instanceof RequestFailed && error.status === 401) return; // sent after the next sign-in
    if (error instanceof RequestFailed && error.status >= 400 && error.status < 500) {
      const refused = read().find((one) => one.id === id);
      write(read().filter((one) => one.id !== id)); // another tab may have sent others meanwhile
      toast.value = `A message wasn't sent: ${describe(error)} ${refused?.text.slice(0, 80) ?? ""}`;
    } else setTimeout(sendUnsent, RETRY_MILLISECONDS);
  } finally {
    sending = false;
  }
}
