-- Tokens and cost by day (UTC, counted from 1970), so that charts and reports read no turn.

CREATE TABLE daily_usage (
    day BIGINT NOT NULL,
    model TEXT NOT NULL,
    surface TEXT NOT NULL,
    owner TEXT NOT NULL,
    turns BIGINT NOT NULL DEFAULT 0,
    unpriced_calls BIGINT NOT NULL DEFAULT 0,
    calls BIGINT NOT NULL DEFAULT 0,
    input_tokens BIGINT NOT NULL DEFAULT 0,
    output_tokens BIGINT NOT NULL DEFAULT 0,
    cache_read_tokens BIGINT NOT NULL DEFAULT 0,
    cache_write_tokens BIGINT NOT NULL DEFAULT 0,
    reasoning_tokens BIGINT NOT NULL DEFAULT 0,
    cost_microdollars BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (day, model, surface, owner)
);
