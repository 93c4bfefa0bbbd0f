/**
 * State of one conversation: its transcript, the running turn, and requests that change them.
 * @module
 */
import { batch, signal } from "../vendor/preact.js";
import { describe, get, post, request, trackNewest } from "./server.js";
import { applyEvents, entriesOf, isPrompt, noticeEntries, withKeys, withNotices } from "./turn.js";

/** @import { Signal } from "../vendor/preact.d.ts" */
/** @import { Entry, FoldedEntry, NoticeEntry, Turn } from "./turn.js" */
/** @import { CommandReply, DeliveredMessage, MessagePage, NoticeView, QueuedMessage, SessionDetail, SessionMessage, SessionRow } from "./wire.d.ts" */

/** Stream message about a conversation. @typedef {SessionMessage | DeliveredMessage} ConversationMessage */
/** Entry on the screen. `seq` is the number of its message, 0 while that is not stored. */
/** @typedef {{ key: string, seq: number, entry: Entry }} ShownEntry */

/** Session details, with the number of their request. @typedef {{ detail: SessionDetail, number: number }} NumberedDetail */

const PAGE = 60;
const MOST = 500;
/** Sequence number higher than that of any message. */
const BEYOND = 2 ** 31;
/** Milliseconds without an event after which a turn counts as ended if the server reports it as not running. */
const SILENCE = 2000;
/** Number of messages shown before a search result. */
const CONTEXT = 12;
const ENDS = new Set(["answered", "stopped", "out_of_budget", "failed"]);

export class Conversation {
  /** @param {string} id */
  constructor(id) {
    this.id = id;
    /** @type {Signal<SessionDetail | null>} */
    this.detail = signal(null);
    /** Stored entries, oldest first. @type {Signal<{ seq: number, entry: Entry }[]>} */
    this.past = signal([]);
    /** Running turn, or one that has ended and isn't loaded from the transcript yet. @type {Signal<Turn | null>} */
    this.turn = signal(null);
    /** Notices of the last turn, which are not part of the transcript. @type {Signal<NoticeEntry[]>} */
    this.tail = signal([]);
    /** Messages waiting for their turn. @type {Signal<QueuedMessage[]>} */
    this.queued = signal([]);
    /** Earlier message that the user is editing. @type {Signal<{ seq: number, text: string } | null>} */
    this.editing = signal(null);
    /** Number of the search result to scroll to; negative for the end, after this tab has sent a message. */
    this.target = signal(0);
    /** Output of commands. @type {Signal<string[]>} */
    this.notes = signal([]);
    /** Deliveries to this conversation, which are not part of the transcript. @type {Signal<NoticeView[]>} */
    this.notices = signal([]);
    /** Entries that the user has expanded; the stored version of a live entry counts too. @type {FoldedEntry[]} */
    this.expanded = [];
    this.more = signal(false);
    this.loaded = signal(false);
    /** Error message if the conversation could not be loaded. */
    this.problem = signal("");
    this._turnFrom = Infinity;
    this._firstSeq = this._lastSeq = 0;
    this._isSyncing = this._needsSync = false;
    this._lastEventAt = 0;
    /** Whether something changed before the first load was complete. */
    this._changedBeforeLoad = false;
    /** Ids of queued messages whose turn has started, or that were withdrawn. @type {Set<number>} */
    this._dequeued = new Set();
    this._startLoad = trackNewest();
    /** Numbers of the last request for details and of the details shown, then the same for transcript pages. */
    this._detailsRequested = 0;
    this._detailShown = 0;
    this._pagesRequested = 0;
    this._pageReceived = 0;
    /** Latest row from the session list, and the number of the last request for details at that time. @type {{ row: SessionRow, requested: number } | null} */
    this._listed = null;
  }

