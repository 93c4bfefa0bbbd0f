-- Handoffs get a table of their own. State, platform and error stay on the session's row as well; its other columns
-- about handoffs are unused from now on, and stay so that backups of older versions can be restored.

CREATE TABLE handoffs (
    session_id TEXT PRIMARY KEY,
    state TEXT NOT NULL,
    platform TEXT NOT NULL,
    target TEXT,
    immediate INTEGER NOT NULL DEFAULT 0,
    thread_chat_id TEXT,
    thread_id TEXT,
    error TEXT,
    requested_at INTEGER NOT NULL,
    claimed_by TEXT,
    claimed_until INTEGER
) STRICT;

CREATE INDEX handoffs_unfinished ON handoffs (requested_at) WHERE state IN ('pending', 'running');

INSERT INTO handoffs (session_id, state, platform, target, immediate, error, requested_at, claimed_by, claimed_until)
SELECT id, handoff_state, coalesce(handoff_platform, ''),
    (SELECT value FROM state WHERE key = 'handoff-to:' || sessions.id),
    (SELECT count(*) FROM state WHERE key = 'handoff-at-once:' || sessions.id),
    handoff_error, coalesce(handoff_requested_at, 0), handoff_claimed_by, handoff_claimed_until
FROM sessions WHERE handoff_state IS NOT NULL;

-- Keys of threads were handoff:<session id>:<platform>:<chat id>.
UPDATE handoffs SET (thread_chat_id, thread_id) = (
    SELECT substr(key, length('handoff:' || session_id || ':' || platform || ':') + 1), value FROM state
    WHERE substr(key, 1, length('handoff:' || session_id || ':' || platform || ':'))
        = 'handoff:' || session_id || ':' || platform || ':'
    ORDER BY updated_at DESC, key LIMIT 1
);

DELETE FROM state
WHERE substr(key, 1, 8) = 'handoff:' OR substr(key, 1, 11) = 'handoff-to:' OR substr(key, 1, 16) = 'handoff-at-once:';
DROP INDEX sessions_by_handoff;
