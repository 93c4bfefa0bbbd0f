/**
 * Client of the server: requests, and one event stream for all tabs of a browser. Requests that change something are
 * JSON with a header that other sites can't send. The tab that holds a lock reads the stream and forwards it to the others.
 * @module
 */

/** @import { StreamMessage } from "./wire.d.ts" */

const LOCK = "talaria-stream";
const CHANNEL = "talaria-stream";
const FIRST_DELAY = 300;
const LONGEST_DELAY = 10_000;
const SILENCE = 40_000;
/** Silence after which a page that wakes up reconnects; the server sends something every 15 seconds. */
const DEAD = 20_000;

/** Parser for server-sent events. */
export class EventParser {
  constructor() {
    this._rest = "";
    this._data = "";
  }

  /**
   * Append text and return the data of the events that it completes.
   * @param {string} text
   * @returns {string[]}
   */
  push(text) {
    /** @type {string[]} */
    const found = [];
    const lines = (this._rest + text).split("\n");
    this._rest = lines.pop() ?? "";
    for (const whole of lines) {
      const line = whole.endsWith("\r") ? whole.slice(0, -1) : whole;
      if (line === "") {
        if (this._data) found.push(this._data.slice(0, -1));
        this._data = "";
      } else if (line.startsWith("data:")) {
        this._data += `${line.slice(line[5] === " " ? 6 : 5)}\n`;
      }
    }
    return found;
  }
}

/**
 * @typedef {object} StreamOptions
 * @property {(message: StreamMessage) => void} onMessage
 * @property {(connected: boolean) => void} onState
 * @property {() => void} onSignedOut
 */

/** Event stream of this tab, its own or that of the leading tab. */
export class Stream {
  /** @param {StreamOptions} options */
  constructor(options) {
    this._options = options;
    this._tab = crypto.getRandomValues(new Uint32Array(2)).join("-");
    this._stream = "";
    /** Stream id of the leading tab, if that is another one. */
    this._leaderStream = "";
    /** @type {string[]} */
    this._topics = [];
    /** Topics of the other tabs. @type {Map<string, { topics: string[], at: number }>} */
    this._others = new Map();
    this._isLeader = false;
    this._channel = new BroadcastChannel(CHANNEL);
    this._channel.onmessage = (event) => this._receive(event.data);
    /** @type {AbortController | null} */
    this._abort = null;
    /** Removes the event listeners of this stream. */
    this._closing = new AbortController();
    this._receivedAt = 0;
    /** Topics to request a snapshot of with the next update; `null` if no update is pending. @type {Set<string> | null} */
    this._pending = null;
    this._isSending = false;
    /** Ends the delay before the next attempt. */
    this._retry = () => {};
  }

  /** Id of the stream of this browser, in whichever tab; empty while there is none. */
  get id() {
    return this._stream || this._leaderStream;
  }

  /** Start with the topics set by `watch`. */
  start() {
    const { signal } = this._closing;
    addEventListener("pagehide", () => this._post({ kind: "left", tab: this._tab }), { signal });
    addEventListener("offline", () => this._abort?.abort(), { signal });
    for (const name of ["online", "resume", "pageshow", "visibilitychange"]) {
      addEventListener(name, () => this._reconnect(), { signal });
    }
    if (navigator.locks) void navigator.locks.request(LOCK, () => this._lead());
    else void this._lead();
    this._announceTopics();
  }

  /** Connect immediately when the page wakes up or the network is back, unless the stream is alive. */
  _reconnect() {
    this._retry();
    if (this._stream && Date.now() - this._receivedAt > DEAD) this._abort?.abort();
  }

  /** Stop permanently. */
  close() {
    this._closing.abort();
    this._channel.close();
    this._abort?.abort();
    this._retry();
  }

  get _closed() {
    return this._closing.signal.aborted;
  }

  /** Send a message to the other tabs. @param {object} message */
  _post(message) {
    if (!this._closed) this._channel.postMessage(message);
  }

  /**
   * Set the topics of this tab; a snapshot of each new topic follows.
   * @param {string[]} topics
   */
  watch(topics) {
    this._topics = topics;
    this._announceTopics();
    if (this._isLeader) void this._send();
  }

  _announceTopics() {
    this._post({ kind: "topics", tab: this._tab, topics: this._topics });
  }

  /** @param {any} data */
  _receive(data) {
    if (data.kind === "message" && !this._isLeader) this._options.onMessage(data.message);
    else if (data.kind === "state" && !this._isLeader) {
      this._options.onState(data.connected);
      this._leaderStream = data.stream;
      if (data.fresh) this._announceTopics();
    } else if (data.kind === "signed-out" && !this._isLeader) this._options.onSignedOut();
    else if (data.kind === "topics") {
      const known = this._others.get(data.tab);
      this._others.set(data.tab, { topics: data.topics, at: Date.now() });
      if (this._isLeader && !known && this._stream) {
        this._post({ kind: "state", connected: true, stream: this._stream });
      }
      if (this._isLeader && String(known?.topics) !== String(data.topics)) void this._send(data.topics);
    } else if (data.kind === "left") {
      this._others.delete(data.tab);
      if (this._isLeader) void this._send();
    }
  }

