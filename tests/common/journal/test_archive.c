/* Archives: written, named, read back; and every bit of one flipped, once as a fault of the disk would, and once by
 * somebody who makes its sum right again. Found each time, and as what it is. */
#include "common/journal/archive.h"
#include "tests/common/journal/sample_log.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FIRST_END = 2, SECOND_END = FIRST_END + 24, FILE_BYTES = 16384 };

static struct sample_log sample;
static char directory[] = "/tmp/exogpu-archive-XXXXXX";
static char paths[2][256];

static void write_archive(const struct sample_log *from, size_t number, bool pruned, char path[256])
{
	const struct sample_segment *one = &from->segments[number];
	struct journal_segment segment = {one->number, one->first, one->signer.key, one->certificate, NULL};
	struct archive_writer *writer = NULL;
	struct error error = {0};
	size_t head = 0;
	assert_int_equal(archive_writer_create(
				 &writer, &(struct archive_writer_params){directory, &segment, &one->before}, &error),
			 STATUS_OK);
	for (size_t i = one->first; i < one[1].first; i++) {
		const struct sample_entry *entry = &from->entries[i];
		if (pruned)
			assert_int_equal(archive_write_leaf(writer, &entry->leaf, &error), STATUS_OK);
		else
			assert_int_equal(archive_write_entry(writer, entry->bytes, entry->length, &error), STATUS_OK);
		for (; head < from->head_count && from->heads[head].size <= i + 1; head++)
			if (from->heads[head].size == i + 1)
				assert_int_equal(archive_write_checkpoint(writer, from->heads[head].note, &error),
						 STATUS_OK);
	}
	if (archive_writer_finish(&writer, path, 256, &error))
		fail_msg("%s", error.message);
	assert_null(writer);
}

static int make_archives(void **state)
{
	(void)state;
	if (!mkdtemp(directory))
		return -1;
	sample_rotate(&sample);
	sample_add(&sample, FIRST_END);
	sample_sign(&sample);
	sample_rotate(&sample);
	sample_add(&sample, 11);
	sample_sign(&sample);
	sample_add(&sample, SECOND_END - FIRST_END - 11);
	sample_sign(&sample);
	sample_rotate(&sample);
	write_archive(&sample, 0, false, paths[0]);
	write_archive(&sample, 1, false, paths[1]);
	return 0;
}

static int remove_archives(void **state)
{
	(void)state;
	unlink(paths[0]);
	unlink(paths[1]);
	return rmdir(directory); // nothing unfinished is left
}

static void count_entry(void *context, const struct journal_entry *entry)
{
	uint64_t *next = context;
	assert_int_equal(entry->seq, *next);
	assert_string_equal(entry->action, "a.b");
	++*next;
}

static void test_chain(void **state)
{
	struct journal_verifier *verifier = sample_verifier(&sample.segments[0].signer.key);
	struct archive_name *names;
	size_t count;
	uint64_t next = 0;
	struct stat stat_of;
	(void)state;
	assert_int_equal(archive_list(directory, &names, &count, NULL), STATUS_OK);
	assert_int_equal(count, 2);
	assert_string_equal(names[0].path, paths[0]);
	assert_string_equal(names[1].path, paths[1]);
	assert_true(names[0].first == 0 && names[0].last == FIRST_END - 1);
	assert_true(names[1].first == FIRST_END && names[1].last == SECOND_END - 1);
	assert_int_equal(stat(names[1].path, &stat_of), 0);
	assert_int_equal(stat_of.st_mode & 0777, 0600);
	for (size_t i = 0; i < count; i++)
		assert_int_equal(archive_verify(names[i].path, verifier, count_entry, &next, NULL), STATUS_OK);
	const struct journal_report *report = journal_verify_end(verifier);
	sample_explain(report);
	assert_int_equal(report->verdict, JOURNAL_HOLDS);
	assert_int_equal(next, SECOND_END);
	assert_int_equal(report->signed_entries, SECOND_END);
	assert_int_equal(report->segments, 2);
	journal_verifier_destroy(&verifier);
	free(names);
}

// The second by itself holds as a part, and not as a whole log.
static void test_alone(void **state)
{
	(void)state;
	for (int part = 0; part < 2; part++) {
		struct journal_verifier *verifier = sample_verifier(NULL);
		if (part)
			journal_verify_part(verifier);
		assert_int_equal(archive_verify(paths[1], verifier, NULL, NULL, NULL), STATUS_OK);
		const struct journal_report *report = journal_verify_end(verifier);
		assert_int_equal(report->verdict, part ? JOURNAL_HOLDS : JOURNAL_ARCHIVE_MISSING);
		assert_int_equal(report->entries, SECOND_END - FIRST_END);
		journal_verifier_destroy(&verifier);
	}
}

static void test_order(void **state)
{
	struct journal_verifier *verifier = sample_verifier(NULL);
	(void)state;
	archive_verify(paths[1], verifier, NULL, NULL, NULL);
	archive_verify(paths[0], verifier, NULL, NULL, NULL);
	assert_int_equal(journal_verify_end(verifier)->verdict, JOURNAL_MODIFIED);
	journal_verifier_destroy(&verifier);
}

