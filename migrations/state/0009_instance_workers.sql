-- Workers of instances that are ready, all on other machines: a server that starts finds them again by this. JSON: their
-- ids, the SHA-256 of their keys, and what they have loaded. '': there are none that could be found.
ALTER TABLE instances ADD COLUMN workers TEXT NOT NULL DEFAULT '';
