-- Addresses by which browser tabs join as nodes, and the tabs that have joined with them.
CREATE TABLE lends (
	lend_id TEXT PRIMARY KEY NOT NULL,
	secret_hash BLOB NOT NULL CHECK (length(secret_hash) = 32),
	name TEXT NOT NULL,
	made_by TEXT NOT NULL,
	uses INTEGER NOT NULL,
	used INTEGER NOT NULL,
	created_ms INTEGER NOT NULL,
	expires_ms INTEGER NOT NULL,
	revoked_ms INTEGER NOT NULL -- 0: not revoked
) STRICT;

CREATE TABLE tabs (
	node_id TEXT PRIMARY KEY NOT NULL,
	lend_id TEXT NOT NULL,
	secret_hash BLOB NOT NULL CHECK (length(secret_hash) = 32),
	joined_ms INTEGER NOT NULL
) STRICT;