static size_t load(const char *path, uint8_t bytes[FILE_BYTES])
{
	FILE *file = fopen(path, "re");
	assert_non_null(file);
	size_t length = fread(bytes, 1, FILE_BYTES, file);
	assert_true(length > 100 && length < FILE_BYTES);
	fclose(file);
	return length;
}

static void sum(uint8_t *bytes, size_t length)
{
	assert_int_equal(EVP_Digest(bytes, length - 32, bytes + length - 32, NULL, EVP_sha256(), NULL), 1);
}

// The verdict on a file of these bytes: after the first archive, or alone.
static enum journal_verdict judge(const uint8_t *bytes, size_t length, bool alone)
{
	static int file = -1;
	static char path[300];
	struct journal_verifier *verifier = sample_verifier(NULL);
	if (file < 0) {
		snprintf(path, sizeof(path), "%s/flipped", directory);
		file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		assert_true(file >= 0);
	}
	assert_int_equal(pwrite(file, bytes, length, 0), (ssize_t)length);
	assert_int_equal(ftruncate(file, (off_t)length), 0);
	if (alone)
		journal_verify_part(verifier);
	else
		assert_int_equal(archive_verify(paths[0], verifier, NULL, NULL, NULL), STATUS_OK);
	assert_int_equal(archive_verify(path, verifier, NULL, NULL, NULL), STATUS_OK);
	enum journal_verdict verdict = journal_verdict_of(journal_verify_end(verifier));
	journal_verifier_destroy(&verifier);
	return verdict;
}

// What a byte of the file belongs to.
enum region { BEGIN, NUMBERS, KEY, CERTIFICATE, PEAKS, RECORD, ENTRY, HEAD, SUM, REGIONS };

