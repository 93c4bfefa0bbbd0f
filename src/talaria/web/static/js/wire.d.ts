/** What the server sends: the structs of `talaria/web/wire.py` and the turn events of `talaria/core/events.py`. */

export interface ToolCall {
  id: string;
  name: string;
  arguments: string;
}

export interface ToolResult {
  call_id: string;
  text: string;
  failed?: boolean;
}

export type TurnEvent =
  | { type: "began"; turn_id: string; said: string; items?: number[] }
  | { type: "text"; text: string }
  | { type: "reasoning"; text: string }
  | { type: "tool_called"; call: ToolCall; summary: string }
  | { type: "tool_progressed"; call_id: string; text: string; step: boolean }
  | { type: "tool_answered"; result: ToolResult; name: string; seconds: number; diff: string }
  | { type: "tool_refused"; call: ToolCall; summary: string; reason: string }
  | { type: "approval_asked"; id: string; tool: string; summary: string; reason: string; diff: string }
  | { type: "question_asked"; id: string; question: string; choices: string[] }
  | { type: "question_closed"; id: string }
  | { type: "person_joined"; text: string }
  | { type: "noticed"; text: string; lasting: boolean }
  | { type: "store_blocked" }
  | { type: "model_called"; model: string; context: number; context_limit: number }
  | { type: "answered"; text: string }
  | { type: "stopped" }
  | { type: "out_of_budget"; limit: string; text: string }
  | { type: "failed"; text: string; passing: boolean; details: string };

export type Part =
  | { type: "text"; text: string }
  | { type: "image"; source: string; media_type: string }
  | { type: "file"; source: string; name: string }
  | { type: "reasoning"; text: string }
  | ({ type: "tool_call" } & ToolCall)
  | ({ type: "tool_result" } & ToolResult);

export interface MessageView {
  seq: number;
  role: "system" | "user" | "assistant" | "tool";
  at: string;
  model: string;
  /** Who wrote it, if not the person or the agent here: a job, another chat. */
  author: string;
  parts: Part[];
}

/** A delivered message next to the transcript. */
export interface NoticeView {
  id: string;
  /** The number of the message before it. */
  after: number;
  at: string;
  text: string;
  files: Part[];
}

export interface MessagePage {
  messages: MessageView[];
  /** Whether there are earlier messages. */
  more: boolean;
  /** The first message of the running turn, which the live view shows. */
  turn_from: number | null;
  notices: NoticeView[];
}

export interface SessionRow {
  id: string;
  title: string;
  /** Where it began: `web`, `cli`, `telegram` and so on. */
  source: string;
  /** The chat network on which it is now; empty if none. */
  place: string;
  owner: string;
  model: string;
  updated_at: string;
  message_count: number;
  archived: boolean;
  running: boolean;
  /** How many messages were delivered while nobody looked. */
  unread: number;
}

export interface SessionDetail extends SessionRow {
  /** Where it is, as a sentence. */
  location: string;
  /** Whether another surface answers what is said here. */
  elsewhere: boolean;
  /** The chat it was taken from, to which it can be handed back. */
  taken_from: string;
  queued: string[];
}

export interface SessionPage {
  sessions: SessionRow[];
  next: string;
}

export interface Hit {
  session_id: string;
  title: string;
  seq: number;
  at: string;
  snippet: string;
}

export interface CommandInfo {
  name: string;
  usage: string;
  help: string;
  category: string;
}

export interface Me {
  name: string;
  owner: boolean;
  browser: string;
  model: string;
  version: string;
  digest: string;
  secure: boolean;
  commands: CommandInfo[];
}

export interface BrowserView {
  id: string;
  label: string;
  person: string;
  created_at: string;
  seen_at: string;
  current: boolean;
}

export interface CommandReply {
  shown: string[];
  /** The conversation to show next; empty to stay. */
  session_id: string;
}

export interface Choice {
  value: string;
  help: string;
}

export type StreamMessage =
  | { topic: "hello"; digest: string }
  | { topic: "sessions"; rows: SessionRow[]; gone: string[] }
  | { topic: "session"; session: string; snapshot: boolean; events: TurnEvent[] }
  | { topic: "changed"; session: string }
  | { topic: "notice"; kind: string; session: string; title: string; text: string };
