-- The last turn of a long conversation, and the one that runs, are found without a look at all the others.

DROP INDEX turns_by_session;
CREATE INDEX turns_by_session ON turns (session_id, started_at, id);
DROP INDEX turns_running;
CREATE INDEX turns_running ON turns (session_id, started_at, id) WHERE state = 'running';
