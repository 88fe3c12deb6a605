/* The verifier against who may rewrite all of a log's files and holds its newest key: what is found without anything
 * else to compare with, with the first key from elsewhere, and with a head that a witness remembers. */
#include "common/journal/verify.h"
#include "tests/common/journal/sample_log.h"

enum { FIRST_END = 20, SECOND_END = 40, BACKUP = 45, REMEMBERED = 60, SIZE = 64 };

static struct sample_log good, backup;
static char remembered[SAMPLE_NOTE];

static void feed_heads(const struct sample_log *log, struct journal_verifier *verifier, size_t *head, uint64_t size)
{
	for (; *head < log->head_count && log->heads[*head].size <= size; ++*head)
		journal_verify_checkpoint(verifier, log->heads[*head].note);
}

// Read it as the server reads its database: what is there, in the order of its numbers.
static void feed(const struct sample_log *log, struct journal_verifier *verifier)
{
	size_t entry = 0, head = 0;
	for (size_t i = 0; i < log->segment_count; i++) {
		const struct sample_segment *segment = &log->segments[i];
		uint64_t next = i + 1 < log->segment_count ? segment[1].first : UINT64_MAX;
		if (segment->gone) {
			while (entry < log->count && log->entries[entry].seq < next)
				entry++;
			while (head < log->head_count && log->heads[head].size <= next)
				head++;
			continue;
		}
		journal_verify_segment(verifier, &(struct journal_segment){
							 .number = segment->number,
							 .first = segment->first,
							 .key = segment->signer.key,
							 .certificate = segment->certificate,
							 .before = &segment->before,
						 });
		for (; entry < log->count && log->entries[entry].seq < next; entry++) {
			const struct sample_entry *one = &log->entries[entry];
			feed_heads(log, verifier, &head, one->seq);
			journal_verify_entry(verifier, one->seq, one->bare ? NULL : one->bytes, one->length,
					     &one->leaf);
		}
		feed_heads(log, verifier, &head, i + 1 < log->segment_count ? next : UINT64_MAX);
	}
}

// Three segments, of which the last goes on; a head for every ten entries, a few together.
static int make_log(void **state)
{
	(void)state;
	sample_rotate(&good);
	for (unsigned size = 0; size < SIZE; size++) {
		sample_add(&good, 1);
		if (good.tree.size % 10 == 0 || good.tree.size == SIZE || good.tree.size == BACKUP)
			sample_sign(&good);
		if (good.tree.size == FIRST_END || good.tree.size == SECOND_END)
			sample_rotate(&good);
		if (good.tree.size == BACKUP)
			backup = good;
		if (good.tree.size == REMEMBERED)
			memcpy(remembered, good.heads[good.head_count - 1].note, sizeof(remembered));
	}
	return 0;
}

static void cut(struct sample_log *log, uint64_t size)
{
	while (log->count && log->entries[log->count - 1].seq >= size)
		log->count--;
}

static void cut_heads(struct sample_log *log, uint64_t size)
{
	while (log->head_count && log->heads[log->head_count - 1].size > size)
		log->head_count--;
}

// Make every hash anew: leaves, and the trees that are kept with segments.
static void recompute(struct sample_log *log)
{
	log->tree = (struct tree){0};
	for (size_t i = 0, segment = 0; i <= log->count; i++) {
		for (; segment < log->segment_count && log->segments[segment].first == log->tree.size; segment++)
			log->segments[segment].before = log->tree;
		if (i == log->count)
			break;
		tree_hash_leaf(log->entries[i].bytes, log->entries[i].length, &log->entries[i].leaf);
		tree_append(&log->tree, &log->entries[i].leaf, NULL, NULL);
	}
}

// Sign the heads from `from` on anew, with the newest key, in the shape that the entries have now.
static void sign_again(struct sample_log *log, uint64_t from)
{
	struct tree tree = {0};
	for (size_t i = 0, head = 0; i <= log->count; i++) {
		for (; head < log->head_count && log->heads[head].size == tree.size; head++)
			if (tree.size > from)
				sample_head(&tree, &sample_newest(log)->signer, log->heads[head].note);
		if (i < log->count)
			tree_append(&tree, &log->entries[i].leaf, NULL, NULL);
	}
}