static uint32_t u32(const uint8_t *bytes)
{
	return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

static void mark(uint8_t *regions, size_t *at, size_t length, enum region region)
{
	memset(regions + *at, (int)region, length);
	*at += length;
}

static void map(const uint8_t *bytes, size_t length, uint8_t regions[FILE_BYTES])
{
	size_t at = 0;
	mark(regions, &at, 16, BEGIN);
	mark(regions, &at, 16, NUMBERS);
	mark(regions, &at, 4 + u32(bytes + at), KEY);
	mark(regions, &at, 4 + u32(bytes + at), CERTIFICATE);
	mark(regions, &at, tree_peaks(FIRST_END) * 32, PEAKS);
	while (at < length - 32) {
		uint32_t size = u32(bytes + at + 1);
		enum region region = bytes[at] == ARCHIVE_CHECKPOINT ? HEAD : ENTRY;
		mark(regions, &at, 5, RECORD);
		mark(regions, &at, size, region);
	}
	assert_int_equal(at, length - 32);
	mark(regions, &at, 32, SUM);
}

static void test_bits(void **state)
{
	static const char *const names[REGIONS] = {"begin",  "numbers", "key",  "certificate", "peaks",
						   "record", "entry",   "head", "sum"};
	// Which verdicts are right where the sum was made right again.
	static const unsigned right[REGIONS] = {
		[BEGIN] = 1 << 10 | 1 << 11, [NUMBERS] = 1 << 10 | 1 << 14 | 1 << 15,
		[KEY] = 1 << 10 | 1 << 14,   [CERTIFICATE] = 1 << 10 | 1 << 13 | 1 << 14,
		[PEAKS] = 1 << 10,           [RECORD] = 1 << 10 | 1 << 11,
		[ENTRY] = 1 << 10,           [HEAD] = 1 << 13,
	};
#ifdef __SANITIZE_ADDRESS__ // each fifth bit there: all eight of a byte, in turn
	enum { STEP = 5 };
#else
	enum { STEP = 1 };
#endif
	static uint8_t bytes[FILE_BYTES], regions[FILE_BYTES];
	unsigned seen[REGIONS] = {0}, count[REGIONS] = {0};
	(void)state;
	size_t length = load(paths[1], bytes);
	map(bytes, length, regions);
	assert_int_equal(judge(bytes, length, true), JOURNAL_HOLDS);
	assert_int_equal(judge(bytes, length, false), JOURNAL_HOLDS);
	for (size_t bit = 0; bit < length * 8; bit += STEP) {
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		enum journal_verdict verdict = judge(bytes, length, true);
		if (verdict != JOURNAL_MODIFIED && verdict != JOURNAL_TRUNCATED)
			fail_msg("bit %zu, of %s: %d", bit, names[regions[bit / 8]], (int)verdict);
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	for (size_t bit = 0; bit < (length - 32) * 8; bit += STEP) {
		enum region region = (enum region)regions[bit / 8];
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		sum(bytes, length);
		// What the head says of keys can be judged only after the archive before.
		enum journal_verdict verdict = judge(bytes, length, region >= RECORD);
		seen[region] |= 1u << verdict;
		count[region]++;
		if (!(right[region] >> verdict & 1))
			fail_msg("bit %zu, of %s, with a right sum: %d", bit, names[region], (int)verdict);
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	print_message("of %zu bits each %d. flipped, all found; with a right sum:\n", length * 8, STEP);
	for (int i = 0; i < SUM; i++) {
		print_message("  %6u of %-12s verdicts", count[i], names[i]);
		for (unsigned verdict = 10; verdict < 17; verdict++)
			if (seen[i] >> verdict & 1)
				print_message(" %u", verdict);
		print_message("\n");
	}
}

// Cut anywhere, with and without a sum that fits.
static void test_cut(void **state)
{
	static uint8_t bytes[FILE_BYTES], cut[FILE_BYTES];
	(void)state;
	size_t length = load(paths[1], bytes);
	for (size_t size = 0; size < length; size++) {
		enum journal_verdict verdict = judge(bytes, size, true);
		assert_true(verdict == JOURNAL_TRUNCATED || verdict == JOURNAL_MODIFIED);
		if (size < 64)
			continue;
		memcpy(cut, bytes, size);
		sum(cut, size);
		verdict = judge(cut, size, true);
		// At the first head it is a shorter log that once was the newest; only what follows it can tell.
		assert_true(verdict == JOURNAL_TRUNCATED || verdict == JOURNAL_MODIFIED || !verdict);
		if (!verdict)
			print_message("cut at byte %zu, with a right sum, it is an older log\n", size);
	}
}

// Entries of which only the hashes are kept are told, since nothing here says who removed them; the file takes the
// place of the one with the entries.
static void test_pruned(void **state)
{
	struct journal_verifier *verifier = sample_verifier(NULL);
	uint64_t next = FIRST_END;
	char path[256];
	(void)state;
	write_archive(&sample, 1, true, path);
	assert_string_equal(path, paths[1]);
	assert_int_equal(archive_verify(paths[0], verifier, NULL, NULL, NULL), STATUS_OK);
	assert_int_equal(archive_verify(paths[1], verifier, count_entry, &next, NULL), STATUS_OK);
	const struct journal_report *report = journal_verify_end(verifier);
	assert_int_equal(report->verdict, JOURNAL_MODIFIED);
	assert_int_equal(report->finding_count, 1);
	assert_int_equal(report->signed_entries, SECOND_END);
	assert_int_equal(report->pruned, SECOND_END - FIRST_END);
	assert_int_equal(next, FIRST_END); // there is nothing to tell of them
	journal_verifier_destroy(&verifier);
	write_archive(&sample, 1, false, path);
}

// What does not verify when it is read back gets no name.
static void test_refused(void **state)
{
	const struct sample_segment *one = &sample.segments[1];
	struct journal_segment segment = {one->number, one->first, one->signer.key, one->certificate, NULL};
	const struct archive_writer_params params = {directory, &segment, &one->before};
	struct archive_writer *writer = NULL;
	struct error error = {0};
	struct archive_name *names;
	size_t count;
	char nowhere[300];
	(void)state;
	assert_int_equal(archive_writer_create(&writer, &params, &error), STATUS_OK);
	assert_int_equal(archive_writer_finish(&writer, NULL, 0, &error), STATUS_INVALID_PARAMS); // no entries
	error = (struct error){0};
	assert_int_equal(archive_writer_create(&writer, &params, &error), STATUS_OK);
	assert_int_equal(
		archive_write_entry(writer, sample.entries[FIRST_END].bytes, sample.entries[FIRST_END].length, &error),
		STATUS_OK);
	assert_int_equal(archive_writer_finish(&writer, NULL, 0, &error), STATUS_UNAVAILABLE); // no head
	assert_non_null(strstr(error.message, "does not verify"));
	error = (struct error){0};
	assert_int_equal(archive_writer_create(&writer, &params, &error), STATUS_OK);
	assert_int_equal(archive_write_entry(writer, sample.entries[3].bytes, ENTRY_BYTES + 1, &error),
			 STATUS_INVALID_PARAMS);
	archive_writer_destroy(&writer);
	assert_int_equal(archive_list(directory, &names, &count, NULL), STATUS_OK);
	assert_int_equal(count, 2);
	free(names);
	struct journal_verifier *verifier = sample_verifier(NULL);
	snprintf(nowhere, sizeof(nowhere), "%s/nowhere", directory);
	assert_int_equal(archive_verify(nowhere, verifier, NULL, NULL, NULL), STATUS_NOT_FOUND);
	assert_int_equal(archive_verify(directory, verifier, NULL, NULL, NULL), STATUS_UNAVAILABLE);
	assert_int_equal(archive_list(nowhere, &names, &count, NULL), STATUS_NOT_FOUND);
	journal_verifier_destroy(&verifier);
}

static int finish(void **state)
{
	char path[300];
	snprintf(path, sizeof(path), "%s/flipped", directory);
	unlink(path);
	return remove_archives(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_chain),   cmocka_unit_test(test_alone), cmocka_unit_test(test_order),
		cmocka_unit_test(test_bits),    cmocka_unit_test(test_cut),   cmocka_unit_test(test_pruned),
		cmocka_unit_test(test_refused),
	};
	return cmocka_run_group_tests(tests, make_archives, finish);
}
