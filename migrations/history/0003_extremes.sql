-- The least and the most of a minute beside its average, so that a spike is not averaged away. NULL in minutes of
-- before. Appended, since history.c adds rows by the order of columns.
ALTER TABLE minutes ADD COLUMN utilization_min INTEGER;
ALTER TABLE minutes ADD COLUMN memory_used_min INTEGER;
ALTER TABLE minutes ADD COLUMN power_min INTEGER;
ALTER TABLE minutes ADD COLUMN temperature_min INTEGER;
ALTER TABLE minutes ADD COLUMN memory_temperature_min INTEGER;
ALTER TABLE minutes ADD COLUMN clock_min INTEGER;
ALTER TABLE minutes ADD COLUMN utilization_max INTEGER;
ALTER TABLE minutes ADD COLUMN memory_used_max INTEGER;
ALTER TABLE minutes ADD COLUMN power_max INTEGER;
ALTER TABLE minutes ADD COLUMN temperature_max INTEGER;
ALTER TABLE minutes ADD COLUMN memory_temperature_max INTEGER;
ALTER TABLE minutes ADD COLUMN clock_max INTEGER;
