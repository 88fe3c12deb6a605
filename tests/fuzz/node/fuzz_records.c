/* Fuzz target: files that a node or a server finds in its data directory, where a disk, another program or a restored
 * backup may have left anything: the index of a model's pieces, the journal of a download, the registry of devices; and
 * a head of the audit log that somebody else has kept (--witness).
 *
 * The first byte says which: `i`, and `I` with a right sum behind it; `j`; `r`; `w`. What is taken keeps what its
 * header promises, and once written reads back to the same. */
#include "common/base/log.h"
#include "common/journal/verify.h"
#include "engine/device/registry.h"
#include "engine/node/models/models_index.h"
#include "server/hub/fetch_part.h"

#include <fcntl.h>
#include <ftw.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_SPARSE = 1 << 30 };

static char folder[] = "/dev/shm/exogpu-fuzz-XXXXXX", path[96], part_path[96], journal_path[96];

static void require(bool condition)
{
	if (!condition)
		abort();
}

static int remove_one(const char *name, const struct stat *info, int kind, struct FTW *where)
{
	(void)info, (void)kind, (void)where;
	return remove(name);
}

static void remove_folder(void)
{
	nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void begin_once(void)
{
	static bool begun;
	if (begun)
		return;
	begun = true;
	log_set_level(LOG_ERROR);
	require(mkdtemp(folder) && !atexit(remove_folder));
	snprintf(path, sizeof path, "%s/file", folder);
	snprintf(part_path, sizeof part_path, "%s.part", path);
	snprintf(journal_path, sizeof journal_path, "%s.journal", path);
}

static void put(const char *name, const uint8_t *bytes, size_t length)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	require(fd >= 0 && write(fd, bytes, length) == (ssize_t)length && !close(fd));
}

// ---- an index ----

static void check_index(const struct model_index *index)
{
	uint64_t end = 0;
	for (size_t i = 0; i < index->count; i++) {
		const struct model_span *at = &index->pieces[i].at;
		require(at->offset >= end && at->bytes && at->offset + at->bytes <= index->file_bytes);
		end = at->offset + at->bytes;
		const struct model_span gap = model_index_gap(index, at);
		require(!gap.bytes);
	}
	const struct model_span all = {.bytes = index->file_bytes};
	const struct model_span gap = model_index_gap(index, &all);
	require(gap.offset <= index->file_bytes && gap.bytes <= index->file_bytes - gap.offset);
}

static void read_index(const uint8_t *bytes, size_t size, bool right_sum)
{
	struct model_index index, again;
	uint8_t *all = malloc(size + MODEL_SHA256_BYTES);
	require(all != NULL);
	if (size)
		memcpy(all, bytes, size);
	if (right_sum)
		require(EVP_Digest(bytes, size, all + size, NULL, EVP_sha256(), NULL) == 1);
	put(path, all, size + (right_sum ? MODEL_SHA256_BYTES : 0));
	free(all);
	if (model_index_read(&index, path, NULL))
		return;
	check_index(&index);
	require(!model_index_write(&index, path, NULL) && !model_index_read(&again, path, NULL));
	require(again.count == index.count && again.file_bytes == index.file_bytes);
	model_index_finish(&again);
	model_index_finish(&index);
}

// ---- a download ----

static void read_journal(const uint8_t *bytes, size_t size)
{
	static struct fetch_part part;
	struct fetch_span next;
	const char *wanted = memmem(bytes, size, "bytes ", 6);
	char number[16] = "";
	if (wanted)
		snprintf(number, sizeof number, "%.*s", (int)((const char *)bytes + size - wanted - 6), wanted + 6);
	const long there = strtol(number, NULL, 10);
	put(journal_path, bytes, size);
	put(part_path, bytes, 0);
	require(!truncate(part_path, there > 0 && there < MOST_SPARSE ? there : 0));
	fetch_part_init(&part, path);
	int64_t end = 0, done = 0;
	for (size_t i = 0; i < part.count; i++) {
		require(part.spans[i].first >= end && part.spans[i].first < part.spans[i].end);
		end = part.spans[i].end;
		done += part.spans[i].end - part.spans[i].first;
	}
	require(part.count <= LIMIT_FETCH_SPANS && done == part.done_bytes);
	require(!part.count || end <= part.identity.bytes);
	if (fetch_part_next(&part, NULL, 0, 4096, &next))
		require(next.first < next.end && (part.identity.bytes < 0 || next.end <= part.identity.bytes));
	else
		require(fetch_part_complete(&part));
	fetch_part_finish(&part);
}

// ---- a registry ----

static void read_registry(const uint8_t *bytes, size_t size)
{
	struct device_table *table, *again;
	struct buffer text, second;
	put(path, bytes, size);
	require(!registry_load(&table, path, NULL) && table->node_id[0]);
	buffer_init(&text, LIMIT_REGISTRY_BYTES);
	buffer_init(&second, LIMIT_REGISTRY_BYTES);
	if (!registry_print(table, &text)) {
		put(path, text.data, text.length);
		require(!registry_load(&again, path, NULL) && !registry_print(again, &second));
		require(again->count == table->count && !strcmp(again->node_id, table->node_id));
		require(second.length == text.length && !memcmp(second.data, text.data, text.length));
		device_table_destroy(&again);
	}
	device_table_destroy(&table);
	buffer_finish(&text);
	buffer_finish(&second);
}

// ---- a head ----

static void read_witness(const uint8_t *bytes, size_t size)
{
	struct journal_verifier *verifier = NULL;
	struct error error = {0};
	char *text = malloc(size + 1);
	require(text && !journal_verifier_create(&verifier, NULL, NULL));
	if (size)
		memcpy(text, bytes, size);
	text[size] = 0;
	require(!journal_remember(verifier, text, "a file", &error) == !error.message[0]);
	const struct journal_report *report = journal_verify_end(verifier);
	require(!report->verdict == !report->finding_count);
	journal_verifier_destroy(&verifier);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!size)
		return 0;
	begin_once();
	if (data[0] == 'i' || data[0] == 'I')
		read_index(data + 1, size - 1, data[0] == 'I');
	else if (data[0] == 'j')
		read_journal(data + 1, size - 1);
	else if (data[0] == 'r')
		read_registry(data + 1, size - 1);
	else if (data[0] == 'w')
		read_witness(data + 1, size - 1);
	return 0;
}
