-- The figure that raised an alert, and the threshold that it had passed; NULL where no rule raised it.
ALTER TABLE alerts ADD COLUMN value REAL;
ALTER TABLE alerts ADD COLUMN threshold REAL;
