-- The node that an alert is about, so that one that comes and goes takes no more than its share of the history; '': none.
ALTER TABLE alerts ADD COLUMN node_id TEXT NOT NULL DEFAULT '';
UPDATE alerts SET node_id = subject_id WHERE subject_type = 'node';
UPDATE alerts SET node_id = coalesce((SELECT node_id FROM devices WHERE device_id = subject_id), '')
WHERE subject_type = 'device';
