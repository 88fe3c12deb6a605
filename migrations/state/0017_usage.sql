-- What requests used, in hours and in days (step_s 3600 and 86400). A row without a device has the counts of requests; a
-- row with one what that device did for them. Without a token and a model it is what the device drew while idle. Times
-- are seconds since 1970 UTC, at the start of the step. energy_source: 0 not reported, 1 integrated power, 2 a counter.
CREATE TABLE usage (
	step_s INTEGER NOT NULL,
	at_s INTEGER NOT NULL,
	token_id TEXT NOT NULL,
	model_id TEXT NOT NULL,
	device_id TEXT NOT NULL,
	token_name TEXT NOT NULL,
	model_name TEXT NOT NULL,
	device_name TEXT NOT NULL,
	requests INTEGER NOT NULL,
	prompt_tokens INTEGER NOT NULL,
	cached_tokens INTEGER NOT NULL,
	completion_tokens INTEGER NOT NULL,
	device_s REAL NOT NULL,
	energy_joules REAL NOT NULL,
	idle_joules REAL NOT NULL,
	energy_source INTEGER NOT NULL,
	PRIMARY KEY (step_s, at_s, token_id, model_id, device_id)
) STRICT, WITHOUT ROWID;
