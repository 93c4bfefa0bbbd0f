-- Moves the rows of the key-value table `state` to the typed values and tables of 0010. Runs again after a backup of an
-- older version is restored and after a repair, so it replaces nothing that is there. Values of deleted sessions and
-- broken values that name a session or a key are dropped. Unknown keys stay in `state`, which nothing else uses.

WITH moved(prefix, name, is_flag) AS (VALUES
    ('summary:', 'summary', 0),
    ('preferences:', 'preferences', 0),
    ('prefix:', 'prompt_prefix', 0),
    ('workspace:', 'workspace', 0),
    ('grants:', 'grants', 0),
    ('todo:', 'todo', 0),
    ('goal:', 'goal', 0),
    ('active-goal:', 'active_goal', 1),
    ('heard:', 'pending_answers', 0),
    ('route:', 'redirected_reply', 0),
    ('farewell:', 'flushed', 0),
    ('api-session:', 'api_origin', 0),
    ('run-turn:', 'run_turn', 0),
    ('run-reports:', 'run_report_lock', 1)
)
INSERT INTO session_values (session_id, name, item, value, version)
SELECT sessions.id, moved.name, '', CASE WHEN moved.is_flag = 1 THEN 'true' ELSE state.value END, state.version
FROM moved
JOIN state ON substr(state.key, 1, length(moved.prefix)) = moved.prefix
JOIN sessions ON sessions.id = substr(state.key, length(moved.prefix) + 1)
WHERE true
ON CONFLICT (session_id, name, item) DO NOTHING;

-- Keys were prefix:<item>:<session id>.
WITH moved(prefix, name, is_flag) AS (VALUES
    ('live:watch:', 'live_watch', 0),
    ('live:word:', 'control_message', 0),
    ('run-result:', 'run_result', 0),
    ('api-gone-on:', 'continued_response', 1)
), parts(name, is_flag, rest, value, version) AS (
    SELECT moved.name, moved.is_flag, substr(state.key, length(moved.prefix) + 1), state.value, state.version
    FROM moved JOIN state ON substr(state.key, 1, length(moved.prefix)) = moved.prefix
)
INSERT INTO session_values (session_id, name, item, value, version)
SELECT sessions.id, parts.name, substr(rest, 1, max(0, instr(rest, ':') - 1)),
    CASE WHEN parts.is_flag = 1 THEN 'true' ELSE parts.value END, parts.version
FROM parts JOIN sessions ON sessions.id = substr(rest, instr(rest, ':') + 1)
WHERE instr(rest, ':') > 0
ON CONFLICT (session_id, name, item) DO NOTHING;

-- Keys were prefix:<session id>:<item>:<session id>.
WITH moved(prefix, name) AS (VALUES
    ('run-question:', 'run_question'),
    ('run-order:', 'run_order')
), parts(name, rest, value, version) AS (
    SELECT moved.name, substr(state.key, length(moved.prefix) + 1), state.value, state.version
    FROM moved JOIN state ON substr(state.key, 1, length(moved.prefix)) = moved.prefix
), items(name, session_id, item, value, version) AS (
    SELECT parts.name, sessions.id, substr(rest, length(sessions.id) + 2, max(0, length(rest) - 2 * length(sessions.id) - 2)),
        parts.value, parts.version
    FROM parts JOIN sessions ON sessions.id = substr(rest, 1, max(0, instr(rest, ':') - 1))
)
INSERT INTO session_values (session_id, name, item, value, version)
SELECT session_id,
    CASE WHEN name = 'run_question' THEN name WHEN substr(item, 1, 5) = 'stop:' THEN 'run_stop' ELSE 'run_answer' END,
    CASE WHEN name = 'run_question' THEN item ELSE substr(item, instr(item, ':') + 1) END,
    CASE WHEN name = 'run_order' AND substr(item, 1, 5) = 'stop:' THEN 'true' ELSE value END, version
FROM items
WHERE true
ON CONFLICT (session_id, name, item) DO NOTHING;

-- The value was <session id> <number of messages>.
WITH histories(digest, session_id, count, version) AS (
    SELECT substr(key, 13), substr(value, 1, max(0, instr(value, ' ') - 1)), substr(value, instr(value, ' ') + 1), version
    FROM state WHERE substr(key, 1, 12) = 'api-history:'
)
INSERT INTO session_values (session_id, name, item, value, version)
SELECT sessions.id, 'history_digest', digest, count, version
FROM histories JOIN sessions ON sessions.id = histories.session_id
WHERE true
ON CONFLICT (session_id, name, item) DO NOTHING;

