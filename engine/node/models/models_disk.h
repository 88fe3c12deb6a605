/* A model's file in the node's cache and its index, for the thread that reads, hashes and writes them; see models.h.
 *
 * Who uses a file has it locked, shared: a worker by the descriptor that it was given, a fetch from model_disk_open to
 * model_disk_close. So a file that is not locked may be deleted for another, also one of an earlier start of the node.
 * Thread: that of the cache; one call at a time for each model. */
#pragma once
#include "engine/node/models/models_index.h"

#include <stdatomic.h>
#include <sys/types.h>

struct model_disk {
	char folder[4096], part[4200], index_path[4200];
	struct model_index index; // of the file of this device, number and time, once `loaded`
	dev_t device;
	ino_t number;
	struct timespec written; // when the file was changed last, by us
	bool loaded;
	int fd;           // -1 but between open and close
	int64_t saved_ms; // steady clock: of the index
};

// The wanted spans, and those of them that are missing.
struct model_wanted {
	uint64_t file_bytes;
	struct model_span *spans; // (count), sorted, joined
	size_t count;
	const atomic_bool *given_up;
	_Atomic uint64_t *here;  // grows: bytes that are there and hold
	struct model_span *gaps; // (gap_count), missing spans, cut into pieces; the caller frees them
	size_t gap_count;
	uint64_t lacking; // bytes
};

void model_disk_init(struct model_disk *disk, const char *folder, const char *model_id);
void model_disk_finish(struct model_disk *disk);
// Open the file (a file of another length is begun again), check the wanted spans, and make room on the disk for the
// missing ones, for which other models without a worker are deleted, the least recently used first. Errors:
// STATUS_LIMIT_EXCEEDED (no room), STATUS_UNAVAILABLE (the disk; or cancelled), STATUS_OUT_OF_MEMORY.
enum status model_disk_open(struct model_disk *disk, struct model_wanted *wanted, struct error *error);
// Check and write a piece. Errors: STATUS_INVALID_REQUEST (its hash is another), STATUS_LIMIT_EXCEEDED (the disk is
// full), STATUS_UNAVAILABLE, STATUS_OUT_OF_MEMORY.
enum status model_disk_put(struct model_disk *disk, const struct model_piece *piece, const uint8_t *bytes,
			   struct error *error);
// Read bytes that were checked since the node started, of a file that may be open or not. Errors: STATUS_NOT_FOUND
// (some of them are missing).
enum status model_disk_get(const struct model_disk *disk, const struct model_span *at, uint8_t *bytes,
			   struct error *error);
// Write the index. Errors: as model_disk_put.
enum status model_disk_close(struct model_disk *disk, struct error *error);
// Delete it. The bytes that the disk gets back, once no worker has it any more.
uint64_t model_disk_forget(struct model_disk *disk);
