/* See fetch_inside.h: a repository of safetensors, of which all files that a conversion reads are fetched into a
 * folder, one after the other. Texts come first, and config.json before all others: what is not converted here is
 * refused before its tensors are asked for. Then come the files that the index names. Whether the disk has room is
 * looked at before: for all of them, and for the model that is made of them while they are still there. A text is
 * complete once it has its own name; a file with tensors stays NAME.part with its journal until it is hashed. */
#include "common/text/size_text.h"
#include "server/convert/bounded.h"
#include "server/convert/convert.h"
#include "server/hub/fetch_inside.h"
#include "server/hub/hub.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
	const char *name;
	uint64_t most;
} texts[] = {
	{"config.json", CONVERT_CONFIG_BYTES},
	{"model.safetensors.index.json", CONVERT_JSON_BYTES},
	{"tokenizer.json", CONVERT_JSON_BYTES},
	{"tokenizer_config.json", CONVERT_CONFIG_BYTES},
	{"generation_config.json", CONVERT_CONFIG_BYTES},
	{"chat_template.jinja", LIMIT_JINJA_TEMPLATE_BYTES},
};
enum { TEXTS = sizeof texts / sizeof *texts, FILES_MOST = TEXTS + LIMIT_MODEL_PARTS };
static const char single[] = "model.safetensors";

struct fetch_weights {
	struct hub_weights there;                  // what the repository has
	const struct hub_entry *files[FILES_MOST]; // (count) what is fetched of it, in this order
	unsigned count, text_count;
	bool picked;
	char folder[FETCH_PATH_BYTES];
};

// ---- the folder ----

bool fetch_folder_path(const char *file, bool whole, char *path, size_t size)
{
	const int length = snprintf(path, size, "%s.%s", file, whole ? "folder" : "files");
	return length > 0 && (size_t)length < size;
}

void fetch_folder_delete(const char *path)
{
	DIR *directory = opendir(path);
	if (!directory)
		return;
	for (struct dirent *entry; (entry = readdir(directory));)
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			unlinkat(dirfd(directory), entry->d_name, 0);
	closedir(directory);
	rmdir(path);
}

bool fetch_weights_file(const struct fetch_weights *weights, unsigned number, char *path, size_t size)
{
	const int length = snprintf(path, size, "%s/%s", weights->folder, weights->files[number - 1]->name);
	return length > 0 && (size_t)length + sizeof ".journal.new" < size;
}

// ---- beginning ----

void fetch_weights_destroy(struct fetch_weights **pointer)
{
	struct fetch_weights *weights = *pointer;
	*pointer = NULL;
	if (!weights)
		return;
	hub_weights_finish(&weights->there);
	free(weights);
}

// An index is not read where there is one file.
static enum status list_texts(struct fetch_weights *weights, struct error *error)
{
	const bool alone = hub_weights_find(&weights->there, single) != NULL;
	for (size_t i = 0; i < TEXTS; i++) {
		const struct hub_entry *entry = hub_weights_find(&weights->there, texts[i].name);
		char before[FETCH_PATH_BYTES + 64]; // as another commit of the repository may have had it
		snprintf(before, sizeof before, "%s/%s", weights->folder, texts[i].name);
		unlink(before);
		if (!entry || (alone && !strncmp(texts[i].name, single, sizeof single - 1)))
			continue;
		if (entry->bytes > texts[i].most)
			return error_set(error, STATUS_LIMIT_EXCEEDED, "%s has %s; the most is %s", entry->name,
					 SIZE_TEXT(entry->bytes), SIZE_TEXT(texts[i].most));
		weights->files[weights->count++] = entry;
	}
	weights->text_count = weights->count;
	return STATUS_OK;
}

enum status fetch_weights_begin(struct fetch_job *job, const char *listing, size_t length, bool picked,
				struct error *error)
{
	struct fetch_weights *weights = calloc(1, sizeof *weights);
	if (!weights || !fetch_folder_path(job->file, false, weights->folder, sizeof weights->folder)) {
		free(weights);
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a download");
	}
	weights->picked = picked;
	enum status status = hub_read_weights(listing, length, &weights->there, error);
	if (!status)
		status = hub_weights_check(&weights->there, error);
	if (!status)
		status = list_texts(weights, error);
	if (!status && mkdir(weights->folder, 0700) && errno != EEXIST)
		status = error_errno(error, STATUS_UNAVAILABLE, errno, "%s cannot be made", weights->folder);
	if (status) {
		fetch_weights_destroy(&weights);
		return status;
	}
	job->weights = weights;
	job->advised = true;
	return fetch_job_take_part(job, 1, error);
}

