/* A small log in memory, made as the server makes its own, for the tests of the verifier and of archives.
 *
 * Who tampers with it may change all that is here, and sign with the newest segment's key; the keys of older segments
 * are wiped when the log goes on to the next, as the server's are. */
#pragma once
#include "common/journal/verify.h"

// cmocka.h needs these before it.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLE_ENTRIES = 96, SAMPLE_HEADS = 32, SAMPLE_SEGMENTS = 4, SAMPLE_NOTE = 1024 };
#define SAMPLE_ORIGIN "exogpu-audit-3f9c0b1e22d4a786"

struct sample_entry {
	uint64_t seq; // as its row says
	uint8_t bytes[160];
	size_t length;
	struct tree_hash leaf;
	bool bare; // only its leaf is kept
};

struct sample_head {
	uint64_t size;
	char note[SAMPLE_NOTE];
};

struct sample_segment {
	uint64_t number, first;
	struct note_signer signer;
	char certificate[SAMPLE_NOTE];
	struct tree before;
	bool gone;
};

struct sample_log {
	struct sample_entry entries[SAMPLE_ENTRIES];
	size_t count;
	struct sample_head heads[SAMPLE_HEADS];
	size_t head_count;
	struct sample_segment segments[SAMPLE_SEGMENTS];
	size_t segment_count;
	struct tree tree;
};

static inline struct sample_segment *sample_newest(struct sample_log *log)
{
	return &log->segments[log->segment_count - 1];
}

static inline void sample_write_entry(struct sample_entry *entry, struct journal_entry content)
{
	struct buffer bytes;
	content.at_us = 1763000000000000 + (int64_t)content.seq;
	content.count = 1;
	buffer_init(&bytes, sizeof(entry->bytes));
	assert_int_equal(entry_encode(&content, &bytes), STATUS_OK);
	entry->seq = content.seq;
	entry->length = bytes.length;
	memcpy(entry->bytes, bytes.data, bytes.length);
	tree_hash_leaf(entry->bytes, entry->length, &entry->leaf);
	buffer_finish(&bytes);
}

static inline void sample_write(struct sample_entry *entry, uint64_t seq, const char *action)
{
	sample_write_entry(entry, (struct journal_entry){.seq = seq, .action = action});
}

// One more entry, whose number is given here.
static inline void sample_tell(struct sample_log *log, struct journal_entry content)
{
	assert_true(log->count < SAMPLE_ENTRIES);
	struct sample_entry *entry = &log->entries[log->count++];
	content.seq = log->tree.size;
	sample_write_entry(entry, content);
	tree_append(&log->tree, &entry->leaf, NULL, NULL);
}

static inline void sample_add(struct sample_log *log, size_t count)
{
	for (; count > 0; count--)
		sample_tell(log, (struct journal_entry){.action = "a.b"});
}

static inline void sample_sign_note(struct buffer *note, const struct note_signer *signer, char out[SAMPLE_NOTE])
{
	assert_int_equal(note_sign(note, signer, 0), STATUS_OK);
	assert_true(note->length < SAMPLE_NOTE);
	memcpy(out, buffer_text(note), note->length + 1);
	buffer_finish(note);
}

static inline void sample_head(const struct tree *tree, const struct note_signer *signer, char out[SAMPLE_NOTE])
{
	struct checkpoint head = {.origin = SAMPLE_ORIGIN, .size = tree->size};
	struct buffer note;
	buffer_init(&note, NOTE_BYTES);
	tree_root(tree, &head.root);
	assert_int_equal(checkpoint_print(&head, &note), STATUS_OK);
	sample_sign_note(&note, signer, out);
}

// Sign a head of all that is there with the newest key.
static inline void sample_sign(struct sample_log *log)
{
	assert_true(log->head_count < SAMPLE_HEADS);
	struct sample_head *head = &log->heads[log->head_count++];
	head->size = log->tree.size;
	sample_head(&log->tree, &sample_newest(log)->signer, head->note);
}

static inline void sample_certify(const struct sample_segment *segment, const struct note_signer *signer,
				  char certificate[SAMPLE_NOTE])
{
	struct succession next = {
		.origin = SAMPLE_ORIGIN,
		.number = segment->number,
		.first = segment->first,
		.key = segment->signer.key,
	};
	struct buffer note;
	buffer_init(&note, NOTE_BYTES);
	tree_root(&segment->before, &next.root);
	assert_int_equal(succession_print(&next, &note), STATUS_OK);
	sample_sign_note(&note, signer, certificate);
}

// End the segment, if there is one, and begin the next.
static inline void sample_rotate(struct sample_log *log)
{
	struct sample_segment *last = log->segment_count ? sample_newest(log) : NULL;
	assert_true(log->segment_count < SAMPLE_SEGMENTS);
	struct sample_segment *next = &log->segments[log->segment_count++];
	*next = (struct sample_segment){.number = log->segment_count - 1, .first = log->tree.size, .before = log->tree};
	assert_int_equal(note_key_make(&next->signer, NOTE_ED25519, SAMPLE_ORIGIN), STATUS_OK);
	if (!last)
		return;
	sample_certify(next, &last->signer, next->certificate);
	memset(last->signer.private_key, 0, NOTE_KEY_BYTES);
}

static inline struct journal_verifier *sample_verifier(const struct note_key *first_key)
{
	struct journal_verifier *verifier = NULL;
	assert_int_equal(journal_verifier_create(&verifier, NULL, first_key), STATUS_OK);
	return verifier;
}

// For a failure's message: the verdict and the first finding.
static inline void sample_explain(const struct journal_report *report)
{
	for (size_t i = 0; i < report->finding_count && i < JOURNAL_FINDINGS; i++)
		print_message("  %d at %llu: %s\n", (int)report->findings[i].verdict,
			      (unsigned long long)report->findings[i].seq, report->findings[i].text);
}
