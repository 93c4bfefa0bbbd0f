/**
 * Entries of a turn, from the events of a running turn or from the messages of the transcript.
 * @module
 */
import { Blocks } from "./markdown.js";

/** @import { FileView, NoticeView, TranscriptMessage, TurnEvent } from "./wire.d.ts" */

/** `author` is empty for the person at this browser. @typedef {{ kind: "user", text: string, author?: string, at?: string, files?: FileView[] }} UserEntry */
/** @typedef {{ kind: "text", text: string, blocks: Blocks, at?: string }} TextEntry */
/** @typedef {{ kind: "files", files: readonly FileView[] }} FilesEntry */
/** @typedef {{ kind: "reasoning", text: string }} ReasoningEntry */
/** @typedef {{ kind: "notice", text: string, tone: "info" | "error" }} NoticeEntry */
/** @typedef {{ kind: "approval", id: string, tool: string, summary: string, reason: string, diff: string }} ApprovalEntry */
/** @typedef {{ kind: "question", id: string, question: string, choices: string[] }} QuestionEntry */
/**
 * @typedef {object} ToolEntry
 * @property {"tool"} kind
 * @property {string} id
 * @property {string} name
 * @property {string} summary
 * @property {string} input
 * @property {"running" | "done" | "failed" | "refused"} state
 * @property {string} output
 * @property {string} diff
 * @property {number} seconds
 * @property {FileView[]} [files] Images that the model got.
 */
/** An entry that the user can expand. @typedef {ReasoningEntry | ToolEntry} FoldedEntry */
/** @typedef {UserEntry | TextEntry | FilesEntry | ReasoningEntry | NoticeEntry | ApprovalEntry | QuestionEntry | ToolEntry} Entry */

/**
 * @typedef {object} Turn
 * @property {string} id
 * @property {Entry[]} entries
 * @property {boolean} over
 * @property {string} model
 * @property {number} context
 * @property {number} contextLimit
 */

const MOST_PROGRESS = 20_000;
const PROMPT = "prompt";
/** Instructions that `/plan` puts before a task. */
const PLAN_INSTRUCTIONS = /^Plan mode is on: until a plan is approved, .*\n\n(?=.)/;
/** Author of the message with which images of tools reach the model. */
const TOOLS = "tools";
const FILE_TOOLS = new Set(["send_file", "image_generate", "speak", "browser"]);
/** Report of these tools about a file that they send. */
const SENDS_FILE = /(?:^|\s)Sending .+ to /;

/** @returns {Turn} */
export function newTurn(id = "") {
  return { id, entries: [], over: false, model: "", context: 0, contextLimit: 0 };
}

/**
 * Apply events in order and return the turn as a new object.
 * @param {Turn | null} before
 * @param {readonly TurnEvent[]} events
 * @returns {Turn | null}
 */
export function applyEvents(before, events) {
  let turn = before ? { ...before } : null;
  for (const event of events) {
    if (event.type === "began") {
      turn = newTurn(event.turn_id);
      if (event.text) turn.entries.push({ ...parseUserText(event.text), author: event.route?.user_name });
    } else {
      if (!turn && event.type === "question_asked") turn = newTurn(PROMPT);
      if (turn) apply(turn, event);
    }
  }
  return turn && isPrompt(turn) && !turn.entries.length ? null : turn;
}

/** Whether this is the question of a command instead of a turn. @type {(turn: Turn) => boolean} */
export const isPrompt = (turn) => turn.id === PROMPT;

