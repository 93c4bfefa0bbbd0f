/**
 * One conversation: its transcript, the turn that is running, and what can be done with both.
 * @module
 */
import { batch, signal } from "../vendor/preact.js";
import { describe, get, post, request, trackNewest } from "./server.js";
import { applyEvents, entriesOf, isPrompt, noticeEntries, withKeys, withNotices } from "./turn.js";

/** @import { Signal } from "../vendor/preact.d.ts" */
/** @import { Entry, FoldedEntry, NoticeEntry, Turn } from "./turn.js" */
/** @import { CommandReply, DeliveredMessage, MessagePage, NoticeView, QueuedMessage, SessionDetail, SessionMessage, SessionRow } from "./wire.d.ts" */

/** What the stream says about a conversation. @typedef {SessionMessage | DeliveredMessage} ConversationMessage */
/** `seq` is the number of its message, 0 for what the transcript does not hold yet. */
/** @typedef {{ key: string, seq: number, entry: Entry }} ShownEntry */

/** Details, with the number of the question that they answer. @typedef {{ detail: SessionDetail, number: number }} NumberedDetail */

const PAGE = 60;
const MOST = 500;
/** A number after that of any message. */
const BEYOND = 2 ** 31;
/** After how many milliseconds without an event a turn that does not run has ended. */
const SILENCE = 2000;
/** How many messages are shown before one that a search has found. */
const CONTEXT = 12;
const ENDS = new Set(["answered", "stopped", "out_of_budget", "failed"]);

export class Conversation {
  /** @param {string} id */
  constructor(id) {
    this.id = id;
    /** @type {Signal<SessionDetail | null>} */
    this.detail = signal(null);
    /** What the transcript holds, oldest first. @type {Signal<{ seq: number, entry: Entry }[]>} */
    this.past = signal([]);
    /** The turn that is running. @type {Signal<Turn | null>} */
    this.turn = signal(null);
    /** What the last turn said that the transcript does not hold. @type {Signal<NoticeEntry[]>} */
    this.tail = signal([]);
    /** Messages that wait for their turn. @type {Signal<QueuedMessage[]>} */
    this.queued = signal([]);
    /** The earlier message that is being edited. @type {Signal<{ seq: number, text: string } | null>} */
    this.editing = signal(null);
    /** The message to which to scroll, found by a search; below 0 the end, since this tab has said something. */
    this.target = signal(0);
    /** What commands have shown. @type {Signal<string[]>} */
    this.notes = signal([]);
    /** What was delivered here and is no part of the transcript. @type {Signal<NoticeView[]>} */
    this.notices = signal([]);
    /** Entries that the user has expanded, live ones also after they are stored. @type {FoldedEntry[]} */
    this.expanded = [];
    this.more = signal(false);
    this.loaded = signal(false);
    /** Why it can't be shown. */
    this.problem = signal("");
    this._turnFrom = Infinity;
    this._firstSeq = this._lastSeq = 0;
    this._isSyncing = this._needsSync = false;
    this._lastEventAt = 0;
    /** Whether something changed before everything was loaded. */
    this._changedBeforeLoad = false;
    /** Queued messages whose turn has begun, or that were withdrawn. @type {Set<number>} */
    this._dequeued = new Set();
    this._startLoad = trackNewest();
    /** How many details were asked for, and which of them is shown; then the same for pages of the transcript. */
    this._detailsRequested = 0;
    this._detailShown = 0;
    this._pagesRequested = 0;
    this._pageReceived = 0;
    /** What the list knew last, and how many details had been asked for by then. @type {{ row: SessionRow, requested: number } | null} */
    this._listed = null;
  }

