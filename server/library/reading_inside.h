/* The reading of model files, as its own files see it: reading.c has the jobs and what is done with one file,
 * reading_look.c opens files and looks into them, reading_parts.c makes one file of models in several files, and of
 * directories, reading_folder.c checks directories that were fetched. Not for others. Thread: the one of the jobs,
 * where nothing else is said. */
#pragma once
#include "common/work/jobs.h"
#include "server/hub/model_header.h"
#include "server/library/reading.h"

#include <stdatomic.h>
#include <sys/types.h>

enum { READING_PROGRESS_MS = 250 };

struct reading_job {
	struct job job;                   // first member
	struct reading_job *next, **link; // of its reading; the loop's
	struct reading *reading;
	char *path, *place; // place: NULL if the file stays
	char sha256[65];
	struct sampling_words sampling;
	unsigned parts;                   // 0: it is one file
	char (*part_sha256s)[65];         // (parts), of those that were fetched; NULL: they are by their paths
	uint64_t before_bytes, all_bytes; // of progress; all 0: the file's
	bool folder;                      // of safetensors, which is converted
	bool fetched;                     // it was fetched for `place`
	bool converting;                  // that is what it does now
	char title[129];
	bool hash_only, delete_only;
	bool again;            // it gave way to others, and is done after them
	bool cut_off;          // by a stop
	atomic_bool forgotten; // nobody waits for it any more
	struct reading_result result;
};

struct reading_file {
	const char *path;
	int fd;
	uint64_t bytes;
	int64_t modified_ns;
};

// reading.c
bool reading_given_up(struct reading_job *job);
void reading_tell(const struct reading_job *job, uint64_t done_bytes, uint64_t total_bytes); // progress
// Its SHA-256, in hexadecimal. Errors: STATUS_PENDING (job->again: it gives way), STATUS_UNAVAILABLE, those of OpenSSL.
enum status reading_hash(struct reading_job *job, const struct reading_file *file, char sha256[65],
			 struct error *error);
enum status reading_compare(const char *promised, const char *sha256, struct error *error);
// On disk for good, under its own name.
enum status reading_move(const struct reading_file *file, const char *place, struct error *error);

// reading_look.c
enum status reading_open(const char *path, struct reading_file *file,
			 struct error *error); // file->fd: to be closed, if >= 0
// What the file says of the model, into a struct reading_result: a callback of model_header_read.
enum status reading_describe(void *result, const uint8_t *bytes, const struct gguf *gguf, struct error *error);

// reading_folder.c: the files that were fetched for `place`, each compared with what its hub says, in a folder of
// their own, whose path becomes job->path. Errors: STATUS_UNAVAILABLE; by name.
enum status reading_settle_folder(struct reading_job *job, struct error *error);

// reading_parts.c
void reading_put_together(struct reading_job *job, struct reading_result *result);
