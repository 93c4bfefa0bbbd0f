-- Work in progress: what arrived, who owns it, how far it has come, what goes out.

CREATE TABLE inbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id TEXT NOT NULL,
    source TEXT NOT NULL,
    external_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    priority INTEGER NOT NULL,
    payload TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'waiting',
    turn_id TEXT,
    received_at INTEGER NOT NULL,
    settled_at INTEGER,
    UNIQUE (source, external_id)
) STRICT;

CREATE INDEX inbox_unsettled ON inbox (session_id, priority DESC, id) WHERE state <> 'done';
CREATE INDEX inbox_waiting ON inbox (id) WHERE state = 'waiting';
CREATE INDEX inbox_taken ON inbox (turn_id) WHERE state = 'taken';

CREATE TABLE leases (
    name TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    token INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE turns (
    id TEXT PRIMARY KEY,
    session_id TEXT NOT NULL,
    worker TEXT NOT NULL,
    state TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at INTEGER,
    error TEXT NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;

CREATE INDEX turns_by_session ON turns (session_id);
CREATE INDEX turns_running ON turns (started_at) WHERE state = 'running';

CREATE TABLE steps (
    turn_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    request TEXT NOT NULL,
    result TEXT,
    started_at INTEGER NOT NULL,
    ended_at INTEGER,
    PRIMARY KEY (turn_id, number)
) STRICT;

CREATE TABLE outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE,
    session_id TEXT NOT NULL,
    turn_id TEXT,
    platform TEXT NOT NULL,
    address TEXT NOT NULL,
    payload TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'waiting',
    attempts INTEGER NOT NULL DEFAULT 0,
    not_before INTEGER NOT NULL DEFAULT 0,
    claimed_by TEXT,
    claimed_until INTEGER,
    error TEXT NOT NULL DEFAULT '',
    reference TEXT,
    created_at INTEGER NOT NULL,
    settled_at INTEGER
) STRICT;

CREATE INDEX outbox_due ON outbox (platform, id) WHERE state IN ('waiting', 'sending');
CREATE INDEX outbox_lane ON outbox (address, id) WHERE state IN ('waiting', 'sending');
CREATE INDEX outbox_undelivered ON outbox (session_id, id) WHERE state <> 'sent';

CREATE TABLE completions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id TEXT NOT NULL,
    source TEXT NOT NULL,
    external_id TEXT NOT NULL,
    payload TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    taken_at INTEGER,
    UNIQUE (source, external_id)
) STRICT;

CREATE INDEX completions_waiting ON completions (session_id, id) WHERE taken_at IS NULL;
