-- The entry that tells of an archive's pruning, so that a list can name it; NULL: it is not known which.
ALTER TABLE audit_segments ADD COLUMN pruned_by INTEGER;