static void swap(struct sample_log *log, size_t at)
{
	struct sample_entry kept = log->entries[at];
	log->entries[at] = log->entries[at + 1];
	log->entries[at + 1] = kept;
	log->entries[at].seq = at;
	log->entries[at + 1].seq = at + 1;
}

static void insert(struct sample_log *log, size_t at)
{
	memmove(&log->entries[at + 1], &log->entries[at], (log->count - at) * sizeof(log->entries[0]));
	log->count++;
	for (size_t i = at; i < log->count; i++)
		sample_write(&log->entries[i], i, i == at ? "x.y" : "a.b");
}

static void play_nothing(struct sample_log *log)
{
	assert_int_equal(log->count, SIZE);
}
static void play_edit(struct sample_log *log)
{
	log->entries[50].bytes[log->entries[50].length - 30] ^= 1;
}
static void play_edit_number(struct sample_log *log)
{
	log->entries[50].seq = 49;
}
static void play_edit_hash(struct sample_log *log)
{
	log->entries[50].leaf.bytes[7] ^= 1;
}
static void play_edit_old(struct sample_log *log)
{
	sample_write(&log->entries[5], 5, "x.y");
	recompute(log);
}
static void play_edit_new(struct sample_log *log)
{
	sample_write(&log->entries[50], 50, "x.y");
	recompute(log);
	sign_again(log, SECOND_END);
}
static void play_resign_heads(struct sample_log *log)
{
	play_edit_old(log);
	sign_again(log, 0);
}
static void play_resign_all(struct sample_log *log)
{
	play_resign_heads(log);
	for (size_t i = 1; i < log->segment_count; i++)
		sample_certify(&log->segments[i], &sample_newest(log)->signer, log->segments[i].certificate);
}
static void play_resign_unchanged(struct sample_log *log)
{
	sign_again(log, 0);
}
static void play_swap_old(struct sample_log *log)
{
	swap(log, 30);
}
static void play_swap_old_written(struct sample_log *log)
{
	sample_write(&log->entries[30], 30, "x.y");
	sample_write(&log->entries[31], 31, "a.c");
	recompute(log);
}
static void play_swap_new(struct sample_log *log)
{
	sample_write(&log->entries[50], 50, "x.y");
	sample_write(&log->entries[51], 51, "a.c");
	recompute(log);
	sign_again(log, SECOND_END);
}
static void play_cut_tail(struct sample_log *log)
{
	cut(log, 50);
}
static void play_cut_tail_and_heads(struct sample_log *log)
{
	cut(log, 50);
	cut_heads(log, 50);
}
static void play_cut_segment(struct sample_log *log)
{
	cut(log, SECOND_END);
	cut_heads(log, SECOND_END);
	log->segment_count--;
}
static void play_drop_newest_key(struct sample_log *log)
{
	log->segment_count--;
}
static void play_cut_middle(struct sample_log *log)
{
	memmove(&log->entries[30], &log->entries[33], (log->count - 33) * sizeof(log->entries[0]));
	log->count -= 3;
}
static void play_cut_all(struct sample_log *log)
{
	memset(log, 0, sizeof(*log));
}
static void play_begin_anew(struct sample_log *log)
{
	memset(log, 0, sizeof(*log));
	sample_rotate(log);
	sample_add(log, SIZE);
	sample_write(&log->entries[5], 5, "x.y");
	recompute(log);
	sample_sign(log);
}
static void play_backup(struct sample_log *log)
{
	struct note_signer newest = sample_newest(log)->signer;
	*log = backup;
	sample_newest(log)->signer = newest;
}
static void play_fork(struct sample_log *log)
{
	play_backup(log);
	for (unsigned i = BACKUP; i < SIZE; i++) {
		sample_write(&log->entries[i], i, "x.y");
		log->count++;
		tree_append(&log->tree, &log->entries[i].leaf, NULL, NULL);
	}
	sample_sign(log);
}
static void play_drop_archive(struct sample_log *log)
{
	log->segments[1].gone = true;
}
static void play_drop_first(struct sample_log *log)
{
	log->segments[0].gone = true;
}
static void play_insert_old(struct sample_log *log)
{
	insert(log, 10);
	recompute(log);
}
static void play_insert_new(struct sample_log *log)
{
	insert(log, 50);
	recompute(log);
	sign_again(log, SECOND_END);
	sample_sign(log);
}
static void play_append(struct sample_log *log)
{
	sample_add(log, 1);
	sample_sign(log);
}
static void play_delete_heads(struct sample_log *log)
{
	log->head_count = 0;
}
static void play_delete_newest_head(struct sample_log *log)
{
	log->head_count--;
}
static void play_other_key(struct sample_log *log)
{
	struct note_signer own;
	assert_int_equal(note_key_make(&own, NOTE_ED25519, SAMPLE_ORIGIN), STATUS_OK);
	sample_newest(log)->signer = own;
	sample_certify(sample_newest(log), &own, sample_newest(log)->certificate);
	sign_again(log, SECOND_END);
}
static void play_other_key_uncertified(struct sample_log *log)
{
	assert_int_equal(note_key_make(&sample_newest(log)->signer, NOTE_ED25519, SAMPLE_ORIGIN), STATUS_OK);
	sign_again(log, SECOND_END);
}
static void play_other_key_for_heads(struct sample_log *log)
{
	struct note_signer own, kept = sample_newest(log)->signer;
	assert_int_equal(note_key_make(&own, NOTE_ED25519, SAMPLE_ORIGIN), STATUS_OK);
	sample_newest(log)->signer = own;
	sign_again(log, SECOND_END);
	sample_newest(log)->signer = kept;
}
// Two heads of the same number of entries, both signed.
static void play_two_heads(struct sample_log *log)
{
	struct tree tree = log->tree;
	tree.peaks[0].bytes[0] ^= 1;
	sample_sign(log);
	sample_head(&tree, &sample_newest(log)->signer, log->heads[log->head_count - 1].note);
}

