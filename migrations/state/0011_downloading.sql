-- A model whose file is not there yet is downloading, as it is told outside; versions before called it adding.
CREATE TABLE models_now (
	model_id TEXT NOT NULL PRIMARY KEY,
	name TEXT NOT NULL UNIQUE,
	source TEXT NOT NULL,
	request TEXT NOT NULL,
	path TEXT NOT NULL, -- of the file, or where it will be
	state TEXT NOT NULL CHECK (state IN ('downloading', 'ready', 'failed')),
	state_reason TEXT NOT NULL,
	added_ms INTEGER NOT NULL,
	file_bytes INTEGER NOT NULL,  -- 0: not known
	modified_ns INTEGER NOT NULL, -- of the file, since 1970
	sha256 TEXT NOT NULL,         -- '' until it is known
	architecture TEXT NOT NULL
) STRICT;
INSERT INTO models_now (
	model_id, name, source, request, path, state, state_reason, added_ms, file_bytes, modified_ns, sha256,
	architecture
)
SELECT
	model_id, name, source, request, path, iif(state = 'adding', 'downloading', state), state_reason, added_ms,
	file_bytes, modified_ns, sha256, architecture
FROM models ORDER BY rowid;
DROP TABLE models;
ALTER TABLE models_now RENAME TO models;
