-- Typed values and tables of their own take the place of the key-value table `state`; 0011 moves its rows.

CREATE TABLE session_values (
    session_id TEXT NOT NULL,
    name TEXT NOT NULL,
    item TEXT NOT NULL DEFAULT '',
    value TEXT NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (session_id, name, item)
) STRICT;

CREATE INDEX session_values_by_name ON session_values (name, item, session_id);

CREATE TABLE named_values (
    space TEXT NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (space, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE background_processes (
    id TEXT PRIMARY KEY,
    session_id TEXT NOT NULL,
    alive INTEGER NOT NULL,
    body TEXT NOT NULL,
    version INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX background_processes_by_session ON background_processes (session_id);
CREATE INDEX background_processes_alive ON background_processes (id) WHERE alive = 1;

CREATE TABLE delegated_tasks (
    key TEXT PRIMARY KEY,
    session_id TEXT NOT NULL,
    background INTEGER NOT NULL,
    body TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX delegated_tasks_by_session ON delegated_tasks (session_id);
CREATE INDEX delegated_tasks_in_background ON delegated_tasks (key) WHERE background = 1;

CREATE TABLE forwarded_updates (
    id TEXT PRIMARY KEY,
    worker TEXT NOT NULL,
    session_id TEXT NOT NULL,
    body TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX forwarded_updates_by_worker ON forwarded_updates (worker, id);
CREATE INDEX forwarded_updates_by_session ON forwarded_updates (session_id);

CREATE TABLE api_keys (
    name TEXT PRIMARY KEY,
    scopes TEXT NOT NULL,
    digest TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE conversation_names (
    name TEXT PRIMARY KEY,
    session_id TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX conversation_names_by_session ON conversation_names (session_id);
