-- How long a layer took on a device when it was last timed there, by the format of most of its weights and its size.
CREATE TABLE layer_times (
	device_id TEXT NOT NULL,
	format TEXT NOT NULL,
	layer_bytes INTEGER NOT NULL,
	layer_s REAL NOT NULL,
	output_bytes INTEGER NOT NULL,
	output_s REAL, -- NULL where it was not measured
	share REAL, -- what a further row takes of the first one's time; NULL where it was not measured
	measured_ms INTEGER NOT NULL,
	PRIMARY KEY (device_id, format, layer_bytes)
) STRICT, WITHOUT ROWID;