// ---- the file that is fetched ----

static const struct hub_entry *entry_of(const struct fetch_job *job)
{
	return job->weights->files[job->number - 1];
}

const char *fetch_weights_name(const struct fetch_job *job)
{
	return entry_of(job)->name;
}

unsigned fetch_weights_count(const struct fetch_weights *weights)
{
	return weights->count;
}

// What is there of another one, or of one that cannot be told from another, is not gone on with.
void fetch_weights_promise(struct fetch_job *job)
{
	const struct hub_entry *entry = entry_of(job);
	struct fetch_identity *promised = &job->promised, *there = &job->part.identity;
	promised->bytes = (int64_t)entry->bytes;
	snprintf(promised->sha256, sizeof promised->sha256, "%s", entry->sha256);
	if (there->bytes >= 0 &&
	    (there->bytes != promised->bytes || !promised->sha256[0] || strcmp(there->sha256, promised->sha256) != 0))
		fetch_part_reset(&job->part);
}

bool fetch_weights_find(struct fetch_job *job, const char *hub)
{
	const struct hub_entry *entry = entry_of(job);
	struct source source = job->source;
	snprintf(source.file, sizeof source.file, "%s", entry->name);
	job->promised.bytes = (int64_t)entry->bytes; // also after it began anew
	snprintf(job->promised.sha256, sizeof job->promised.sha256, "%s", entry->sha256);
	return hub_file_url(hub, &source, job->url, sizeof job->url);
}

// ---- texts ----

static enum status check_text(const struct fetch_job *job, struct error *error)
{
	struct buffer text;
	unsigned char digest[32];
	char name[HUB_NAME_BYTES + 8], sha256[65];
	const struct hub_entry *entry = entry_of(job);
	if (!entry->sha256[0])
		return STATUS_OK;
	snprintf(name, sizeof name, "%s.part", entry->name);
	buffer_init(&text, CONVERT_JSON_BYTES);
	enum status status = bounded_text(job->weights->folder, name, &text, error);
	if (!status && EVP_Digest(text.data, text.length, digest, NULL, EVP_sha256(), NULL) != 1)
		status = error_set(error, STATUS_INTERNAL, "SHA-256 is not available");
	for (size_t i = 0; i < sizeof digest && !status; i++)
		snprintf(sha256 + 2 * i, 3, "%02x", digest[i]);
	buffer_finish(&text);
	if (status || !strcmp(sha256, entry->sha256))
		return status;
	error_set(error, STATUS_UNAVAILABLE,
		  "%.100s: the file that came is wrong: its SHA-256 is %.16s..., not %.16s...", entry->name, sha256,
		  entry->sha256);
	error_hint(error, "add it again; if that does not help, something on the way changes it");
	return STATUS_UNAVAILABLE;
}

// It gets its own name.
static enum status take_text(struct fetch_job *job, struct error *error)
{
	char path[FETCH_PATH_BYTES];
	enum status status = check_text(job, error);
	fetch_part_finish(&job->part);
	if (status)
		unlink(job->part.path);
	else if (!fetch_weights_file(job->weights, job->number, path, sizeof path) || rename(job->part.path, path))
		status = error_errno(error, STATUS_UNAVAILABLE, errno, "%s cannot be written", job->part.path);
	unlink(job->part.journal);
	return status;
}

// ---- files with tensors ----

static int by_name(const void *a, const void *b)
{
	return strcmp(a, b);
}

static enum status add_tensors(struct fetch_weights *weights, uint64_t *bytes, struct error *error)
{
	unsigned count = 0;
	const struct hub_entry *entry;
	char(*names)[CONVERT_NAME_BYTES] = calloc(LIMIT_MODEL_PARTS, sizeof *names);
	enum status status = names ? convert_tensor_files(weights->folder, names, &count, error)
				   : error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a download");
	if (!status)
		qsort(names, count, sizeof *names, by_name); // an index has them by their tensors
	for (unsigned i = 0; i < count && !status; i++) {
		entry = hub_weights_find(&weights->there, names[i]);
		if (!entry) {
			status = error_set(error, STATUS_UNAVAILABLE,
					   "the index names %.100s, which this repository does not have", names[i]);
			continue;
		}
		weights->files[weights->count++] = entry;
		*bytes += entry->bytes; // below LIMIT_MODEL_PARTS times LIMIT_MODEL_FILE_GIB
	}
	free(names);
	return status;
}