/** @type {(turn: Turn, event: TurnEvent) => void} */
function apply(turn, event) {
  const { entries } = turn;
  const last = entries.at(-1);
  switch (event.type) {
    case "text":
      if (last?.kind === "text") {
        last.text += event.text;
        last.blocks.append(event.text);
      } else entries.push(textEntry(event.text));
      break;
    case "reasoning":
      if (last?.kind === "reasoning") last.text += event.text;
      else entries.push({ kind: "reasoning", text: event.text });
      break;
    case "tool_called":
      entries.push(toolEntry(event.call.id, event.call.name, event.summary, event.call.arguments));
      break;
    case "tool_progressed":
      change(turn, event.call_id, (tool) => ({ ...tool, output: progress(tool.output, event.text, event.step) }));
      break;
    case "tool_answered":
      change(turn, event.result.call_id, (tool) => ({
        ...tool,
        state: event.result.failed ? "failed" : "done",
        output: event.result.text,
        diff: event.diff,
        seconds: event.seconds,
      }));
      break;
    case "tool_refused":
      entries.push({
        ...toolEntry(event.call.id, event.call.name, event.summary, event.call.arguments),
        state: "refused",
        output: event.reason,
      });
      break;
    case "approval_asked":
      if (entries.some((one) => isOpenQuestion(one) && one.id === event.id)) break; // was in the snapshot
      entries.push({
        kind: "approval",
        id: event.id,
        tool: event.tool,
        summary: event.summary,
        reason: event.reason,
        diff: event.diff,
      });
      break;
    case "question_asked":
      if (entries.some((one) => isOpenQuestion(one) && one.id === event.id)) break;
      entries.push({ kind: "question", id: event.id, question: event.question, choices: event.choices });
      break;
    case "question_closed":
      turn.entries = entries.filter((one) => !isOpenQuestion(one) || one.id !== event.id);
      break;
    case "person_joined":
      entries.push({ kind: "user", text: event.text });
      break;
    case "noticed":
      entries.push({ kind: "notice", text: event.text, tone: "info" });
      break;
    case "store_blocked":
      entries.push({ kind: "notice", text: "Waiting for the database …", tone: "info" });
      break;
    case "model_called":
      turn.model = event.model;
      turn.context = event.context;
      turn.contextLimit = event.context_limit;
      break;
    case "answered":
    case "stopped":
    case "out_of_budget":
    case "failed":
      end(turn, event);
      break;
    case "began":
      break;
    default:
      ignore(event);
  }
}

/** Fail the type check if an event type is not handled. @param {never} _event */
function ignore(_event) {}

/** @type {(turn: Turn, event: Extract<TurnEvent, { type: "answered" | "stopped" | "out_of_budget" | "failed" }>) => void} */
function end(turn, event) {
  turn.over = true;
  turn.entries = turn.entries.filter((one) => !isOpenQuestion(one));
  const entries = turn.entries;
  if (event.type === "answered") {
    if (event.text && !entries.some((one) => one.kind === "text")) entries.push(textEntry(event.text));
  } else if (event.type === "stopped") entries.push({ kind: "notice", text: "Stopped.", tone: "info" });
  else if (event.type === "failed") {
    entries.push({ kind: "notice", text: event.details || event.text, tone: "error" });
  } else entries.push({ kind: "notice", text: event.text, tone: "error" });
}

/** Whether two entries are the same one, for example live and stored. @type {(one: FoldedEntry, other: FoldedEntry) => boolean} */
export const isSameEntry = (one, other) => identify(one) === identify(other);

/** Ids of calls alone may repeat in later turns. @type {(entry: FoldedEntry) => string} */
const identify = (entry) => (entry.kind === "tool" ? entry.id + entry.input : entry.text.trim());

/** Whether an entry waits for an answer. @type {(entry: Entry) => entry is ApprovalEntry | QuestionEntry} */
export function isOpenQuestion(entry) {
  return entry.kind === "approval" || entry.kind === "question";
}

/** @type {(before: string, text: string, step: boolean) => string} */
function progress(before, text, step) {
  const joined = step ? `${before}${before && !before.endsWith("\n") ? "\n" : ""}${text}\n` : before + text;
  return joined.slice(-MOST_PROGRESS);
}

/** @type {(turn: Turn, id: string, change: (tool: ToolEntry) => ToolEntry) => void} */
function change(turn, id, change) {
  turn.entries = turn.entries.map((one) => (one.kind === "tool" && one.id === id ? change(one) : one));
}

/** @type {(text: string, at?: string) => TextEntry} */
function textEntry(text, at) {
  const blocks = new Blocks();
  blocks.append(text);
  return { kind: "text", text, blocks, at };
}

/**
 * Extract the user's own text from a message to the model: without the instructions of plan mode before it and the
 * content of mentioned files after it.
 * @type {(text: string) => UserEntry}
 */
export function parseUserText(whole) {
  const text = whole.replace(PLAN_INSTRUCTIONS, "");
  const end = text.search(/\nThe (?:file|folder) \/.+:\n/);
  if (end < 0 || !text.slice(0, end).includes("@")) return { kind: "user", text };
  const files = [...text.slice(end).matchAll(/^The (?:file|folder) \/(?:.*\/)?(.+?):$/gm)].map((
    found,
  ) => /** @type {FileView} */ ({ type: "file", id: "", name: found[1] ?? "", media_type: "" }));
  return { kind: "user", text: text.slice(0, end).trim(), files };
}

/** @type {(id: string, name: string, summary: string, input: string) => ToolEntry} */
function toolEntry(id, name, summary, input) {
  return { kind: "tool", id, name, summary, input, state: "running", output: "", diff: "", seconds: 0 };
}

/**
 * Convert messages of the transcript to entries, each with the number of its message.
 * @param {readonly TranscriptMessage[]} messages
 * @returns {{ seq: number, entry: Entry }[]}
 */
