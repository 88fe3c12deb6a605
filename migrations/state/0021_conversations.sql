-- Conversations of the Playground that a person keeps on the server. Body: encrypted, under a key that is not in here.
CREATE TABLE conversations (
	token_id TEXT NOT NULL REFERENCES tokens (token_id) ON DELETE CASCADE, -- whose it is
	conversation_id TEXT NOT NULL,
	version INTEGER NOT NULL,    -- of what was written last, from 1
	updated_ms INTEGER NOT NULL,
	body BLOB NOT NULL,          -- x'': it was deleted, which other browsers are still to hear
	PRIMARY KEY (token_id, conversation_id)
) STRICT;