static bool is_of(const struct fetch_weights *weights, const char *name)
{
	for (unsigned i = 0; i < weights->count; i++) {
		const size_t length = strlen(weights->files[i]->name);
		const char *end = name + length;
		if (!strncmp(name, weights->files[i]->name, length) &&
		    (!*end || !strcmp(end, ".part") || !strcmp(end, ".journal")))
			return true;
	}
	return false;
}

// The repository may have changed since the download began: files that are no longer its own are deleted.
static void delete_others(const struct fetch_weights *weights)
{
	DIR *directory = opendir(weights->folder);
	if (!directory)
		return;
	for (struct dirent *entry; (entry = readdir(directory));)
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
		    !is_of(weights, entry->d_name))
			unlinkat(dirfd(directory), entry->d_name, 0);
	closedir(directory);
}

// Of the files with tensors.
static int64_t bytes_on_disk(const struct fetch_weights *weights)
{
	int64_t bytes = 0;
	for (unsigned i = weights->text_count; i < weights->count; i++) {
		struct stat found;
		char file[FETCH_PATH_BYTES], path[FETCH_PATH_BYTES + 8];
		if (!fetch_weights_file(weights, i + 1, file, sizeof file))
			continue;
		snprintf(path, sizeof path, "%s.part", file);
		if (!stat(path, &found))
			bytes += (int64_t)found.st_blocks * 512;
	}
	return bytes;
}

// All files, and the model of the same size that is made of them.
static enum status check_disk(const struct fetch_job *job, uint64_t bytes, struct error *error)
{
	struct error why = {0};
	const int64_t wanted = 2 * (int64_t)bytes - bytes_on_disk(job->weights);
	const enum status status = fetch_part_check_room(job->weights->folder, wanted > 0 ? wanted : 0, &why);
	if (!status)
		return STATUS_OK;
	error_set(error, status, "%s", why.message);
	if (status == STATUS_LIMIT_EXCEEDED)
		error_hint(error,
			   "the files and the model that is made of them take %s together, until the files are "
			   "deleted; free space on the disk and add the model again",
			   SIZE_TEXT(2 * bytes));
	return status;
}

static enum status check_devices(const struct fetch_job *job, uint64_t bytes, struct error *error)
{
	const struct models_room *room = &job->room;
	if (!job->weights->picked || !room->known || models_fit_needed(bytes) <= room->devices)
		return STATUS_OK;
	error_set(error, STATUS_UNAVAILABLE, "the model has %s, and there is room for %s now", SIZE_TEXT(bytes),
		  SIZE_TEXT((uint64_t)room->devices));
	error_hint(error, "name its file to fetch it all the same: hf:owner/repo/model.safetensors");
	return STATUS_UNAVAILABLE;
}

// All texts are there.
static enum status take_tensors(struct fetch_job *job, struct error *error)
{
	uint64_t bytes = 0;
	char why[200];
	struct source source;
	struct fetch_weights *weights = job->weights;
	enum status status = add_tensors(weights, &bytes, error);
	if (!status)
		delete_others(weights);
	if (!status)
		status = check_devices(job, bytes, error);
	if (!status)
		status = check_disk(job, bytes, error);
	if (!status)
		status = source_pick(&job->source, single, &source, error);
	if (status)
		return status;
	job->source = source;
	job->all_bytes = (int64_t)bytes;
	for (unsigned i = 0; i < weights->text_count; i++)
		job->all_bytes += (int64_t)weights->files[i]->bytes;
	snprintf(why, sizeof why,
		 "safetensors, %s in %u file%s, converted on this server; until then they and the model take %s of "
		 "the disk",
		 SIZE_TEXT(bytes), weights->count - weights->text_count,
		 weights->count - weights->text_count == 1 ? "" : "s", SIZE_TEXT(2 * bytes));
	fetch_tell_picked(job, why);
	return STATUS_OK;
}

enum status fetch_weights_took(struct fetch_job *job, struct error *error)
{
	struct fetch_weights *weights = job->weights;
	const struct hub_entry *entry = entry_of(job);
	if (job->part.identity.bytes != (int64_t)entry->bytes)
		return error_set(error, STATUS_UNAVAILABLE, "%.100s has another length than the hub says", entry->name);
	if (job->number > weights->text_count)
		return STATUS_OK;
	enum status status = take_text(job, error);
	if (status)
		return status;
	if (job->number == 1 || job->number == weights->text_count) {
		status = convert_check(weights->folder, error);
		job->unusable = status && status != STATUS_OUT_OF_MEMORY;
	}
	if (!status && job->number == weights->text_count) {
		status = take_tensors(job, error);
		job->unusable = status && !bytes_on_disk(weights);
	}
	return status;
}
