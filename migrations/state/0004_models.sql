-- The models that this cluster knows. state is adding, ready or failed; whether a file is missing is seen when it is
-- looked at. request is what a download asks for, with a query that may hold a secret, and '' once it is there.
-- architecture is JSON, '' until the file was read: Model.architecture of schema/api.json and what else its shape has.
CREATE TABLE models (
	model_id TEXT NOT NULL PRIMARY KEY,
	name TEXT NOT NULL UNIQUE,
	source TEXT NOT NULL,
	request TEXT NOT NULL,
	path TEXT NOT NULL, -- of the file, or where it will be
	state TEXT NOT NULL CHECK (state IN ('adding', 'ready', 'failed')),
	state_reason TEXT NOT NULL,
	added_ms INTEGER NOT NULL,
	file_bytes INTEGER NOT NULL,  -- 0: not known
	modified_ns INTEGER NOT NULL, -- of the file, since 1970
	sha256 TEXT NOT NULL,         -- '' until it is known
	architecture TEXT NOT NULL
) STRICT;
