-- What a step of several rows takes, in place of one slope for all of them; and a row of a prompt.
ALTER TABLE layer_times ADD COLUMN batch_2 REAL; -- of so many rows, how many times as long as of one; NULL where it was
ALTER TABLE layer_times ADD COLUMN batch_4 REAL; -- not measured
ALTER TABLE layer_times ADD COLUMN batch_8 REAL;
ALTER TABLE layer_times ADD COLUMN batch_16 REAL;
ALTER TABLE layer_times ADD COLUMN batch_32 REAL;
ALTER TABLE layer_times ADD COLUMN prompt_s REAL; -- a row in a piece of a prompt, through a layer
UPDATE layer_times SET batch_8 = 1 + 7 * share; -- it was measured with eight
ALTER TABLE layer_times DROP COLUMN share;
