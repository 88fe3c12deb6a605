/* See verify.h. The tree grows with the entries that are read. It is compared wherever
 * its root is known: at a signed head, at the certificate of the next key, at a
 * remembered head. Once the tree is known to differ from the log's (`lost`), it is not
 * compared any more, so that one change is one finding; a segment that says where the
 * tree stood starts it again. Wrong signatures are checked again at the end, when all
 * keys are known: then a signature by a key of another range differs from one by an
 * unknown key. */
#include "common/base/clock.h"
#include "common/journal/pruning.h"
#include "common/journal/verify_inside.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum status journal_verifier_create(struct journal_verifier **out, const char *origin, const struct note_key *first_key)
{
	struct journal_verifier *verifier = calloc(1, sizeof(*verifier));
	if (!verifier)
		return STATUS_OUT_OF_MEMORY;
	verifier->next_memory = UINT64_MAX;
	verifier->origin_given = origin || first_key;
	if (origin)
		snprintf(verifier->report.origin, sizeof(verifier->report.origin), "%s", origin);
	if (first_key) {
		verifier->report.first_key = *first_key;
		verifier->report.first_key_given = true;
		if (!origin)
			memcpy(verifier->report.origin, first_key->name, sizeof(verifier->report.origin));
	}
	*out = verifier;
	return STATUS_OK;
}

void journal_verifier_destroy(struct journal_verifier **verifier)
{
	if (!*verifier)
		return;
	for (size_t i = 0; i < (*verifier)->memory_count; i++)
		free((*verifier)->memories[i].note);
	for (size_t i = 0; i < (*verifier)->unproven_count; i++)
		free((*verifier)->unproven[i].note);
	free((*verifier)->memories);
	free((*verifier)->refusals);
	free((*verifier)->segments);
	free(*verifier);
	*verifier = NULL;
}

size_t journal_memories(const struct journal_verifier *verifier)
{
	return verifier->memory_count;
}

void journal_verifier_restart(struct journal_verifier *verifier, size_t memories)
{
	struct journal_verifier old = *verifier;
	*verifier = (struct journal_verifier){
		.part = old.part,
		.bare_expected = old.bare_expected,
		.origin_given = old.origin_given,
		.segments = old.segments,
		.segment_capacity = old.segment_capacity,
		.memories = old.memories,
		.memory_count = memories < old.memory_count ? memories : old.memory_count,
		.memory_capacity = old.memory_capacity,
		.refusals = old.refusals,
		.refusal_capacity = old.refusal_capacity,
		.next_memory = UINT64_MAX,
	};
	if (old.origin_given)
		memcpy(verifier->report.origin, old.report.origin, sizeof(old.report.origin));
	if (old.report.first_key_given) {
		verifier->report.first_key = old.report.first_key;
		verifier->report.first_key_given = true;
	}
	for (size_t i = 0; i < old.memory_count; i++) {
		struct memory *memory = &verifier->memories[i];
		if (i >= verifier->memory_count) {
			free(memory->note);
			continue;
		}
		memory->compared = memory->same = false;
		if (memory->checkpoint.size < verifier->next_memory)
			verifier->next_memory = memory->checkpoint.size;
	}
	for (size_t i = 0; i < old.unproven_count; i++)
		free(old.unproven[i].note);
}

void journal_verify_part(struct journal_verifier *verifier)
{
	verifier->part = true;
}

void journal_expect_bare(struct journal_verifier *verifier)
{
	verifier->bare_expected = true;
}

void *journal_grow(void **array, size_t *count, size_t *capacity, size_t size, size_t maximum)
{
	if (*count == *capacity) {
		size_t more = *capacity ? *capacity * 2 : 16;
		void *grown = *count < maximum ? realloc(*array, more * size) : NULL;
		if (!grown)
			return NULL;
		*array = grown;
		*capacity = more;
	}
	void *one = (char *)*array + size * (*count)++;
	memset(one, 0, size);
	return one;
}

