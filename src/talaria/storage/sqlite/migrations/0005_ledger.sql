-- What was spent by account, and what is set aside for calls under way.

CREATE TABLE accounts (
    name TEXT PRIMARY KEY,
    spent INTEGER NOT NULL
) STRICT;

CREATE TABLE holds (
    id TEXT NOT NULL,
    account TEXT NOT NULL,
    amount INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (id, account)
) STRICT;

CREATE INDEX holds_by_account ON holds (account, expires_at);