// The archive of the second segment is replaced by one of its leaves' hashes, but for the first of them.
static void play_empty_archive(struct sample_log *log)
{
	for (size_t i = FIRST_END + 1; i < SECOND_END; i++)
		log->entries[i].bare = true;
}
static void play_empty_entry(struct sample_log *log)
{
	log->entries[50].bare = true;
}

static void tell_pruning(struct sample_log *log, const char *actor, const char *outcome, const char *target)
{
	play_empty_archive(log);
	sample_tell(log, (struct journal_entry){
				 .actor = actor, .action = "audit.prune", .outcome = outcome, .target = target});
}
static void play_prune(struct sample_log *log)
{
	tell_pruning(log, "server", "ok", "19 of the entries 20 to 39");
	sample_sign(log);
}
static void play_prune_unsigned(struct sample_log *log)
{
	tell_pruning(log, "server", "ok", "19 of the entries 20 to 39");
}
static void play_prune_more(struct sample_log *log)
{
	play_prune(log);
	log->entries[FIRST_END].bare = true;
}
static void play_prune_other_segment(struct sample_log *log)
{
	tell_pruning(log, "server", "ok", "19 of the entries 0 to 19");
	sample_sign(log);
}
static void play_prune_half_segment(struct sample_log *log)
{
	tell_pruning(log, "server", "ok", "19 of the entries 20 to 50");
	sample_sign(log);
}
static void play_prune_by_another(struct sample_log *log)
{
	tell_pruning(log, "token:t", "ok", "19 of the entries 20 to 39");
	sample_sign(log);
}
static void play_prune_failed(struct sample_log *log)
{
	tell_pruning(log, "server", "forbidden", "19 of the entries 20 to 39");
	sample_sign(log);
}
static void play_prune_badly_told(struct sample_log *log)
{
	tell_pruning(log, "server", "ok", "+19 of the entries 20 to 39");
	sample_sign(log);
}
static void play_prune_newest(struct sample_log *log)
{
	play_empty_entry(log);
	sample_tell(log, (struct journal_entry){.actor = "server",
						.action = "audit.prune",
						.outcome = "ok",
						.target = "1 of the entries 40 to 63"});
	sample_sign(log);
}
// The entry that tells it goes the same way.
static void play_prune_telling(struct sample_log *log)
{
	play_prune(log);
	log->entries[log->count - 1].bare = true;
}