enum status journal_remember(struct journal_verifier *verifier, const char *note, const char *who, struct error *error)
{
	struct checkpoint checkpoint;
	enum status status = checkpoint_parse(&checkpoint, note, error);
	if (status)
		return status;
	if (verifier->memory_count == JOURNAL_MEMORIES)
		return error_set(error, STATUS_LIMIT_EXCEEDED, "%d remembered heads can be compared at most",
				 JOURNAL_MEMORIES);
	char *copy = strdup(note);
	struct memory *memory = copy ? journal_grow((void **)&verifier->memories, &verifier->memory_count,
						    &verifier->memory_capacity, sizeof(*memory), JOURNAL_MEMORIES)
				     : NULL;
	if (!memory) {
		free(copy);
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for what %s remembers", who);
	}
	memory->checkpoint = checkpoint;
	memory->note = copy;
	snprintf(memory->who, sizeof(memory->who), "%s", who);
	if (checkpoint.size < verifier->next_memory)
		verifier->next_memory = checkpoint.size;
	return STATUS_OK;
}

// Findings.

// In the order of the log, and of their making where that is the same.
void journal_report_finding(struct journal_verifier *verifier, enum journal_verdict verdict, uint64_t seq,
			    const char *format, ...)
{
	struct journal_report *report = &verifier->report;
	va_list args;
	if (verdict && (!report->verdict || verdict < report->verdict))
		report->verdict = verdict;
	if (report->finding_count++ >= JOURNAL_FINDINGS)
		return;
	size_t at = report->finding_count - 1;
	for (; at > 0 && report->findings[at - 1].seq > seq; at--)
		report->findings[at] = report->findings[at - 1];
	struct journal_finding *finding = &report->findings[at];
	*finding = (struct journal_finding){.verdict = verdict, .seq = seq};
	va_start(args, format);
	vsnprintf(finding->text, sizeof(finding->text), format, args);
	va_end(args);
}