  /** All entries on the screen, oldest first. @returns {ShownEntry[]} */
  get shown() {
    const turn = this.turn.value;
    const past = this.past.value.filter((one) => !turn || isPrompt(turn) || one.seq < this._turnFrom);
    const found = withKeys(past);
    const isLive = turn && !isPrompt(turn);
    for (const notice of this.notices.value) {
      if (isLive && notice.after >= this._turnFrom) continue; // shown in the live view of the turn
      const next = found.findIndex((one) => one.seq > notice.after);
      const entries = noticeEntries(notice).map((entry, index) => (
        { key: `notice.${notice.id}.${index}`, seq: notice.after, entry }
      ));
      if (next !== 0 || !this.more.value) found.splice(next < 0 ? found.length : next, 0, ...entries);
    }
    const during = isLive ? this.notices.value.filter((one) => one.after >= this._turnFrom) : [];
    const live = withNotices(turn?.entries ?? [], during).map(({ key, entry }) => (
      { key: `live.${turn?.id}.${key}`, seq: 0, entry }
    ));
    return [...found, ...live, ...this.tail.value.map((entry, index) => ({ key: `tail.${index}`, seq: 0, entry }))];
  }

  /** Title, or the start of the first message until there is one. */
  get title() {
    const first = this.shown.find((one) => one.entry.kind === "user")?.entry;
    return this.detail.value?.title || (first?.kind === "user" ? first.text.slice(0, 80) : "");
  }

  /** Whether a turn is running. */
  get running() {
    const turn = this.turn.value;
    return turn && !isPrompt(turn) ? !turn.over : (this.detail.value?.running ?? false);
  }

  /** Load the end of the transcript, or the part that starts shortly before message `seq`. */
  async load(seq = 0) {
    const isNewest = this._startLoad();
    try {
      const query = seq ? `after=${Math.max(seq - CONTEXT, 0)}&limit=${MOST}` : `limit=${PAGE}`;
      const [detail, page] = await Promise.all([this._getDetail(), this._getPage(query)]);
      if (!isNewest()) return;
      this.problem.value = "";
      batch(() => {
        this._setDetail(detail);
        this._turnFrom = page.turn_from ?? Infinity;
        this.past.value = entriesOf(page.messages);
        this.notices.value = page.notices;
        this.more.value = page.more || (page.messages[0]?.seq ?? 1) > 1;
        this.target.value = seq;
        this._firstSeq = page.messages[0]?.seq ?? 0;
        this._lastSeq = Math.min(page.messages.at(-1)?.seq ?? 0, this._turnFrom - 1);
        this.loaded.value = true;
        this._align();
      });
      if (page.messages.length === MOST || this._changedBeforeLoad) await this._sync();
    } catch (error) {
      if (isNewest()) this.problem.value = describe(error);
    }
  }

  /** Show a new conversation with its first message and the stream messages received so far, without loading it. @type {(text: string, messages: ConversationMessage[]) => void} */
  begin(text, messages) {
    this.queued.value = text ? [{ id: 0, text, own: false }] : [];
    this.loaded.value = true;
    for (const one of messages) if (one.topic === "delivered" || one.events.length) this.receive(one);
  }

  /** Process a stream message. @param {ConversationMessage} message */
  receive(message) {
    if (message.topic === "session") this.receiveEvents(message);
    else void this.showDelivered().catch(() => null);
  }

  /** Load earlier messages. */
  async loadEarlier() {
    const first = this._firstSeq;
    const page = await this._getPage(`limit=${PAGE}&before=${first}`);
    if (first !== this._firstSeq) return; // already loaded, or another part is shown
    batch(() => {
      this.past.value = [...entriesOf(page.messages), ...this.past.value];
      this.more.value = page.more;
      this._firstSeq = page.messages[0]?.seq ?? this._firstSeq;
    });
  }

  /** Load details and new messages. */
  async refresh() {
    this._setDetail(await this._getDetail());
    const turn = this.turn.peek();
    if (turn && this._isLive() && !this.detail.peek()?.running) {
      const wait = this._lastEventAt + SILENCE - Date.now();
      if (wait > 0) setTimeout(() => void this.refresh().catch(() => null), wait); // its last events may be in transit
      else this.turn.value = { ...turn, over: true }; // its process has died
    }
    if (!this.turn.peek() || this.turn.peek()?.over) await this._sync();
  }