static void tell_refusal(struct sample_log *log, const char *actor, const char *outcome)
{
	sample_tell(log, (struct journal_entry){
				 .actor = actor, .action = "audit.witness", .outcome = outcome, .target = "nod_1"});
	sample_sign(log);
}
static void play_refused(struct sample_log *log)
{
	tell_refusal(log, "server", "conflict");
}
static void play_refused_by_another(struct sample_log *log)
{
	tell_refusal(log, "token:t", "conflict");
}
static void play_refused_and_signed(struct sample_log *log)
{
	tell_refusal(log, "server", "conflict");
	tell_refusal(log, "server", "ok");
}
static void play_refused_again(struct sample_log *log)
{
	play_refused_and_signed(log);
	tell_refusal(log, "server", "conflict");
}
static void play_refused_and_removed(struct sample_log *log)
{
	tell_refusal(log, "server", "conflict");
	sample_tell(log, (struct journal_entry){.action = "node.remove", .outcome = "ok", .target = "nod_1"});
	sample_sign(log);
}
static void play_refused_and_other_removed(struct sample_log *log)
{
	tell_refusal(log, "server", "conflict");
	sample_tell(log, (struct journal_entry){.action = "node.remove", .outcome = "ok", .target = "nod_2"});
	sample_sign(log);
}

enum { H = JOURNAL_HOLDS };

static const struct attack {
	const char *name;
	void (*play)(struct sample_log *log);
	int alone, first_key, witness; // verdicts
} attacks[] = {
	{"nothing", play_nothing, H, H, H},
	{"one more entry, as the server writes it", play_append, H, H, H},
	{"edit an entry", play_edit, 10, 10, 10},
	{"give an entry another's number", play_edit_number, 10, 10, 10},
	{"edit an entry's hash", play_edit_hash, 10, 10, 10},
	{"edit in an old segment, recompute all hashes", play_edit_old, 10, 10, 10},
	{"edit in the newest segment, recompute, sign", play_edit_new, H, H, 12},
	{"edit in an old segment, recompute, sign its heads", play_resign_heads, 10, 10, 10},
	{"the same, and sign the certificates", play_resign_all, 14, 14, 12},
	{"sign an old range with the newest key", play_resign_unchanged, 14, 14, 14},
	{"swap two entries of an old segment", play_swap_old, 10, 10, 10},
	{"the same, recompute", play_swap_old_written, 10, 10, 10},
	{"swap in the newest segment, recompute, sign", play_swap_new, H, H, 12},
	{"cut the tail", play_cut_tail, 11, 11, 11},
	{"cut the tail and its heads", play_cut_tail_and_heads, H, H, 11},
	{"cut the newest segment off as a whole", play_cut_segment, H, H, 11},
	{"drop the newest segment's key", play_drop_newest_key, 13, 13, 13},
	{"cut out of the middle", play_cut_middle, 10, 10, 10},
	{"cut all", play_cut_all, 11, 11, 11},
	{"cut all and begin anew", play_begin_anew, H, 14, 12},
	{"put an old backup back", play_backup, H, H, 11},
	{"put an old backup back and go on from it (fork)", play_fork, H, H, 12},
	{"drop an archive", play_drop_archive, 15, 15, 15},
	{"drop the first archive", play_drop_first, 15, 15, 15},
	{"insert in an old segment, recompute", play_insert_old, 10, 10, 10},
	{"insert in the newest segment, recompute, sign", play_insert_new, H, H, 12},
	{"delete the heads", play_delete_heads, 13, 13, 13},
	{"delete the newest head", play_delete_newest_head, 16, 16, 16},
	{"another newest key, certified by itself", play_other_key, 14, 14, 13},
	{"another newest key, with the old certificate", play_other_key_uncertified, 14, 14, 13},
	{"heads signed with a key of one's own", play_other_key_for_heads, 13, 13, 13},
	{"two heads of one size", play_two_heads, 12, 12, 12},
	{"leave of an archive's entries only the hashes", play_empty_archive, 10, 10, 10},
	{"the same with one of the newest segment", play_empty_entry, 10, 10, 10},
	{"prune an archive, as the server does, and tell it", play_prune, H, H, H},
	{"the same, and the entry that tells it not signed", play_prune_unsigned, 10, 10, 10},
	{"prune one more than was told", play_prune_more, 10, 10, 10},
	{"tell of another segment than was pruned", play_prune_other_segment, 10, 10, 10},
	{"tell of more than a segment", play_prune_half_segment, 10, 10, 10},
	{"somebody else tells it", play_prune_by_another, 10, 10, 10},
	{"tell of a pruning that failed", play_prune_failed, 10, 10, 10},
	{"tell it in other words", play_prune_badly_told, 10, 10, 10},
	{"tell of the newest segment", play_prune_newest, 10, 10, 10},
	{"prune the entry that tells it", play_prune_telling, 10, 10, 10},
	{"the log tells that a witness refused it", play_refused, 12, 12, 12},
	{"somebody else's entry of that name", play_refused_by_another, H, H, H},
	{"a witness refused, and has signed since", play_refused_and_signed, H, H, H},
	{"the same, and refused again", play_refused_again, 12, 12, 12},
	{"a witness refused, and was removed", play_refused_and_removed, H, H, H},
	{"a witness refused, and another was removed", play_refused_and_other_removed, 12, 12, 12},
};

