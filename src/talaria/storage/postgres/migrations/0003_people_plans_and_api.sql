-- People who were let in, jobs that run by themselves, and what the API keeps for its clients.

CREATE TABLE jobs (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    schedule TEXT NOT NULL,
    payload TEXT NOT NULL,
    owner TEXT NOT NULL DEFAULT '',
    paused BIGINT NOT NULL DEFAULT 0,
    next_at BIGINT
);

CREATE INDEX jobs_due ON jobs (next_at) WHERE next_at IS NOT NULL AND paused = 0;

CREATE TABLE job_runs (
    job_id TEXT NOT NULL,
    due_at BIGINT NOT NULL,
    state TEXT NOT NULL,
    started_at BIGINT NOT NULL,
    ended_at BIGINT,
    session_id TEXT,
    output TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (job_id, due_at)
);

CREATE TABLE pairing_codes (
    platform TEXT NOT NULL,
    user_id TEXT NOT NULL,
    name TEXT NOT NULL,
    code_hash TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    PRIMARY KEY (platform, user_id)
);

CREATE TABLE pairing_failures (
    platform TEXT PRIMARY KEY,
    failures BIGINT NOT NULL,
    locked_until BIGINT NOT NULL
);

CREATE TABLE people (
    platform TEXT NOT NULL,
    user_id TEXT NOT NULL,
    name TEXT NOT NULL,
    since BIGINT NOT NULL,
    PRIMARY KEY (platform, user_id)
);

CREATE TABLE responses (
    id TEXT PRIMARY KEY,
    session_id TEXT NOT NULL,
    conversation TEXT NOT NULL,
    previous_id TEXT,
    body TEXT NOT NULL,
    created_at BIGINT NOT NULL
);

CREATE INDEX responses_by_conversation ON responses (conversation, created_at) WHERE conversation <> '';
CREATE INDEX responses_by_session ON responses (session_id);

CREATE TABLE requests (
    key TEXT PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    answer TEXT,
    expires_at BIGINT NOT NULL
);

CREATE TABLE api_runs (
    id TEXT PRIMARY KEY,
    session_id TEXT NOT NULL,
    request TEXT NOT NULL,
    state TEXT NOT NULL,
    error TEXT NOT NULL DEFAULT '',
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);

CREATE INDEX api_runs_open ON api_runs (created_at) WHERE state IN ('queued', 'running', 'waiting');
CREATE INDEX api_runs_by_session ON api_runs (session_id);

CREATE TABLE streams (
    name TEXT PRIMARY KEY,
    last_seq BIGINT NOT NULL
);

CREATE TABLE events (
    stream TEXT NOT NULL,
    seq BIGINT NOT NULL,
    at BIGINT NOT NULL,
    kind TEXT NOT NULL,
    payload TEXT NOT NULL,
    PRIMARY KEY (stream, seq)
);
