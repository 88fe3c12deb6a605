-- What somebody should look at: raised once, cleared once, and kept as history.
CREATE TABLE alerts (
	alert_id TEXT NOT NULL PRIMARY KEY,
	kind TEXT NOT NULL,     -- audit_forked
	severity TEXT NOT NULL CHECK (severity IN ('info', 'warning', 'critical')),
	subject_type TEXT NOT NULL,
	subject_id TEXT NOT NULL,
	subject_name TEXT NOT NULL,
	message TEXT NOT NULL,
	hint TEXT NOT NULL,
	raised_ms INTEGER NOT NULL,
	cleared_ms INTEGER NOT NULL,      -- 0: it stands
	acknowledged_ms INTEGER NOT NULL, -- 0: nobody has
	acknowledged_by TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX alerts_standing ON alerts (kind, subject_type, subject_id) WHERE cleared_ms = 0;
-- Of witnesses that have refused a head and have not been removed since.
INSERT INTO alerts (
	alert_id, kind, severity, subject_type, subject_id, subject_name, message, hint, raised_ms, cleared_ms,
	acknowledged_ms, acknowledged_by
)
SELECT
	'alert_' || lower(hex(randomblob(8))), 'audit_forked', 'critical', 'node', nodes.node_id, nodes.name,
	'node ' || nodes.name || ' holds another audit log than this one, and refuses to sign it',
	'see exogpu audit verify', max(audit.at_us) / 1000, 0, 0, ''
FROM audit JOIN nodes ON nodes.node_id = audit.target
WHERE audit.action = 'audit.witness' AND audit.outcome = 'conflict' AND audit.actor = 'server'
GROUP BY nodes.node_id;