static enum journal_verdict try(const struct sample_log *log, bool first_key, bool witness, int expected)
{
	struct journal_verifier *verifier = sample_verifier(first_key ? &good.segments[0].signer.key : NULL);
	if (witness)
		assert_int_equal(journal_remember(verifier, remembered, "the witness", NULL), STATUS_OK);
	feed(log, verifier);
	const struct journal_report *report = journal_verify_end(verifier);
	enum journal_verdict verdict = journal_verdict_of(report);
	assert_true(!verdict == !report->finding_count);
	if (expected >= 0 && (int)verdict != expected)
		sample_explain(report);
	if (!verdict)
		assert_int_equal(report->witnessed, witness ? REMEMBERED : 0);
	journal_verifier_destroy(&verifier);
	return verdict;
}

static void print_verdict(enum journal_verdict verdict, char text[8])
{
	snprintf(text, 8, verdict ? "%d" : "-", (int)verdict);
}

static void test_attacks(void **state)
{
	static struct sample_log log;
	unsigned wrong = 0;
	(void)state;
	print_message("%-50s %6s %10s %8s\n", "attack", "alone", "first key", "witness");
	for (size_t i = 0; i < sizeof(attacks) / sizeof(attacks[0]); i++) {
		const struct attack *attack = &attacks[i];
		char alone[8], first_key[8], witness[8];
		log = good;
		attack->play(&log);
		enum journal_verdict verdicts[] = {
			try(&log, false, false, attack->alone),
			try(&log, true, false, attack->first_key),
			try(&log, false, true, attack->witness),
		};
		print_verdict(verdicts[0], alone);
		print_verdict(verdicts[1], first_key);
		print_verdict(verdicts[2], witness);
		bool right = (int)verdicts[0] == attack->alone && (int)verdicts[1] == attack->first_key &&
			     (int)verdicts[2] == attack->witness;
		wrong += !right;
		print_message("%-50s %6s %10s %8s%s\n", attack->name, alone, first_key, witness,
			      right ? "" : "  <- not as it should be");
	}
	assert_int_equal(wrong, 0);
}