// Keep a note whose signature is not good until all keys are known.
static void keep_unproven(struct journal_verifier *verifier, const char *note, uint64_t seq, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
static void keep_unproven(struct journal_verifier *verifier, const char *note, uint64_t seq, const char *format, ...)
{
	struct unproven unproven = {.seq = seq};
	va_list args;
	va_start(args, format);
	vsnprintf(unproven.what, sizeof(unproven.what), format, args);
	va_end(args);
	if (verifier->unproven_count < JOURNAL_FINDINGS)
		unproven.note = strdup(note);
	if (unproven.note)
		verifier->unproven[verifier->unproven_count++] = unproven;
	else
		find(verifier, BAD_SIGNATURE, seq, "%s is not signed by the key that it should be", unproven.what);
}

// Memories.

// Compares the tree with the remembered heads of its size.
static void compare_memories(struct journal_verifier *verifier)
{
	struct tree_hash root;
	uint64_t size = verifier->tree.size;
	if (size < verifier->next_memory)
		return;
	tree_root(&verifier->tree, &root);
	verifier->next_memory = UINT64_MAX;
	for (size_t i = 0; i < verifier->memory_count; i++) {
		struct memory *memory = &verifier->memories[i];
		if (memory->checkpoint.size == size && !memory->compared && !verifier->lost) {
			memory->compared = true;
			memory->same = !memcmp(&root, &memory->checkpoint.root, sizeof(root)) &&
				       !strcmp(memory->checkpoint.origin, verifier->report.origin);
		}
		if (memory->checkpoint.size > size && memory->checkpoint.size < verifier->next_memory)
			verifier->next_memory = memory->checkpoint.size;
	}
}

// Segments.

// All before this are under a good signature.
static void note_signed(struct journal_verifier *verifier)
{
	struct journal_report *report = &verifier->report;
	verifier->signed_size = verifier->tree.size;
	report->signed_entries = report->entries;
	if (verifier->last_at_us)
		clock_format(verifier->last_at_us / 1000, report->last_checkpoint_at);
}

// The entries so far with what the log's key has signed of so many.
static void compare_signed(struct journal_verifier *verifier, const struct tree_hash *root)
{
	struct tree_hash read;
	uint64_t size = verifier->tree.size;
	tree_root(&verifier->tree, &read);
	if (!memcmp(&read, root, sizeof(read))) {
		note_signed(verifier);
		return;
	}
	if (verifier->signed_size == size)
		find(verifier, FORKED, size, "two different logs of %" PRIu64 " entries were signed", size);
	else
		find(verifier, MODIFIED, verifier->signed_size,
		     "entries %" PRIu64 " to %" PRIu64 " are not those that were signed", verifier->signed_size,
		     size - 1);
	verifier->lost = true;
}

static void lose(struct journal_verifier *verifier, uint64_t size)
{
	verifier->lost = true;
	verifier->tree.size = size;
}

static bool same_key(const struct note_key *a, const struct note_key *b)
{
	return a->algorithm == b->algorithm && !strcmp(a->name, b->name) &&
	       !memcmp(a->public_key, b->public_key, NOTE_KEY_BYTES);
}

// The first segment that is read: whether its key is the one to believe, and whether it is the log's first.
static void begin(struct journal_verifier *verifier, const struct journal_segment *segment)
{
	struct journal_report *report = &verifier->report;
	bool as_given = report->first_key_given && same_key(&report->first_key, &segment->key);
	if (!report->origin[0])
		memcpy(report->origin, segment->key.name, sizeof(report->origin));
	if (!report->first_key_given)
		report->first_key = segment->key;
	else if (!as_given && !segment->number)
		find(verifier, WRONG_KEY, 0, "the log begins with another key than the one that it should");
	if (!segment->number || as_given)
		return;
	if (!verifier->part)
		find(verifier, ARCHIVE_MISSING, 0,
		     "the segments before %" PRIu64 " are missing, with %" PRIu64 " entries", segment->number,
		     segment->first);
	else if (report->first_key_given)
		find(verifier, ARCHIVE_MISSING, segment->first,
		     "whether the key of segment %" PRIu64 " comes from the first one only those between can tell",
		     segment->number);
	lose(verifier, segment->first);
}

// The end of the entries read so far, and the beginning of the segment.
static void join_segment(struct journal_verifier *verifier, const struct journal_segment *segment)
{
	const struct known_segment *last = verifier->segment_count ? &verifier->segments[verifier->segment_count - 1]
								   : NULL;
	uint64_t size = verifier->tree.size;
	if (last && segment->number <= last->number)
		find(verifier, MODIFIED, segment->first, "segment %" PRIu64 " stands after segment %" PRIu64,
		     segment->number, last->number);
	bool skipped = last && segment->number > last->number + 1;
	if (skipped)
		find(verifier, ARCHIVE_MISSING, size, "the segments between %" PRIu64 " and %" PRIu64 " are missing",
		     last->number, segment->number);
	if (segment->first > size && !skipped)
		find(verifier, MODIFIED, size, "entries %" PRIu64 " to %" PRIu64 " are missing", size,
		     segment->first - 1);
	else if (segment->first < size)
		find(verifier, MODIFIED, segment->first,
		     "segment %" PRIu64 " begins with entry %" PRIu64 ", but %" PRIu64 " stand before it",
		     segment->number, segment->first, size);
	if (segment->first != size)
		lose(verifier, segment->first);
}

// That the key before has passed the log to this one, here, and after these entries.
// root: what it says that the tree before the segment is. False: it cannot be relied on.
static bool check_certificate(struct journal_verifier *verifier, const struct journal_segment *segment,
			      struct tree_hash *root)
{
	struct succession succession;
	struct error error = {0};
	const struct known_segment *last = verifier->segment_count ? &verifier->segments[verifier->segment_count - 1]
								   : NULL;
	const char *note = segment->certificate ? segment->certificate : "";
	if (succession_parse(&succession, note, &error)) {
		find(verifier, BAD_SIGNATURE, segment->first, "the certificate of segment %" PRIu64 "'s key: %s",
		     segment->number, note[0] ? error.message : "there is none");
		return false;
	}
	if (strcmp(succession.origin, verifier->report.origin) != 0 || succession.number != segment->number ||
	    succession.first != segment->first || !same_key(&succession.key, &segment->key)) {
		find(verifier, WRONG_KEY, segment->first,
		     "the key of segment %" PRIu64 " is not the one that its certificate is for", segment->number);
		return false;
	}
	if (last && last->number + 1 == segment->number && !note_check(note, &last->key, NULL)) {
		keep_unproven(verifier, note, segment->first, "the certificate of segment %" PRIu64 "'s key",
			      segment->number);
		return false;
	}
	*root = succession.root;
	return true;
}

// The tree at the segment's first entry: as read, as certified, and as kept beside the entries are the same.
static void check_tree(struct journal_verifier *verifier, const struct journal_segment *segment,
		       const struct tree_hash *certified)
{
	struct tree_hash read, kept;
	const struct tree *before = segment->before;
	tree_root(&verifier->tree, &read);
	if (!verifier->lost && certified)
		compare_signed(verifier, certified);
	if (!before)
		return;
	if (before->size == segment->first)
		tree_root(before, &kept);
	const struct tree_hash *wanted = certified ? certified : verifier->lost ? NULL : &read;
	if (before->size != segment->first || (wanted && memcmp(&kept, wanted, sizeof(kept)) != 0)) {
		find(verifier, MODIFIED, segment->first,
		     "the tree that is kept with segment %" PRIu64 " is not that of the entries before it",
		     segment->number);
	} else if (certified && verifier->lost) {
		verifier->tree = *before;
		verifier->lost = false;
		verifier->signed_size = before->size;
	}
}

void journal_verify_segment(struct journal_verifier *verifier, const struct journal_segment *segment)
{
	struct journal_report *report = &verifier->report;
	struct tree_hash root;
	bool certified = false;
	if (!verifier->segment_count)
		begin(verifier, segment);
	if (strcmp(segment->key.name, report->origin) != 0 || segment->key.algorithm != NOTE_ED25519)
		find(verifier, WRONG_KEY, segment->first, "the key of segment %" PRIu64 " is not one of the log %s",
		     segment->number, report->origin);
	join_segment(verifier, segment);
	if (segment->number)
		certified = check_certificate(verifier, segment, &root);
	else if (segment->certificate && segment->certificate[0])
		find(verifier, MODIFIED, 0, "the first segment has a certificate, which no key could have signed");
	check_tree(verifier, segment, certified ? &root : NULL);
	verifier->heads = 0;
	report->segments++;
	report->newest_segment = segment->number;
	report->newest_first = segment->first;
	struct known_segment *known = journal_grow((void **)&verifier->segments, &verifier->segment_count,
						   &verifier->segment_capacity, sizeof(*known), JOURNAL_SEGMENTS);
	if (known)
		*known = (struct known_segment){
			.number = segment->number, .first = segment->first, .key = segment->key};
	else
		find(verifier, BAD_SIGNATURE, segment->first, "no memory for the key of segment %" PRIu64,
		     segment->number);
	compare_memories(verifier);
}

// Entries.

// The log tells what was pruned of it. Only whole segments before the newest can be.
static void take_pruning(struct journal_verifier *verifier, const struct journal_entry *entry)
{
	struct pruning pruning;
	if (!pruning_parse(&pruning, entry))
		return;
	for (size_t i = 0; i + 1 < verifier->segment_count; i++) {
		struct known_segment *segment = &verifier->segments[i];
		bool adjacent = segment[1].number == segment->number + 1;
		if (segment->first != pruning.first || (adjacent && segment[1].first != pruning.last + 1) ||
		    pruning.removed <= segment->pruned)
			continue;
		segment->pruned = pruning.removed;
		segment->pruned_by = entry->seq;
	}
}

static void forget_refusal(struct journal_verifier *verifier, const char *node_id)
{
	for (size_t i = 0; i < verifier->refusal_count; i++)
		if (!strcmp(verifier->refusals[i].node_id, node_id))
			verifier->refusals[i].node_id[0] = 0;
}

// The log tells which witness refused a head of it; until it signs one, or is removed, that stands.
static void take_refusal(struct journal_verifier *verifier, const struct journal_entry *entry)
{
	bool done = !strcmp(entry->outcome, "ok"), told = !strcmp(entry->action, "audit.witness");
	if ((done && told) || (done && !strcmp(entry->action, "node.remove")))
		forget_refusal(verifier, entry->target);
	if (!told || strcmp(entry->actor, "server") != 0 || strcmp(entry->outcome, "conflict") != 0)
		return;
	forget_refusal(verifier, entry->target);
	struct refusal *refusal = NULL;
	for (size_t i = 0; i < verifier->refusal_count && !refusal; i++)
		if (!verifier->refusals[i].node_id[0])
			refusal = &verifier->refusals[i];
	if (!refusal)
		refusal = journal_grow((void **)&verifier->refusals, &verifier->refusal_count,
				       &verifier->refusal_capacity, sizeof(*refusal), JOURNAL_MEMORIES);
	if (!refusal)
		return; // more than there are nodes: those before it are told
	snprintf(refusal->node_id, sizeof(refusal->node_id), "%s", entry->target);
	refusal->seq = entry->seq;
	if (sscanf(entry->detail, "{\"held\":%" SCNu64 ",\"shown\":%" SCNu64 "}", &refusal->held, &refusal->shown) != 2)
		refusal->held = refusal->shown = 0;
}

// Checks that the entry's bytes match its fields.
static bool check_bytes(struct journal_verifier *verifier, uint64_t seq, const uint8_t *bytes, size_t length)
{
	char texts[ENTRY_BYTES];
	struct journal_entry entry;
	if (entry_decode(&entry, bytes, length, texts) || entry.seq != seq)
		return false;
	verifier->last_at_us = entry.at_us;
	take_pruning(verifier, &entry);
	take_refusal(verifier, &entry);
	return true;
}

static void count_bare(struct journal_verifier *verifier, uint64_t seq)
{
	verifier->report.pruned++;
	if (!verifier->segment_count)
		return;
	struct known_segment *segment = &verifier->segments[verifier->segment_count - 1];
	if (!segment->bare++)
		segment->first_bare = seq;
}

void journal_verify_entry(struct journal_verifier *verifier, uint64_t seq, const uint8_t *bytes, size_t length,
			  const struct tree_hash *leaf)
{
	struct tree_hash made;
	uint64_t expected = verifier->tree.size;
	if (!verifier->segment_count && !verifier->report.entries)
		find(verifier, WRONG_KEY, seq, "entry %" PRIu64 " belongs to no segment", seq);
	verifier->report.entries++;
	if (seq < expected) {
		find(verifier, MODIFIED, seq, "entry %" PRIu64 " stands after entry %" PRIu64, seq, expected - 1);
		verifier->lost = true;
		return;
	}
	if (seq > expected) {
		find(verifier, MODIFIED, expected, "entries %" PRIu64 " to %" PRIu64 " are missing", expected, seq - 1);
		lose(verifier, seq);
	}
	if (bytes) {
		tree_hash_leaf(bytes, length, &made);
		// The stored hash is likelier to be the one that was signed: then what follows can still be compared.
		if (!check_bytes(verifier, seq, bytes, length) || (leaf && memcmp(leaf, &made, sizeof(made)) != 0))
			find(verifier, MODIFIED, seq, "entry %" PRIu64 " is not what its hash is of", seq);
	} else {
		count_bare(verifier, seq);
	}
	if (!bytes && !leaf) {
		find(verifier, MODIFIED, seq, "of entry %" PRIu64 " there is not even the hash", seq);
		lose(verifier, seq + 1);
	} else {
		tree_append(&verifier->tree, leaf ? leaf : &made, NULL, NULL);
	}
	compare_memories(verifier);
}

void journal_verify_gap(struct journal_verifier *verifier, uint64_t first, uint64_t next)
{
	find(verifier, ARCHIVE_MISSING, first, "entries %" PRIu64 " to %" PRIu64 " are in an archive that is not there",
	     first, next - 1);
	verifier->unread = next - 1;
	lose(verifier, next);
	verifier->heads++; // its heads are in the archive, too
	compare_memories(verifier);
}

void journal_verify_checkpoint(struct journal_verifier *verifier, const char *note)
{
	struct checkpoint head;
	struct error error = {0};
	size_t count = verifier->segment_count;
	uint64_t size = verifier->tree.size;
	const struct known_segment *segment = count ? &verifier->segments[count - 1] : NULL;
	verifier->heads++;
	if (checkpoint_parse(&head, note, &error)) {
		find(verifier, BAD_SIGNATURE, size, "a head near entry %" PRIu64 ": %s", size, error.message);
		return;
	}
	bool before = count > 1 && segment->first == head.size && note_check(note, &segment[-1].key, NULL);
	if (!segment || head.size < segment->first || strcmp(head.origin, verifier->report.origin) != 0 ||
	    (!before && !note_check(note, &segment->key, NULL))) {
		keep_unproven(verifier, note, head.size, "the head of %" PRIu64 " entries", head.size);
		return;
	}
	if (head.size > size) {
		find(verifier, TRUNCATED, size, "a signed head tells of %" PRIu64 " entries; here are %" PRIu64,
		     head.size, size);
		return;
	}
	if (head.size < size) {
		find(verifier, MODIFIED, head.size, "the head of %" PRIu64 " entries stands after %" PRIu64, head.size,
		     size);
		return;
	}
	if (!verifier->lost)
		compare_signed(verifier, &head.root);
}
