-- Which rows of this database an entry binds, and the newest entry before it that binds any (-1: none). NULL in entries
-- that were written before there was that: they are hashed without it.
ALTER TABLE audit ADD COLUMN bound TEXT;
ALTER TABLE audit ADD COLUMN bound_before INTEGER;
