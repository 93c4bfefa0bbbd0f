/**
 * Requests to the server. What changes something is JSON with a header that no foreign page can send.
 * @module
 */

/** An answer that is not a success; `message` may be shown. */
export class RequestFailed extends Error {
  /**
   * @param {number} status
   * @param {string} message
   */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Called when the server no longer knows this browser. */
export const signedOut = { call: () => {} };

/**
 * @template T
 * @param {string} method
 * @param {string} path
 * @param {object} [body]
 * @returns {Promise<T>}
 */
export async function request(method, path, body) {
  /** @type {RequestInit} */
  const options = { method, credentials: "same-origin", cache: "no-store" };
  if (method !== "GET") {
    options.headers = { "content-type": "application/json", "x-talaria": "web" };
    options.body = JSON.stringify(body ?? {});
  }
  let reply;
  try {
    reply = await fetch(path, options);
  } catch {
    throw new RequestFailed(0, "Talaria can't be reached right now.");
  }
  if (reply.status === 401 && path !== "/web/login") signedOut.call();
  const answer = await reply.json().catch(() => ({}));
  if (!reply.ok) {
    throw new RequestFailed(reply.status, answer?.error?.message ?? `The server answered ${reply.status}.`);
  }
  return answer;
}

/** @template T @param {string} path @returns {Promise<T>} */
export const get = (path) => request("GET", path);

/** @template T @param {string} path @param {object} [body] @returns {Promise<T>} */
export const post = (path, body) => request("POST", path, body);

/** The text of an error, for people. @type {(error: unknown) => string} */
export const describe = (error) => (error instanceof Error ? error.message : String(error));