  /** Topics of all tabs. */
  _allTopics() {
    return [...new Set([...this._topics, ...[...this._others.values()].flatMap((one) => one.topics)])];
  }

  /**
   * Send the topics of all tabs to the server; it sends snapshots of new topics and of those in `again`.
   * @param {string[]} [again]
   */
  async _send(again = this._topics) {
    this._pending = new Set([...this._pending ?? [], ...again]);
    if (this._isSending) return; // one at a time: the last one must win
    this._isSending = true;
    while (this._pending && this._stream) {
      const stream = this._stream;
      const options = {
        method: "PUT",
        headers: { "content-type": "application/json", "x-talaria": "web" },
        body: JSON.stringify({ topics: this._allTopics(), again: [...this._pending] }),
      };
      this._pending = null;
      const reply = await fetch(`/web/stream/${stream}`, options).catch(() => null);
      if (!reply?.ok && stream === this._stream) this._abort?.abort(); // a new stream starts with the topics
    }
    this._isSending = false;
  }

  /** Read the stream and reconnect until the tab is closed. */
  async _lead() {
    this._isLeader = true;
    this._post({ kind: "state", connected: false, stream: "", fresh: true });
    let delay = FIRST_DELAY;
    while (!this._closed) {
      const began = Date.now();
      await this._listen();
      if (this._closed) return;
      this._reportState(false);
      if (Date.now() - began > LONGEST_DELAY) delay = FIRST_DELAY;
      await new Promise((/** @type {(nothing: void) => void} */ resolve) => {
        this._retry = resolve;
        setTimeout(resolve, delay);
      });
      delay = Math.min(delay * 2, LONGEST_DELAY);
    }
  }

  /** @param {boolean} connected */
  _reportState(connected) {
    this._options.onState(connected);
    this._post({ kind: "state", connected, stream: this._stream });
  }

  async _listen() {
    this._abort = new AbortController();
    const id = crypto.getRandomValues(new Uint32Array(4)).join("");
    const topics = this._allTopics().join(",");
    const query = new URLSearchParams({ id, topics });
    try {
      const reply = await fetch(`/web/stream?${query}`, { signal: this._abort.signal, cache: "no-store" });
      if (reply.status === 401) {
        this._post({ kind: "signed-out" });
        this._options.onSignedOut();
        this.close();
      }
      if (!reply.ok || !reply.body) return;
      this._stream = id; // the server knows it from now on
      this._pending = null;
      this._receivedAt = Date.now();
      if (this._allTopics().join(",") !== topics) void this._send();
      this._reportState(true);
      await this._read(reply.body.pipeThrough(new TextDecoderStream()).getReader());
    } catch {
      // The connection was lost, or the server restarts: the caller connects again.
    } finally {
      this._stream = "";
    }
  }

  /** @param {ReadableStreamDefaultReader<string>} reader */
  async _read(reader) {
    const parser = new EventParser();
    for (;;) {
      const timer = setTimeout(() => this._abort?.abort(), SILENCE);
      const { done, value } = await reader.read().finally(() => clearTimeout(timer));
      if (done) return;
      this._receivedAt = Date.now();
      for (const data of parser.push(value)) {
        /** @type {StreamMessage} */
        const message = JSON.parse(data);
        this._options.onMessage(message);
        if (this._others.size) this._post({ kind: "message", message });
      }
    }
  }
}

/** Error response; `message` can be shown to the user. */
export class RequestFailed extends Error {
  /**
   * @param {number} status
   * @param {string} message
   * @param {any} [answer] Body of the response.
   */
  constructor(status, message, answer = null) {
    super(message);
    this.status = status;
    this.answer = answer;
    this.code = String(answer?.error?.code ?? "");
  }
}

/** Callback for the end of the sign-in of this browser. */
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
    const id = /** @type {{ id?: string }} */ (body ?? {}).id;
    if (id) options.headers["idempotency-key"] = id;
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
    throw new RequestFailed(reply.status, answer?.error?.message ?? `The server answered ${reply.status}.`, answer);
  }
  return answer;
}

/** @template T @param {string} path @returns {Promise<T>} */
export const get = (path) => request("GET", path);

/** @template T @param {string} path @param {object} [body] @returns {Promise<T>} */
export const post = (path, body) => request("POST", path, body);

/**
 * Create a function to call before each request. It returns a function that tells whether that request is still the
 * newest. For requests that replace each other, for example searches: responses may arrive out of order.
 */
export function trackNewest() {
  let last = 0;
  return () => {
    const number = ++last;
    return () => number === last;
  };
}

/** Create an id for a message, by which the server ignores repeated ones. */
export const newId = () =>
  [...crypto.getRandomValues(new Uint8Array(12))].map((one) => one.toString(16).padStart(2, "0")).join("");

/** Text of an error for the user. @type {(error: unknown) => string} */
export const describe = (error) => (error instanceof Error ? error.message : String(error));
