-- How each direction of each link was measured last, so that a server that starts anew has something to show. A reading
-- is not worth a transaction: rows are up to half a minute old. to_node_id may be server. NULL where nothing was
-- measured.
CREATE TABLE links (
	from_node_id TEXT NOT NULL,
	to_node_id TEXT NOT NULL,
	class TEXT NOT NULL,
	interface TEXT NOT NULL, -- '' where it is not known
	address TEXT NOT NULL,
	interface_bits_per_s REAL,
	rtt_ms REAL,
	jitter_ms REAL,
	loss_percent REAL,
	throughput_bytes_per_s REAL,
	throughput_ms INTEGER NOT NULL,
	measured_ms INTEGER NOT NULL,
	degraded TEXT NOT NULL, -- why; '' where it is as it should be
	PRIMARY KEY (from_node_id, to_node_id)
) STRICT, WITHOUT ROWID;
