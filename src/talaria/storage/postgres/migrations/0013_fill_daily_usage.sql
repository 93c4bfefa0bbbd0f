-- Fills the days from the stored model calls and turns. Runs again after a backup of an older version is restored and
-- after a repair, so it does nothing if there are days already.

-- Broken results count as nothing. Bodies are one line each, because a restore splits this file at the semicolons at the
-- ends of lines.
CREATE OR REPLACE FUNCTION usage_of(result text) RETURNS json LANGUAGE plpgsql IMMUTABLE AS $$
    BEGIN RETURN coalesce(result::json -> 'usage', '{}'::json); EXCEPTION WHEN others THEN RETURN '{}'::json; END
$$;

CREATE OR REPLACE FUNCTION count_of(counts json, name text) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
    BEGIN RETURN coalesce((counts ->> name)::bigint, 0); EXCEPTION WHEN others THEN RETURN 0; END
$$;

WITH calls(day, model, surface, owner, turns, counts) AS (
    SELECT steps.ended_at / 86400000000, steps.name, sessions.source, sessions.owner, 0,
        usage_of(steps.result)
    FROM steps JOIN turns ON turns.id = steps.turn_id JOIN sessions ON sessions.id = turns.session_id
    WHERE steps.kind = 'model' AND steps.ended_at IS NOT NULL
    UNION ALL
    SELECT turns.ended_at / 86400000000, coalesce(
        (SELECT name FROM steps WHERE turn_id = turns.id AND kind = 'model' ORDER BY number DESC LIMIT 1),
        sessions.model
    ), sessions.source, sessions.owner, 1, '{}'::json
    FROM turns JOIN sessions ON sessions.id = turns.session_id
    WHERE turns.ended_at IS NOT NULL
), numbers(day, model, surface, owner, turns, calls, input, output, cache_read, cache_write, reasoning, cost) AS (
    SELECT day, model, surface, owner, turns, count_of(counts, 'calls'), count_of(counts, 'input_tokens'),
        count_of(counts, 'output_tokens'), count_of(counts, 'cache_read_tokens'), count_of(counts, 'cache_write_tokens'),
        count_of(counts, 'reasoning_tokens'), count_of(counts, 'cost_microdollars')
    FROM calls
)
INSERT INTO daily_usage (day, model, surface, owner, turns, unpriced_calls, calls, input_tokens, output_tokens,
    cache_read_tokens, cache_write_tokens, reasoning_tokens, cost_microdollars)
SELECT day, model, surface, owner, sum(turns), sum(CASE WHEN cost = 0 THEN calls ELSE 0 END), sum(calls), sum(input),
    sum(output), sum(cache_read), sum(cache_write), sum(reasoning), sum(cost)
FROM numbers
WHERE NOT EXISTS (SELECT 1 FROM daily_usage)
GROUP BY day, model, surface, owner;

DROP FUNCTION usage_of(text);
DROP FUNCTION count_of(json, text);