WITH replies(turn_id, session_id, value, version) AS (
    SELECT substr(key, 7), CASE WHEN json_valid(value) THEN value ->> '$.session_id' END, value, version
    FROM state WHERE substr(key, 1, 6) = 'speak:'
)
INSERT INTO session_values (session_id, name, item, value, version)
SELECT sessions.id, 'voice_reply', turn_id, value, version
FROM replies JOIN sessions ON sessions.id = replies.session_id
WHERE true
ON CONFLICT (session_id, name, item) DO NOTHING;

-- A reply belongs to the session of its outbox row, or of its turn as long as that runs.
WITH replies(reply, session_id, value, version) AS (
    SELECT substr(key, 9), coalesce(
        (SELECT session_id FROM outbox WHERE outbox.key = substr(state.key, 9)),
        (SELECT session_id FROM turns WHERE turns.id = substr(state.key, 9))
    ), value, version
    FROM state WHERE substr(key, 1, 8) = 'preview:'
)
INSERT INTO session_values (session_id, name, item, value, version)
SELECT session_id, 'posted_messages', reply, value, version FROM replies WHERE session_id IS NOT NULL
ON CONFLICT (session_id, name, item) DO NOTHING;

-- Goals of versions without an index of those that need a follower.
INSERT INTO session_values (session_id, name, item, value, version)
SELECT session_id, 'active_goal', '', 'true', 1 FROM session_values
WHERE name = 'goal' AND CASE WHEN value <> 'null' AND json_valid(value)
    THEN coalesce(value ->> '$.status', 'active') = 'active' OR coalesce(value ->> '$.untold', '') <> '' ELSE false END
ON CONFLICT (session_id, name, item) DO NOTHING;

WITH moved(prefix, space, is_flag) AS (VALUES
    ('home:', 'home_chat', 0),
    ('channel:', 'known_chat', 0),
    ('identity:', 'user_ids', 0),
    ('pairing:place:', 'pairing_address', 0),
    ('sticker:', 'sticker', 0),
    ('display:', 'display', 0),
    ('own-thread:', 'own_thread', 1),
    ('keeper:', 'chat_worker', 0),
    ('gateway:worker:', 'gateway_worker', 0),
    ('said:', 'provider_note', 0),
    ('progress:', 'discord_progress', 0),
    ('album:', 'telegram_album_part', 0),
    ('position:', 'matrix_position', 0),
    ('invitations:', 'matrix_invitations', 0),
    ('thread:', 'slack_thread', 1),
    ('heard:', 'slack_position', 0)
)
INSERT INTO named_values (space, key, value, version)
SELECT moved.space, substr(state.key, length(moved.prefix) + 1),
    CASE WHEN moved.is_flag = 1 THEN 'true' ELSE state.value END, state.version
FROM moved JOIN state ON substr(state.key, 1, length(moved.prefix)) = moved.prefix
WHERE moved.prefix <> 'heard:' OR instr(substr(state.key, 7), ':') > 0
ON CONFLICT (space, key) DO NOTHING;

WITH moved(old_key, space, is_flag) AS (VALUES
    ('pairing:salt', 'pairing_salt', 0),
    ('heartbeat', 'last_heartbeat', 0),
    ('schedules', 'schedule_changes', 1),
    ('grants', 'standing_grants', 0),
    ('welcomed', 'welcomed', 1),
    ('gateway:restart', 'restart_request', 0)
)
INSERT INTO named_values (space, key, value, version)
SELECT moved.space, '', CASE WHEN moved.is_flag = 1 THEN 'true' ELSE state.value END, state.version
FROM moved JOIN state ON state.key = moved.old_key
WHERE true
ON CONFLICT (space, key) DO NOTHING;

INSERT INTO named_values (space, key, value, version)
SELECT 'job_run', key, value, version FROM state WHERE substr(key, 1, 8) = 'job-run:'
ON CONFLICT (space, key) DO NOTHING;