// Each bit of all that is kept of the log, the peaks beside its segments too: none can be flipped unnoticed.
static void flip_all(struct sample_log *log, void *bytes, size_t length, unsigned *tried)
{
	uint8_t *at = bytes;
	for (size_t bit = 0; bit < length * 8; bit++, ++*tried) {
		at[bit / 8] ^= (uint8_t)(1u << bit % 8);
		if (!try(log, false, false, -1)) // -1: any finding
			fail_msg("bit %zu is not found", bit);
		at[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
}

static void test_bits(void **state)
{
	static struct sample_log log;
	unsigned tried = 0;
	(void)state;
	sample_rotate(&log);
	sample_add(&log, 3);
	sample_sign(&log);
	sample_rotate(&log);
	sample_add(&log, 2);
	sample_sign(&log);
	assert_int_equal(try(&log, false, false, 0), JOURNAL_HOLDS);
	for (size_t i = 0; i < log.count; i++) {
		flip_all(&log, log.entries[i].bytes, log.entries[i].length, &tried);
		flip_all(&log, &log.entries[i].leaf, sizeof(log.entries[i].leaf), &tried);
	}
	for (size_t i = 0; i < log.segment_count; i++) {
		struct sample_segment *segment = &log.segments[i];
		flip_all(&log, segment->signer.key.public_key, NOTE_KEY_BYTES, &tried);
		flip_all(&log, segment->certificate, strlen(segment->certificate), &tried);
		flip_all(&log, segment->before.peaks, tree_peaks(segment->first) * TREE_HASH_BYTES, &tried);
	}
	for (size_t i = 0; i < log.head_count; i++)
		flip_all(&log, log.heads[i].note, strlen(log.heads[i].note), &tried);
	print_message("%u flipped bits, all found\n", tried);
}

static void test_report(void **state)
{
	struct journal_verifier *verifier = sample_verifier(NULL);
	struct tree_hash root;
	(void)state;
	feed(&good, verifier);
	const struct journal_report *report = journal_verify_end(verifier);
	assert_int_equal(report->entries, SIZE);
	assert_int_equal(report->signed_entries, SIZE);
	assert_int_equal(report->segments, 3);
	assert_int_equal(report->newest_segment, 2);
	assert_int_equal(report->newest_first, SECOND_END);
	assert_int_equal(report->pruned, 0);
	assert_string_equal(report->origin, SAMPLE_ORIGIN);
	assert_string_equal(report->last_checkpoint_at, "2025-11-13T02:13:20.000Z");
	assert_memory_equal(report->first_key.public_key, good.segments[0].signer.key.public_key, NOTE_KEY_BYTES);
	tree_root(&good.tree, &root);
	assert_memory_equal(&report->root, &root, sizeof(root));
	journal_verifier_destroy(&verifier);
}

// A verifier that begins anew knows what it was made with, and nothing of what it has read.
static void test_restart(void **state)
{
	static struct sample_log log;
	struct journal_verifier *verifier = sample_verifier(&good.segments[0].signer.key);
	(void)state;
	assert_int_equal(journal_remember(verifier, remembered, "the witness", NULL), STATUS_OK);
	log = good;
	play_resign_all(&log);
	play_empty_archive(&log);
	assert_int_equal(journal_remember(verifier, good.heads[0].note, "somebody", NULL), STATUS_OK);
	assert_int_equal(journal_memories(verifier), 2);
	feed(&log, verifier);
	assert_true(journal_lacks_leave(verifier));
	assert_true(journal_verify_end(verifier)->finding_count > 2);
	journal_verifier_restart(verifier, 1);
	assert_int_equal(journal_memories(verifier), 1);
	feed(&good, verifier);
	assert_false(journal_lacks_leave(verifier));
	const struct journal_report *report = journal_verify_end(verifier);
	assert_int_equal(report->finding_count, 0);
	assert_int_equal(report->witnessed, REMEMBERED);
	assert_int_equal(report->entries, SIZE);
	assert_int_equal(journal_memory_state(verifier, 0), JOURNAL_MEMORY_AGREES);
	assert_true(report->first_key_given);
	assert_string_equal(report->origin, SAMPLE_ORIGIN);
	journal_verifier_destroy(&verifier);
}

// What was pruned is counted, and so is what is missing without leave; of a part it cannot be known.
static void test_pruned(void **state)
{
	static const struct {
		void (*play)(struct sample_log *log);
		bool part;
		int verdict;
		unsigned pruned, bare;
		const char *text;
	} cases[] = {
		{play_prune, false, JOURNAL_HOLDS, 19, 0,
		 " Of 19 entries only the hashes are kept, and signed entries"},
		{play_prune, true, JOURNAL_HOLDS, 19, 0, " Of 19 entries only the hashes are kept, and signed entries"},
		{play_empty_archive, false, JOURNAL_MODIFIED, 19, 19, " for some of them no entry of the log says why"},
		{play_empty_archive, true, JOURNAL_ARCHIVE_MISSING, 19, 19,
		 " for some of them no entry of the log says why"},
	};
	static struct sample_log log;
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct journal_verifier *verifier = sample_verifier(NULL);
		log = good;
		cases[i].play(&log);
		if (cases[i].part)
			journal_verify_part(verifier);
		feed(&log, verifier);
		const struct journal_report *report = journal_verify_end(verifier);
		assert_int_equal(report->verdict, cases[i].verdict);
		assert_int_equal(report->finding_count, cases[i].verdict ? 1 : 0);
		assert_int_equal(report->pruned, cases[i].pruned);
		assert_int_equal(report->bare, cases[i].bare);
		if (cases[i].verdict)
			assert_int_equal(report->findings[0].seq, FIRST_END + 1);
		struct buffer limits;
		buffer_init(&limits, 4096);
		journal_limits_print(report, &limits);
		if (!strstr(buffer_text(&limits), cases[i].text))
			fail_msg("%s", buffer_text(&limits));
		buffer_finish(&limits);
		journal_verifier_destroy(&verifier);
	}
}

// An archive that is not there: what follows is checked from the tree that is kept with the next segment, and only
// then.
static void test_gap(void **state)
{
	(void)state;
	for (int kept = 0; kept < 2; kept++) {
		struct journal_verifier *verifier = sample_verifier(NULL);
		journal_expect_bare(verifier);
		for (size_t i = 0; i < good.segment_count; i++) {
			const struct sample_segment *segment = &good.segments[i];
			journal_verify_segment(verifier, &(struct journal_segment){
								 .number = segment->number,
								 .first = segment->first,
								 .key = segment->signer.key,
								 .certificate = segment->certificate,
								 .before = kept ? &segment->before : NULL,
							 });
			if (i == 1)
				journal_verify_gap(verifier, FIRST_END, SECOND_END);
			for (size_t j = segment->first; i != 1 && j < (i < 2 ? segment[1].first : SIZE); j++) {
				struct sample_entry entry = good.entries[j];
				entry.leaf.bytes[0] ^= j == 50; // is found only if the tree is known
				journal_verify_entry(verifier, j, NULL, 0, &entry.leaf);
			}
		}
		journal_verify_checkpoint(verifier, good.heads[good.head_count - 1].note);
		const struct journal_report *report = journal_verify_end(verifier);
		assert_int_equal(report->finding_count, kept ? 2 : 1);
		assert_int_equal(report->findings[0].verdict, JOURNAL_ARCHIVE_MISSING);
		assert_int_equal(report->findings[0].seq, FIRST_END);
		assert_int_equal(report->verdict, kept ? JOURNAL_MODIFIED : JOURNAL_ARCHIVE_MISSING);
		assert_int_equal(report->signed_entries, FIRST_END);
		journal_verifier_destroy(&verifier);
	}
}

// What outsiders remember that is not this log's, or not signed.
static void test_memories(void **state)
{
	static const struct {
		const char *what;
		unsigned size;
		bool other_key, other_root, other_log;
		int verdict;
	} cases[] = {
		{"as it was", REMEMBERED, false, false, false, JOURNAL_HOLDS},
		{"at the end", SIZE, false, false, false, JOURNAL_HOLDS},
		{"at the beginning", 0, false, false, false, JOURNAL_WRONG_KEY}, // by a key that came later
		{"between two segments, by the later key", SECOND_END, false, false, false, JOURNAL_HOLDS},
		{"by a key that came later", FIRST_END, false, false, false, JOURNAL_WRONG_KEY},
		{"by another key", REMEMBERED, true, false, false, JOURNAL_BAD_SIGNATURE},
		{"another root", REMEMBERED, false, true, false, JOURNAL_FORKED},
		{"another root by another key", REMEMBERED, true, true, false, JOURNAL_FORKED},
		{"more", SIZE + 1, false, false, false, JOURNAL_TRUNCATED},
		{"another log", REMEMBERED, false, false, true, JOURNAL_FORKED},
	};
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct journal_verifier *verifier = sample_verifier(NULL);
		struct note_signer signer = sample_newest(&good)->signer;
		struct checkpoint head = {.origin = SAMPLE_ORIGIN, .size = cases[i].size};
		struct tree tree = {0};
		struct buffer note;
		char text[SAMPLE_NOTE];
		for (unsigned j = 0; j < cases[i].size; j++)
			tree_append(&tree, &good.entries[j < SIZE ? j : 0].leaf, NULL, NULL);
		tree_root(&tree, &head.root);
		head.root.bytes[0] ^= cases[i].other_root;
		head.origin[0] = cases[i].other_log ? 'x' : head.origin[0];
		if (cases[i].other_key)
			assert_int_equal(note_key_make(&signer, NOTE_ED25519, SAMPLE_ORIGIN), STATUS_OK);
		buffer_init(&note, NOTE_BYTES);
		assert_int_equal(checkpoint_print(&head, &note), STATUS_OK);
		sample_sign_note(&note, &signer, text);
		assert_int_equal(journal_remember(verifier, text, "somebody", NULL), STATUS_OK);
		feed(&good, verifier);
		const struct journal_report *report = journal_verify_end(verifier);
		if ((int)report->verdict != cases[i].verdict) {
			sample_explain(report);
			fail_msg("%s: %d, not %d", cases[i].what, (int)report->verdict, cases[i].verdict);
		}
		journal_verifier_destroy(&verifier);
	}
	struct journal_verifier *verifier = sample_verifier(NULL);
	struct error error = {0};
	assert_int_equal(journal_remember(verifier, "nonsense", "somebody", &error), STATUS_INVALID_PARAMS);
	assert_true(error.message[0]);
	journal_verifier_destroy(&verifier);
}