  /** Load new deliveries, also during a turn. */
  async showDelivered() {
    if (!this._isLive()) await this.refresh();
    if (this._isLive()) this.notices.value = (await this._getPage(`after=${BEYOND}&limit=1`)).notices;
  }

  /** Apply a row of the session list. @param {SessionRow} row */
  update(row) {
    const known = this.detail.peek();
    if (!known && !this.loaded.peek()) {
      this._changedBeforeLoad = true;
      return;
    }
    this._listed = { row, requested: this._detailsRequested };
    if (known) this.detail.value = { ...known, ...row };
    const isSame = known?.running === row.running && known.network === row.network &&
      known.message_count === row.message_count;
    if (!isSame) void this.refresh().catch(() => null);
  }

  /** Apply events of the running turn. @param {SessionMessage} message */
  receiveEvents({ snapshot, events }) {
    this._lastEventAt = Date.now();
    batch(() => {
      const turn = this.turn.peek();
      // Show an ended turn until its messages are loaded.
      if (snapshot && !events.length && turn && !isPrompt(turn)) this.turn.value = { ...turn, over: true };
      else if (snapshot) this.turn.value = applyEvents(null, events);
      else this.turn.value = applyEvents(this.turn.peek(), events);
      for (const event of events) {
        if (event.type === "began") {
          this.tail.value = [];
          this._unqueue(event.text);
          for (const item of event.items ?? []) this._dequeued.add(item);
          if (!snapshot) this._turnFrom = this._lastSeq + 1;
        } else if (event.type === "person_joined") this._unqueue(event.text);
      }
      if (snapshot) this._align();
    });
    if (!this.loaded.peek()) this._changedBeforeLoad = true;
    const hasEnded = events.some((event) => ENDS.has(event.type)) || (snapshot && !events.length);
    if (hasEnded && (!snapshot || this.loaded.peek())) void this._sync();
    else if (this.loaded.peek()) {
      if (!this._detailsRequested) void this.refresh().catch(() => null);
      if (snapshot) void this.showDelivered().catch(() => null); // deliveries before the stream was open
    }
    if (snapshot && this.problem.peek()) void this.load(); // connected again
  }

  /** Send a message; with `steer` it joins the running turn. @type {(text: string, id: string, steer: boolean, files?: string[]) => Promise<void>} */
  async send(text, id, steer, files = []) {
    this.queued.value = [...this.queued.peek(), { id: 0, text, own: false }];
    this.target.value = -1;
    this.notes.value = []; // they would be below the new message
    try {
      await post(`/web/sessions/${this.id}/messages`, { text, id, steer, files });
      if (this.running) this._setDetail(await this._getDetail());
    } catch (error) {
      this._unqueue(text);
      throw error;
    }
  }

  /** Create a branch: with a text, replace the user's message `seq`; without one, continue after its exchange. @type {(seq: number, text?: string) => Promise<CommandReply>} */
  branch(seq, text = "") {
    return post(`/web/sessions/${this.id}/branch`, { seq, text });
  }

  /** Withdraw a queued message. @param {QueuedMessage} message */
  async withdraw({ id }) {
    await request("DELETE", `/web/sessions/${this.id}/queue/${id}`);
    this._dequeued.add(id);
    this.queued.value = this.queued.peek().filter((one) => one.id !== id);
  }

  /** Stop the running turn. */
  stop() {
    return post(`/web/sessions/${this.id}/stop`);
  }

  /** Answer a question or an approval; a refusal may have a reason. @type {(question: string, text: string, reason?: string) => Promise<unknown>} */
  answer(question, text, reason = "") {
    return post(`/web/sessions/${this.id}/answers/${question}`, { text, reason });
  }

