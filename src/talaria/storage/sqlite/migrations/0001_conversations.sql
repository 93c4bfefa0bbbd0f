-- Conversations, what was said in them, and where they go on.

CREATE TABLE sessions (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    parent_id TEXT,
    parent_seq INTEGER NOT NULL DEFAULT 0,
    source TEXT NOT NULL,
    owner TEXT NOT NULL DEFAULT '',
    audience TEXT NOT NULL DEFAULT '',
    title TEXT NOT NULL DEFAULT '',
    title_folded TEXT NOT NULL DEFAULT '',
    model TEXT NOT NULL DEFAULT '',
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    archived_at INTEGER,
    last_seq INTEGER NOT NULL DEFAULT 0,
    calls INTEGER NOT NULL DEFAULT 0,
    input_tokens INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0,
    cache_read_tokens INTEGER NOT NULL DEFAULT 0,
    cache_write_tokens INTEGER NOT NULL DEFAULT 0,
    reasoning_tokens INTEGER NOT NULL DEFAULT 0,
    cost_microdollars INTEGER NOT NULL DEFAULT 0,
    handoff_state TEXT,
    handoff_platform TEXT,
    handoff_error TEXT,
    handoff_requested_at INTEGER,
    handoff_claimed_by TEXT,
    handoff_claimed_until INTEGER
) STRICT;

CREATE INDEX sessions_by_use ON sessions (updated_at);
CREATE INDEX sessions_by_parent ON sessions (parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX sessions_by_handoff ON sessions (handoff_requested_at) WHERE handoff_state IN ('pending', 'running');

-- A message's id is its session's number and its place in it: see talaria.storage.tables.messages.
CREATE TABLE messages (
    id INTEGER PRIMARY KEY,
    arrival INTEGER NOT NULL,
    at INTEGER NOT NULL,
    role TEXT NOT NULL,
    body TEXT NOT NULL,
    platform_message_id TEXT
) STRICT;

CREATE INDEX messages_by_platform ON messages (platform_message_id) WHERE platform_message_id IS NOT NULL;

-- Messages in the order in which they were stored, over all conversations.
CREATE TABLE arrivals (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    message_id INTEGER NOT NULL
) STRICT;

CREATE TABLE bindings (
    key TEXT PRIMARY KEY,
    session_id TEXT NOT NULL,
    address TEXT NOT NULL,
    bound_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX bindings_by_session ON bindings (session_id);

CREATE TABLE state (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL,
    version INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;