static void expect_limits(const struct note_key *first_key, bool witness, const char *text)
{
	struct journal_verifier *verifier = sample_verifier(first_key);
	struct buffer limits;
	buffer_init(&limits, 4096);
	if (witness)
		journal_remember(verifier, remembered, "the witness", NULL);
	feed(&good, verifier);
	journal_limits_print(journal_verify_end(verifier), &limits);
	print_message("%s\n", buffer_text(&limits));
	assert_string_equal(buffer_text(&limits), text);
	buffer_finish(&limits);
	journal_verifier_destroy(&verifier);
}

#define WHO \
	"Without being noticed, somebody who can write the log's files and has its current key could have changed, " \
	"removed or " \
	"added entries from "
#define OLDER "or replaced the log by an older copy of it: nothing that somebody else keeps was compared with it."

static void test_limits(void **state)
{
	(void)state;
	expect_limits(NULL, false,
		      WHO "40 on, " OLDER " It could even be a different log: its first key was not compared with a "
			  "copy that is kept elsewhere.");
	expect_limits(&good.segments[0].signer.key, false, WHO "40 on, " OLDER);
	expect_limits(NULL, true,
		      WHO "60 on, or removed all that follow the first 60. Those are confirmed by what somebody else "
			  "keeps.");
}

// Whatever is fed in whatever order, nothing breaks, and more findings than are kept are counted.
static void test_nonsense(void **state)
{
	struct journal_verifier *verifier = sample_verifier(NULL);
	(void)state;
	journal_verify_checkpoint(verifier, good.heads[0].note);
	journal_verify_entry(verifier, 7, good.entries[7].bytes, good.entries[7].length, NULL);
	journal_verify_entry(verifier, 8, NULL, 0, NULL);
	journal_verify_gap(verifier, 9, UINT64_MAX);
	for (int i = 0; i < 300; i++)
		journal_verify_entry(verifier, 3, good.entries[3].bytes, good.entries[3].length, NULL);
	for (int i = 0; i < 300; i++)
		journal_verify_checkpoint(verifier, good.heads[1].note);
	feed(&good, verifier);
	const struct journal_report *report = journal_verify_end(verifier);
	assert_int_equal(report->verdict, JOURNAL_MODIFIED);
	assert_true(report->finding_count > 600);
	for (size_t i = 1; i < JOURNAL_FINDINGS; i++)
		assert_true(report->findings[i - 1].seq <= report->findings[i].seq);
	journal_verifier_destroy(&verifier);
	verifier = sample_verifier(NULL);
	journal_report_finding(verifier, JOURNAL_ARCHIVE_MISSING, 5, "the file %s", "x");
	feed(&good, verifier);
	report = journal_verify_end(verifier);
	assert_int_equal(report->verdict, JOURNAL_ARCHIVE_MISSING);
	assert_string_equal(report->findings[0].text, "the file x");
	journal_verifier_destroy(&verifier);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_attacks),  cmocka_unit_test(test_bits),   cmocka_unit_test(test_report),
		cmocka_unit_test(test_restart),  cmocka_unit_test(test_pruned), cmocka_unit_test(test_gap),
		cmocka_unit_test(test_memories), cmocka_unit_test(test_limits), cmocka_unit_test(test_nonsense),
	};
	return cmocka_run_group_tests(tests, make_log, NULL);
}
