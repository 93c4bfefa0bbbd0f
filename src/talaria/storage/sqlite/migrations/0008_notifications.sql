-- A notification of a transaction, as a row of its commit: each process reads the new ones and wakes its subscribers.
-- Numbers have no gaps; only the last thousand are kept.

CREATE TABLE notifications (
    seq INTEGER PRIMARY KEY,
    topic TEXT NOT NULL
) STRICT;
