-- Fills the days from the stored model calls and turns. Runs again after a backup of an older version is restored and
-- after a repair, so it does nothing if there are days already.

WITH calls(day, model, surface, owner, turns, counts) AS (
    SELECT steps.ended_at / 86400000000, steps.name, sessions.source, sessions.owner, 0,
        json_extract(steps.result, '$.usage')
    FROM steps JOIN turns ON turns.id = steps.turn_id JOIN sessions ON sessions.id = turns.session_id
    WHERE steps.kind = 'model' AND steps.ended_at IS NOT NULL AND json_valid(steps.result)
    UNION ALL
    SELECT turns.ended_at / 86400000000, coalesce(
        (SELECT name FROM steps WHERE turn_id = turns.id AND kind = 'model' ORDER BY number DESC LIMIT 1),
        sessions.model
    ), sessions.source, sessions.owner, 1, '{}'
    FROM turns JOIN sessions ON sessions.id = turns.session_id
    WHERE turns.ended_at IS NOT NULL
), numbers(day, model, surface, owner, turns, calls, input, output, cache_read, cache_write, reasoning, cost) AS (
    SELECT day, model, surface, owner, turns, coalesce(counts ->> '$.calls', 0),
        coalesce(counts ->> '$.input_tokens', 0), coalesce(counts ->> '$.output_tokens', 0),
        coalesce(counts ->> '$.cache_read_tokens', 0), coalesce(counts ->> '$.cache_write_tokens', 0),
        coalesce(counts ->> '$.reasoning_tokens', 0), coalesce(counts ->> '$.cost_microdollars', 0)
    FROM calls
)
INSERT INTO daily_usage (day, model, surface, owner, turns, unpriced_calls, calls, input_tokens, output_tokens,
    cache_read_tokens, cache_write_tokens, reasoning_tokens, cost_microdollars)
SELECT day, model, surface, owner, sum(turns), sum(CASE WHEN cost = 0 THEN calls ELSE 0 END), sum(calls), sum(input),
    sum(output), sum(cache_read), sum(cache_write), sum(reasoning), sum(cost)
FROM numbers
WHERE NOT EXISTS (SELECT 1 FROM daily_usage)
GROUP BY day, model, surface, owner;
