-- Batches of 64 and 128 rows, as those of 0008; NULL where they were not measured.
ALTER TABLE layer_times ADD COLUMN batch_64 REAL;
ALTER TABLE layer_times ADD COLUMN batch_128 REAL;