export function entriesOf(messages) {
  /** @type {{ seq: number, entry: Entry }[]} */
  const found = [];
  for (const message of messages) {
    if (message.role === "user" && message.author === TOOLS) addImages(found, message);
    else if (message.role === "user") found.push({ seq: message.seq, entry: userEntry(message) });
    else if (message.role === "assistant") {
      for (const entry of assistantEntries(message)) found.push({ seq: message.seq, entry });
    } else if (message.role === "tool") addResults(found, message);
  }
  return found;
}

/**
 * Add a key to each entry of the transcript: the number of its message and its position in that.
 * @type {(past: readonly { seq: number, entry: Entry }[]) => { key: string, seq: number, entry: Entry }[]}
 */
export function withKeys(past) {
  /** @type {Map<number, number>} */
  const counts = new Map();
  return past.map(({ seq, entry }) => {
    const count = counts.get(seq) ?? 0;
    counts.set(seq, count + 1);
    return { key: `${seq}.${count}`, seq, entry };
  });
}

/** @type {(message: TranscriptMessage) => UserEntry} */
function userEntry(message) {
  const text = message.parts.map((part) => (part.type === "text" ? part.text : "")).join("\n").trim();
  const files = message.parts.filter((part) => part.type === "file");
  const entry = parseUserText(text);
  return { ...entry, author: message.author, at: message.at, files: [...(entry.files ?? []), ...files] };
}

/** Add images from a tool to the entry of its call. @type {(found: { seq: number, entry: Entry }[], message: TranscriptMessage) => void} */
function addImages(found, message) {
  const tool = found.findLast((one) => one.entry.kind === "tool")?.entry;
  if (tool?.kind === "tool") tool.files = message.parts.filter((part) => part.type === "file");
}

/** Convert a delivery outside the transcript to entries. @type {(notice: NoticeView) => Entry[]} */
export function noticeEntries(notice) {
  /** @type {Entry[]} */
  const files = notice.files.length ? [{ kind: "files", files: notice.files }] : [];
  return notice.text ? [textEntry(notice.text, notice.at), ...files] : files;
}

/**
 * Merge deliveries into the entries of a running turn: a file after the call that sent it, the rest at the end.
 * @type {(entries: readonly Entry[], notices: readonly NoticeView[]) => { key: string, entry: Entry }[]}
 */
export function withNotices(entries, notices) {
  const files = notices.filter((one) => one.files.length);
  const rest = notices.filter((one) => !one.files.length);
  const shown = entries.flatMap((entry, index) => {
    const sends = entry.kind === "tool" && FILE_TOOLS.has(entry.name) && SENDS_FILE.test(entry.output);
    return [{ key: String(index), entry }, ...(sends ? asEntries(files.splice(0, 1)) : [])];
  });
  return [...shown, ...asEntries([...files, ...rest])];
}

/** @type {(notices: readonly NoticeView[]) => { key: string, entry: Entry }[]} */
const asEntries = (notices) =>
  notices.flatMap((notice) =>
    noticeEntries(notice).map((entry, index) => ({ key: `notice.${notice.id}.${index}`, entry }))
  );

/** @type {(message: TranscriptMessage) => Entry[]} */
function assistantEntries(message) {
  /** @type {Entry[]} */
  const found = message.author ? [{ kind: "notice", text: message.author, tone: "info" }] : [];
  for (const part of message.parts) {
    if (part.type === "text" && part.text) found.push(textEntry(part.text, message.at));
    else if (part.type === "reasoning" && part.text) found.push({ kind: "reasoning", text: part.text });
    else if (part.type === "file") found.push({ kind: "files", files: [part] });
    else if (part.type === "tool_call") {
      found.push({ ...toolEntry(part.id, part.name, summarise(part.arguments), part.arguments), state: "done" });
    }
  }
  return found;
}

/** @type {(found: { seq: number, entry: Entry }[], message: TranscriptMessage) => void} */
function addResults(found, message) {
  for (const part of message.parts) {
    if (part.type !== "tool_result") continue;
    const tool = found.findLast((one) => one.entry.kind === "tool" && one.entry.id === part.call_id);
    if (tool?.entry.kind === "tool") {
      tool.entry.output = part.text;
      tool.entry.state = part.failed ? "failed" : "done";
    }
  }
}

/**
 * Summarise the arguments of a call: its first value, in one line.
 * @param {string} json
 */
export function summarise(json) {
  try {
    const [first] = Object.values(JSON.parse(json));
    const text = typeof first === "string" ? first : first === undefined ? "" : JSON.stringify(first);
    return (text.split("\n")[0] ?? "").slice(0, 160);
  } catch {
    return json.slice(0, 160);
  }
}
