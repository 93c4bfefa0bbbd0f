-- Tokens and cost by day (UTC, counted from 1970), so that charts and reports read no turn.

CREATE TABLE daily_usage (
    day INTEGER NOT NULL,
    model TEXT NOT NULL,
    surface TEXT NOT NULL,
    owner TEXT NOT NULL,
    turns INTEGER NOT NULL DEFAULT 0,
    unpriced_calls INTEGER NOT NULL DEFAULT 0,
    calls INTEGER NOT NULL DEFAULT 0,
    input_tokens INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0,
    cache_read_tokens INTEGER NOT NULL DEFAULT 0,
    cache_write_tokens INTEGER NOT NULL DEFAULT 0,
    reasoning_tokens INTEGER NOT NULL DEFAULT 0,
    cost_microdollars INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (day, model, surface, owner)
) STRICT, WITHOUT ROWID;
