-- The word index: no second copy of the text, filled in batches behind a watermark.

CREATE VIRTUAL TABLE words USING fts5 (
    text,
    content = '',
    contentless_delete = 1,
    tokenize = "porter unicode61 remove_diacritics 2 categories 'L* N* Co So Mn Mc'"
);

INSERT INTO words (words, rank) VALUES ('automerge', 0);
INSERT INTO words (words, rank) VALUES ('usermerge', 8);
INSERT INTO words (words, rank) VALUES ('crisismerge', 64);

CREATE TABLE indexed (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    arrival INTEGER NOT NULL
) STRICT;

INSERT INTO indexed (one, arrival) VALUES (1, 0);