  /** Everything on the screen, oldest first. @returns {ShownEntry[]} */
  get shown() {
    const turn = this.turn.value;
    const past = this.past.value.filter((one) => !turn || isPrompt(turn) || one.seq < this._turnFrom);
    const found = withKeys(past);
    const isLive = turn && !isPrompt(turn);
    for (const notice of this.notices.value) {
      if (isLive && notice.after >= this._turnFrom) continue; // it stands in the live view of the turn
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

  /** The title, or the first words until there is one. */
  get title() {
    const first = this.shown.find((one) => one.entry.kind === "user")?.entry;
    return this.detail.value?.title || (first?.kind === "user" ? first.text.slice(0, 80) : "");
  }

  /** Whether a turn is running. */
  get running() {
    const turn = this.turn.value;
    return turn && !isPrompt(turn) ? !turn.over : (this.detail.value?.running ?? false);
  }

  /** Load the end of the transcript, from a message on if one is given. */
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

  /** Show it from its beginning, with what was heard of it: nothing has to be loaded. @type {(text: string, messages: ConversationMessage[]) => void} */
  begin(text, messages) {
    this.queued.value = text ? [{ id: 0, text, own: false }] : [];
    this.loaded.value = true;
    for (const one of messages) if (one.topic === "delivered" || one.events.length) this.receive(one);
  }

  /** Take what the stream says about it. @param {ConversationMessage} message */
  receive(message) {
    if (message.topic === "session") this.receiveEvents(message);
    else void this.showDelivered().catch(() => null);
  }

  /** Load earlier messages. */
  async loadEarlier() {
    const first = this._firstSeq;
    const page = await this._getPage(`limit=${PAGE}&before=${first}`);
    if (first !== this._firstSeq) return; // they are there, or another part is shown
    batch(() => {
      this.past.value = [...entriesOf(page.messages), ...this.past.value];
      this.more.value = page.more;
      this._firstSeq = page.messages[0]?.seq ?? this._firstSeq;
    });
  }

  /** Read again what may have changed. */
  async refresh() {
    this._setDetail(await this._getDetail());
    const turn = this.turn.peek();
    if (turn && this._isLive() && !this.detail.peek()?.running) {
      const wait = this._lastEventAt + SILENCE - Date.now();
      if (wait > 0) setTimeout(() => void this.refresh().catch(() => null), wait); // its last events may be on the way
      else this.turn.value = { ...turn, over: true }; // its process has died: no end will be heard
    }
    if (!this.turn.peek() || this.turn.peek()?.over) await this._sync();
  }

  /** Show what was delivered, also in the middle of a turn. */
  async showDelivered() {
    if (!this._isLive()) await this.refresh();
    if (this._isLive()) this.notices.value = (await this._getPage(`after=${BEYOND}&limit=1`)).notices;
  }

  /** Take over what the list knows. @param {SessionRow} row */
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

  /** Hear events of the running turn. @param {SessionMessage} message */
  receiveEvents({ snapshot, events }) {
    this._lastEventAt = Date.now();
    batch(() => {
      const turn = this.turn.peek();
      // A turn that has ended stays on the screen until the transcript is there.
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
      if (snapshot) void this.showDelivered().catch(() => null); // something may have come before the stream did
    }
    if (snapshot && this.problem.peek()) void this.load(); // the line is back
  }

  /** Say something; with `steer` it joins the running turn. @type {(text: string, id: string, steer: boolean, files?: string[]) => Promise<void>} */
  async send(text, id, steer, files = []) {
    this.queued.value = [...this.queued.peek(), { id: 0, text, own: false }];
    this.target.value = -1;
    this.notes.value = []; // they would stand below what is said now
    try {
      await post(`/web/sessions/${this.id}/messages`, { text, id, steer, files });
      if (this.running) this._setDetail(await this._getDetail());
    } catch (error) {
      this._unqueue(text);
      throw error;
    }
  }

  /** Branch: with a text, edit one of my messages; without one, continue after its exchange. @type {(seq: number, text?: string) => Promise<CommandReply>} */
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

  /** Answer a question or an approval, a refusal with a reason. @type {(question: string, text: string, reason?: string) => Promise<unknown>} */
  answer(question, text, reason = "") {
    return post(`/web/sessions/${this.id}/answers/${question}`, { text, reason });
  }

  /** Continue here what lives in a chat. */
  async takeOver() {
    this._setDetail({ detail: await post(`/web/sessions/${this.id}/take`), number: ++this._detailsRequested });
  }

  /** Return it to the chat it was taken from. */
  async handBack() {
    this._setDetail({ detail: await post(`/web/sessions/${this.id}/hand-back`), number: ++this._detailsRequested });
  }

  /** Read what is new in the transcript, and show that instead of the live view of a turn that is over. */
  async _sync() {
    this._needsSync = true;
    if (!this.loaded.peek()) this._changedBeforeLoad = true; // loading settles it
    if (this._isSyncing || !this.loaded.peek()) return;
    this._isSyncing = true;
    try {
      while (this._needsSync) {
        this._needsSync = false;
        const after = this._lastSeq;
        const [detail, page] = await Promise.all([this._getDetail(), this._getPage(`after=${after}&limit=${MOST}`)]);
        const isCurrent = after === this._lastSeq; // otherwise another part was loaded in the meantime
        if (isCurrent) batch(() => this._applyPage(detail, page));
        if (!isCurrent || page.messages.length === MOST) this._needsSync = true;
      }
    } catch {
      // The connection is down: the next snapshot settles it.
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

  /** Find the message with which the running turn began: from there on, the live view is shown. */
  _align() {
    const [first] = this.turn.peek()?.entries ?? [];
    if (first?.kind !== "user") return;
    const begin = this.past.peek().findLast(({ entry }) => entry.kind === "user" && entry.text === first.text.trim());
    if (!begin) return;
    this._turnFrom = begin.seq;
    this._lastSeq = begin.seq - 1;
  }

  /** Show what was asked for last; an older answer may arrive later. @param {NumberedDetail} answer */
  _setDetail({ detail, number }) {
    if (number < this._detailShown) return;
    this._detailShown = number;
    const row = this._listed && number <= this._listed.requested ? this._listed.row : {};
    batch(() => {
      this.detail.value = { ...detail, ...row };
      this.queued.value = detail.queued.filter((one) => !this._dequeued.has(one.id));
    });
  }

  /** @param {string} text */
  _unqueue(text) {
    const index = this.queued.peek().findIndex((one) => one.text === text);
    this.queued.value = this.queued.peek().filter((_, place) => place !== index);
  }

  /** @returns {Promise<NumberedDetail>} */
  async _getDetail() {
    const number = ++this._detailsRequested;
    return { number, detail: await get(`/web/sessions/${this.id}`) };
  }

  /** Ask for messages; each page has all notices, and one that is overtaken the newer ones. @param {string} query @returns {Promise<MessagePage>} */
  async _getPage(query) {
    const number = ++this._pagesRequested;
    const page = await get(`/web/sessions/${this.id}/messages?${query}`);
    if (number < this._pageReceived) return { ...page, notices: this.notices.peek() };
    this._pageReceived = number;
    return page;
  }

  /** Whether a turn is running and shown. */
  _isLive() {
    const turn = this.turn.peek();
    return turn !== null && !turn.over && !isPrompt(turn);
  }
}
