-- What was spent by account, and what is set aside for calls under way.

CREATE TABLE accounts (
    name TEXT PRIMARY KEY,
    spent BIGINT NOT NULL
);

CREATE TABLE holds (
    id TEXT NOT NULL,
    account TEXT NOT NULL,
    amount BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    PRIMARY KEY (id, account)
);

CREATE INDEX holds_by_account ON holds (account, expires_at);