WITH processes(id, session_id, state, body, version) AS (
    SELECT substr(key, 9), CASE WHEN json_valid(value) THEN value ->> '$.session_id' END,
        CASE WHEN json_valid(value) THEN coalesce(value ->> '$.state', 'starting') END, value, version
    FROM state WHERE substr(key, 1, 8) = 'process:'
)
INSERT INTO background_processes (id, session_id, alive, body, version)
SELECT id, session_id, CASE WHEN state IN ('starting', 'running') THEN 1 ELSE 0 END, body, version
FROM processes WHERE session_id IS NOT NULL
ON CONFLICT (id) DO NOTHING;

-- Tasks in the background outlive their session, those that a turn waits for do not.
WITH tasks(key, session_id, background, body) AS (
    SELECT key, CASE WHEN json_valid(value) THEN value ->> '$.session_id' END,
        CASE WHEN substr(key, 1, 11) = 'background:' THEN 1 ELSE 0 END, value
    FROM state WHERE substr(key, 1, 11) IN ('background:', 'delegation:')
)
INSERT INTO delegated_tasks (key, session_id, background, body)
SELECT key, session_id, background, body FROM tasks
WHERE session_id IS NOT NULL
    AND (background = 1 OR EXISTS (SELECT 1 FROM sessions WHERE sessions.id = tasks.session_id))
ON CONFLICT (key) DO NOTHING;

-- Keys were letter:<worker>:<id>, with ids of 16 characters.
WITH updates(id, worker, session_id, body) AS (
    SELECT substr(key, length(key) - 15), substr(key, 8, max(0, length(key) - 24)),
        CASE WHEN json_valid(value) THEN value ->> '$.session_id' END, value
    FROM state WHERE substr(key, 1, 7) = 'letter:'
)
INSERT INTO forwarded_updates (id, worker, session_id, body)
SELECT updates.id, worker, sessions.id, body FROM updates JOIN sessions ON sessions.id = updates.session_id
WHERE true
ON CONFLICT (id) DO NOTHING;

WITH keys(name, value) AS (
    SELECT substr(key, 9), CASE WHEN json_valid(value) THEN value ELSE '{}' END
    FROM state WHERE substr(key, 1, 8) = 'api-key:'
), fields(name, scopes, digest, created_at) AS (
    SELECT name, (SELECT group_concat(scope.value, ' ') FROM json_each(keys.value, '$.scopes') AS scope),
        value ->> '$.digest', CAST(round(unixepoch(value ->> '$.created_at', 'subsec') * 1000) AS INTEGER) * 1000
    FROM keys
)
INSERT INTO api_keys (name, scopes, digest, created_at)
SELECT name, scopes, digest, created_at FROM fields
WHERE scopes IS NOT NULL AND digest IS NOT NULL AND created_at IS NOT NULL
ON CONFLICT (name) DO NOTHING;

INSERT INTO conversation_names (name, session_id)
SELECT substr(state.key, 18), sessions.id FROM state JOIN sessions ON sessions.id = state.value
WHERE substr(state.key, 1, 17) = 'api-conversation:'
ON CONFLICT (name) DO NOTHING;

DELETE FROM state WHERE key IN ('pairing:salt', 'heartbeat', 'schedules', 'grants', 'welcomed', 'gateway:restart',
    'active-goals-indexed', 'store:probe') OR EXISTS (
    WITH moved(prefix) AS (VALUES ('summary:'), ('preferences:'), ('prefix:'), ('workspace:'), ('grants:'), ('todo:'),
        ('goal:'), ('active-goal:'), ('heard:'), ('route:'), ('farewell:'), ('api-session:'), ('run-turn:'),
        ('run-reports:'), ('live:watch:'), ('live:word:'), ('run-result:'), ('api-gone-on:'), ('run-question:'),
        ('run-order:'), ('api-history:'), ('speak:'), ('preview:'), ('home:'), ('channel:'), ('identity:'),
        ('pairing:place:'), ('sticker:'), ('display:'), ('own-thread:'), ('keeper:'), ('gateway:worker:'), ('said:'),
        ('progress:'), ('album:'), ('position:'), ('invitations:'), ('thread:'), ('job-run:'), ('process:'),
        ('delegation:'), ('background:'), ('letter:'), ('api-key:'), ('api-conversation:'))
    SELECT 1 FROM moved WHERE substr(state.key, 1, length(moved.prefix)) = moved.prefix
);
