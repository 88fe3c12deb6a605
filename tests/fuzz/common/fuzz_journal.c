/* Fuzz target: what is read of an audit log that somebody else wrote: notes, keys, entries with what
 * they tell of prunings and of rows, proofs and archives.
 *
 * The first byte says which. What is accepted must be exactly what would have been written; an archive's verdict must
 * agree with its findings. Archives come with their own sum, and with one that is made right, so that what lies behind
 * it is reached. */
#include "common/journal/archive.h"
#include "common/journal/pruning.h"
#include "server/store/audit/bound.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
	if (!condition)
		abort();
}

// A signature of a note that is accepted may be of any key but this one, whose other half nobody has.
static void check_signatures(const char *note)
{
	static const struct note_key nobody = {NOTE_ED25519, "exogpu-audit-nobody", {7}};
	require(!note_check(note, &nobody, NULL));
}

static void read_checkpoint(const char *text)
{
	struct checkpoint checkpoint;
	struct error error = {0};
	struct buffer again;
	check_signatures(text);
	if (checkpoint_parse(&checkpoint, text, &error)) {
		require(error.message[0]);
		return;
	}
	buffer_init(&again, NOTE_BYTES);
	require(!checkpoint_print(&checkpoint, &again));
	require(!strncmp(text, buffer_text(&again), again.length));
	buffer_finish(&again);
}

static void read_succession(const char *text)
{
	struct succession succession;
	struct error error = {0};
	struct buffer again;
	check_signatures(text);
	if (succession_parse(&succession, text, &error)) {
		require(error.message[0]);
		return;
	}
	buffer_init(&again, NOTE_BYTES);
	require(!succession_print(&succession, &again));
	require(!strncmp(text, buffer_text(&again), again.length));
	buffer_finish(&again);
}

static void read_key(const char *text)
{
	struct note_key key;
	char again[NOTE_KEY_TEXT_BYTES];
	if (note_key_parse(&key, text))
		return;
	note_key_print(&key, again);
	require(!strcmp(text, again));
}

// What an entry tells of what was pruned, is of entries before it.
static void read_pruning(const struct journal_entry *entry)
{
	struct pruning pruning;
	char text[PRUNING_TEXT_BYTES];
	if (!pruning_parse(&pruning, entry))
		return;
	require(pruning.first <= pruning.last && pruning.last < entry->seq);
	require(pruning.removed && pruning.removed <= pruning.last - pruning.first + 1);
	pruning_print(&pruning, text);
	require(!strcmp(text, entry->target));
}

static enum status print_line(void *context, const char *subject, const struct tree_hash *digest)
{
	require(subject[0] && strlen(subject) < BOUND_SUBJECT_BYTES);
	return bound_print(context, subject, digest);
}

// The rows of state.db that an entry binds. A text that is taken is what would be written of its lines.
static void read_bound(const char *bound)
{
	struct buffer again;
	buffer_init(&again, 2 * ENTRY_BYTES);
	buffer_append(&again, "", 0);
	if (!bound_read(bound, print_line, &again))
		require(!strcmp(bound, buffer_text(&again)));
	buffer_finish(&again);
}

static void read_entry(const uint8_t *bytes, size_t size)
{
	char texts[ENTRY_BYTES];
	struct journal_entry entry;
	struct buffer again;
	if (entry_decode(&entry, bytes, size, texts))
		return;
	buffer_init(&again, ENTRY_BYTES);
	require(!entry_encode(&entry, &again));
	require(again.length == size && !memcmp(again.data, bytes, size));
	buffer_finish(&again);
	read_pruning(&entry);
	if (entry.bound)
		read_bound(entry.bound);
}

// The proof of nothing is never one: the roots are not those of any leaves that it could hold.
static void read_proof(const uint8_t *bytes, size_t size)
{
	static const struct tree_hash one = {{1}}, other = {{2}};
	struct tree_proof proof = {0};
	uint64_t from = 0, to = 0;
	if (size < 16)
		return;
	memcpy(&from, bytes, 8);
	memcpy(&to, bytes + 8, 8);
	proof.count = (size - 16) / TREE_HASH_BYTES;
	if (proof.count <= TREE_PROOF_HASHES)
		memcpy(proof.hashes, bytes + 16, proof.count * TREE_HASH_BYTES);
	require(!tree_check_consistency(from, &one, to, &other, &proof) || !from);
	require(!tree_check_inclusion(&one, from, to, &other, &proof));
}

static void read_archive(const uint8_t *bytes, size_t size, bool right_sum)
{
	static int file = -1;
	char path[32];
	uint8_t sum[EVP_MAX_MD_SIZE];
	struct journal_verifier *verifier = NULL;
	struct buffer limits;
	if (file < 0)
		file = memfd_create("archive", MFD_CLOEXEC);
	require(file >= 0 && !ftruncate(file, 0) && pwrite(file, bytes, size, 0) == (ssize_t)size);
	if (right_sum) {
		require(EVP_Digest(bytes, size, sum, NULL, EVP_sha256(), NULL) == 1);
		require(pwrite(file, sum, TREE_HASH_BYTES, (off_t)size) == TREE_HASH_BYTES);
	}
	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	require(!journal_verifier_create(&verifier, NULL, NULL));
	journal_verify_part(verifier);
	require(!archive_verify(path, verifier, NULL, NULL, NULL));
	const struct journal_report *report = journal_verify_end(verifier);
	require(!report->verdict == !report->finding_count);
	require(report->signed_entries <= report->entries && report->pruned <= report->entries);
	for (size_t i = 0; i < report->finding_count && i < JOURNAL_FINDINGS; i++)
		require(report->findings[i].verdict >= report->verdict && report->findings[i].text[0]);
	buffer_init(&limits, 4096);
	journal_limits_print(report, &limits);
	require(!limits.failed);
	buffer_finish(&limits);
	journal_verifier_destroy(&verifier);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!size)
		return 0;
	uint8_t kind = data[0] % 7;
	char *text = malloc(size); // without the first byte, with a 0
	require(text);
	memcpy(text, data + 1, size - 1);
	text[size - 1] = 0;
	if (kind == 0)
		read_checkpoint(text);
	else if (kind == 1)
		read_succession(text);
	else if (kind == 2)
		read_key(text);
	else if (kind == 3)
		read_entry(data + 1, size - 1);
	else if (kind == 4)
		read_proof(data + 1, size - 1);
	else
		read_archive(data + 1, size - 1, kind == 6);
	free(text);
	return 0;
}
