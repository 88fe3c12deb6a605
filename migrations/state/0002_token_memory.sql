-- How much memory all sessions of a token may hold together; 0: as much as there is.
ALTER TABLE tokens ADD COLUMN memory_limit_bytes INTEGER NOT NULL DEFAULT 0;
