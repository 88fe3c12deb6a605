-- Minute averages of one direction of a link, as those of devices. series is the two nodes' ids with a space between.

CREATE TABLE links (
	link INTEGER PRIMARY KEY,
	series TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE link_minutes (
	link INTEGER NOT NULL,
	minute INTEGER NOT NULL, -- since 1970 UTC
	rtt INTEGER,
	jitter INTEGER,
	loss INTEGER,
	throughput INTEGER,
	sent INTEGER,
	PRIMARY KEY (link, minute)
) STRICT, WITHOUT ROWID;
