-- What must not be lost: who may do what, which nodes and devices are known, and what happened to them.
-- Times are milliseconds since 1970 UTC, 0 where a thing never happened; records are JSON as a node reported them.

CREATE TABLE settings (
	key TEXT NOT NULL PRIMARY KEY,
	value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE nodes (
	node_id TEXT NOT NULL PRIMARY KEY,
	name TEXT NOT NULL,
	record TEXT NOT NULL,
	first_seen_ms INTEGER NOT NULL,
	last_seen_ms INTEGER NOT NULL
) STRICT;

-- A device keeps its id, name and history by its hardware key, which is unique on its node.
CREATE TABLE devices (
	device_id TEXT NOT NULL PRIMARY KEY,
	node_id TEXT NOT NULL REFERENCES nodes (node_id),
	hardware_key TEXT NOT NULL,
	record TEXT NOT NULL,
	draining INTEGER NOT NULL CHECK (draining IN (0, 1)),
	first_seen_ms INTEGER NOT NULL,
	last_seen_ms INTEGER NOT NULL,
	UNIQUE (node_id, hardware_key)
) STRICT;

-- parent_id is the token that made this one; NULL for those of the machine's owner. scopes are the bits of
-- server/security/tokens.h. Of the secret only its SHA-256 is here.
CREATE TABLE tokens (
	token_id TEXT NOT NULL PRIMARY KEY,
	parent_id TEXT REFERENCES tokens (token_id),
	name TEXT NOT NULL,
	scopes INTEGER NOT NULL,
	secret_hash BLOB NOT NULL CHECK (length(secret_hash) = 32),
	calls_per_s REAL NOT NULL,
	max_sessions INTEGER NOT NULL,
	created_ms INTEGER NOT NULL,
	expires_ms INTEGER NOT NULL,
	last_used_ms INTEGER NOT NULL,
	revoked_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX tokens_by_parent ON tokens (parent_id);

-- What happened to the inventory, for a person. Only the newest are kept.
CREATE TABLE changes (
	change_id INTEGER PRIMARY KEY,
	at_ms INTEGER NOT NULL,
	kind TEXT NOT NULL,
	level TEXT NOT NULL,
	node_id TEXT NOT NULL,
	device_id TEXT,
	name TEXT NOT NULL,
	summary TEXT NOT NULL
) STRICT;
