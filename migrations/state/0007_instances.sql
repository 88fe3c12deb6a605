-- The instances that are wanted: a server that starts brings them back. wanted is JSON, what instance.create takes
-- (schema/api.json), with the format that was asked for last. last is JSON: how it was placed last, for whoever looks at
-- it before it is placed again. Placements have numbers above epoch from the next start on.
CREATE TABLE instances (
	instance_id TEXT NOT NULL PRIMARY KEY,
	model_id TEXT NOT NULL,
	model_name TEXT NOT NULL,
	wanted TEXT NOT NULL,
	last TEXT NOT NULL,
	epoch INTEGER NOT NULL CHECK (epoch >= 0),
	recoveries INTEGER NOT NULL,
	moves INTEGER NOT NULL,
	created_ms INTEGER NOT NULL
) STRICT;
