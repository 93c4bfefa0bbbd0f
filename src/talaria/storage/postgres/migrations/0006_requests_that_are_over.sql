-- Answers to requests whose time is over are found by it, and forgotten.

CREATE INDEX requests_by_end ON requests (expires_at);
