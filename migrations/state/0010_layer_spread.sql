-- How many times the least of the runs that timed a layer their mean was: much, where something else kept the device busy.
ALTER TABLE layer_times ADD COLUMN spread REAL; -- NULL where it is not known
