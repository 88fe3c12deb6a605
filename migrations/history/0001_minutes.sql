-- Minute averages, which may be thrown away. A device's rows lie together, so that a chart is one short walk of the
-- tree. Values are integers in the unit that server/store/history.c gives each column (0.1 %, 1 KiB, 0.1 W ...), which
-- takes a third of the space of floating point; NULL where nothing was reported.

CREATE TABLE devices (
	device INTEGER PRIMARY KEY,
	device_id TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE minutes (
	device INTEGER NOT NULL,
	minute INTEGER NOT NULL, -- since 1970 UTC
	utilization INTEGER,
	memory_used INTEGER,
	memory_total INTEGER,
	power INTEGER,
	temperature INTEGER,
	memory_temperature INTEGER,
	clock INTEGER,
	memory_clock INTEGER,
	fan INTEGER,
	pcie_rx INTEGER,
	pcie_tx INTEGER,
	availability INTEGER,
	PRIMARY KEY (device, minute)
) STRICT, WITHOUT ROWID;
