-- The audit log: one row an entry, in the same transaction as what it tells. seq counts from 0 without gaps; leaf is
-- the hash of the entry as common/journal/entry.h writes it. Rows leave when their segment was archived; the tree does
-- not, so that consistency can be proved from any size that somebody may remember: audit_leaves keeps the leaves of
-- archived entries, 256 to a row, and audit_nodes the root of every complete subtree from 256 entries (level 8) on.
-- What lies between is hashed again when it is asked for. That is 32 bytes an entry, and 0.4 for the nodes.
-- There is no index: a list walks the newest segment, and shows what is verified, not what an index says of it.
CREATE TABLE audit (
	seq INTEGER PRIMARY KEY,
	at_us INTEGER NOT NULL,
	duration_us INTEGER NOT NULL,
	count INTEGER NOT NULL,
	actor TEXT NOT NULL,
	actor_name TEXT NOT NULL,
	session_id TEXT NOT NULL,
	peer TEXT NOT NULL,
	action TEXT NOT NULL,
	target TEXT NOT NULL,
	node_id TEXT NOT NULL,
	device_id TEXT NOT NULL,
	outcome TEXT NOT NULL,
	detail TEXT NOT NULL,
	leaf BLOB NOT NULL CHECK (length(leaf) = 32)
) STRICT;

CREATE TABLE audit_nodes (
	level INTEGER NOT NULL CHECK (level >= 8),
	place INTEGER NOT NULL, -- which of that level's subtrees, from 0
	hash BLOB NOT NULL CHECK (length(hash) = 32),
	PRIMARY KEY (level, place)
) STRICT, WITHOUT ROWID;

CREATE TABLE audit_leaves (
	place INTEGER PRIMARY KEY, -- of the subtree of level 8; fewer than 256 where a segment ended inside it
	hashes BLOB NOT NULL CHECK (length(hashes) % 32 = 0 AND length(hashes) BETWEEN 32 AND 8192)
) STRICT;

-- A segment has a key of its own; the certificate is signed by the key before it, which is destroyed then.
CREATE TABLE audit_segments (
	number INTEGER PRIMARY KEY,
	first INTEGER NOT NULL,
	key TEXT NOT NULL,         -- as note_key_print writes it
	certificate TEXT NOT NULL, -- '' for the first
	began_ms INTEGER NOT NULL,
	archive TEXT NOT NULL,     -- the file's name, '' while its entries are here
	pruned_ms INTEGER NOT NULL -- when the archive's entries were left out and their hashes kept; 0: they are there
) STRICT;

-- Signed heads: the newest, and the last of each segment. cosigned holds the newest that witnesses have signed, too.
CREATE TABLE audit_checkpoints (
	size INTEGER PRIMARY KEY,
	note TEXT NOT NULL,
	segment_bytes INTEGER NOT NULL, -- of its segment's entries until here
	cosigned INTEGER NOT NULL CHECK (cosigned IN (0, 1))
) STRICT;

-- Mistakes are stopped here; who means harm is found by the tree.
CREATE TRIGGER audit_stays BEFORE UPDATE ON audit BEGIN SELECT raise(ABORT, 'the audit log is append-only'); END;

-- Certificates of nodes, by serial number. One that was revoked stays until it would have expired.
CREATE TABLE certificates (
	serial TEXT NOT NULL PRIMARY KEY,
	node_id TEXT NOT NULL,
	sha256 TEXT NOT NULL,     -- of the certificate
	key_sha256 TEXT NOT NULL, -- of its public key
	not_before_ms INTEGER NOT NULL,
	not_after_ms INTEGER NOT NULL,
	revoked_ms INTEGER NOT NULL -- 0: it is good
) STRICT;
CREATE INDEX certificates_by_node ON certificates (node_id);

-- Tickets let nodes join. Of the secret only its SHA-256 is here.
CREATE TABLE tickets (
	ticket_id TEXT NOT NULL PRIMARY KEY,
	secret_hash BLOB NOT NULL CHECK (length(secret_hash) = 32),
	made_by TEXT NOT NULL, -- the actor
	uses INTEGER NOT NULL,
	used INTEGER NOT NULL,
	created_ms INTEGER NOT NULL,
	expires_ms INTEGER NOT NULL,
	revoked_ms INTEGER NOT NULL
) STRICT;