  /** Take the session over from its chat. */
  async takeOver() {
    this._setDetail({ detail: await post(`/web/sessions/${this.id}/take`), number: ++this._detailsRequested });
  }

  /** Hand the session back to the chat it was taken from. */
  async handBack() {
    this._setDetail({ detail: await post(`/web/sessions/${this.id}/hand-back`), number: ++this._detailsRequested });
  }

  /** Load new messages of the transcript; they replace the live view of an ended turn. */
  async _sync() {
    this._needsSync = true;
    if (!this.loaded.peek()) this._changedBeforeLoad = true; // the load syncs afterwards
    if (this._isSyncing || !this.loaded.peek()) return;
    this._isSyncing = true;
    try {
      while (this._needsSync) {
        this._needsSync = false;
        const after = this._lastSeq;
        const [detail, page] = await Promise.all([this._getDetail(), this._getPage(`after=${after}&limit=${MOST}`)]);
        const isCurrent = after === this._lastSeq; // otherwise another part was loaded meanwhile
        if (isCurrent) batch(() => this._applyPage(detail, page));
        if (!isCurrent || page.messages.length === MOST) this._needsSync = true;
      }
    } catch {
      // The connection is down: the next snapshot syncs again.
    } finally {
      this._isSyncing = false;
    }
  }

  /** @type {(detail: NumberedDetail, page: MessagePage) => void} */
  _applyPage(detail, page) {
    this._setDetail(detail);
    this.notices.value = page.notices;
    this._turnFrom = page.turn_from ?? Infinity;
    this.past.value = [...this.past.peek().filter((one) => one.seq <= this._lastSeq), ...entriesOf(page.messages)];
    const last = page.messages.at(-1)?.seq ?? this._lastSeq;
    this._lastSeq = Math.max(this._lastSeq, Math.min(last, this._turnFrom - 1));
    const turn = this.turn.peek();
    if (turn?.over) {
      this.tail.value = turn.entries.filter((one) => one.kind === "notice").slice(-3);
      this.turn.value = null;
    } else this._align();
  }

  /** Find the message that started the running turn; the live view replaces the transcript from there. */
  _align() {
    const [first] = this.turn.peek()?.entries ?? [];
    if (first?.kind !== "user") return;
    const begin = this.past.peek().findLast(({ entry }) => entry.kind === "user" && entry.text === first.text.trim());
    if (!begin) return;
    this._turnFrom = begin.seq;
    this._lastSeq = begin.seq - 1;
  }

  /** Show details unless those of a newer request are shown. @param {NumberedDetail} answer */
  _setDetail({ detail, number }) {
    if (number < this._detailShown) return;
    this._detailShown = number;
    const row = this._listed && number <= this._listed.requested ? this._listed.row : {};
    batch(() => {
      this.detail.value = { ...detail, ...row };
      this.queued.value = detail.queued.filter((one) => !this._dequeued.has(one.id));
    });
  }

  /** Remove the first queued message with this text. @param {string} text */
  _unqueue(text) {
    const index = this.queued.peek().findIndex((one) => one.text === text);
    this.queued.value = this.queued.peek().filter((_, position) => position !== index);
  }

  /** @returns {Promise<NumberedDetail>} */
  async _getDetail() {
    const number = ++this._detailsRequested;
    return { number, detail: await get(`/web/sessions/${this.id}`) };
  }

  /** Load a page of messages. Each page has all notices; a page that arrives out of order gets the newer ones. @param {string} query @returns {Promise<MessagePage>} */
  async _getPage(query) {
    const number = ++this._pagesRequested;
    const page = await get(`/web/sessions/${this.id}/messages?${query}`);
    if (number < this._pageReceived) return { ...page, notices: this.notices.peek() };
    this._pageReceived = number;
    return page;
  }

  /** Whether the live view of a running turn is shown. */
  _isLive() {
    const turn = this.turn.peek();
    return turn !== null && !turn.over && !isPrompt(turn);
  }
}
