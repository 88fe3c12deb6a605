/* The thread that fetches: downloads of model files, and searches at hubs. A download
 * finds its file (it picks one of a repository, or the model's layer of Ollama's
 * manifest), asks for the authors' sampling defaults, and fetches the file over
 * several connections into FILE.part. It continues after any interruption and ends
 * when every byte is there; reading.h hashes and inspects the file. Of a repository
 * of safetensors all files that a conversion reads are fetched, into the folder
 * FILE.files. Partial downloads survive a stop and a kill. Thread: the loop's, for
 * every function and callback here. */
#pragma once
#include "common/work/outbox.h"
#include "server/hub/models_fit.h"
#include "server/hub/sampling.h"
#include "server/hub/source.h"

#include <stdint.h>

struct fetcher;

enum { FETCH_ID_BYTES = 32 };

enum fetch_step { FETCH_WAITING, FETCH_FINDING, FETCH_DOWNLOADING };

struct fetch_progress {
	char model_id[FETCH_ID_BYTES];
	enum fetch_step step;
	uint64_t done_bytes, total_bytes; // total 0: not known
	double bytes_per_s;               // negative: not known
	unsigned connections, retries;
	char reason[200]; // why it waits; ""
};

struct fetch_result {
	char model_id[FETCH_ID_BYTES];
	enum status status; // STATUS_OK: the whole file is in `part`
	struct error error;
	bool unusable; // with an error: what is there is no model that is computed here, and is of no use
	bool folder;   // `part` is fetch_folder_path()'s, with files that are not hashed yet (NAME.part) and texts
	char part[4097 + 16];
	char sha256[65]; // what it should have; "" where nobody says
	unsigned parts;  // of a model in several files, which are fetch_part_file()'s, with .part behind; 0: of one
	const char (*part_sha256s)[65]; // (parts), good during the call
	struct sampling_words sampling; // that the hub has beside it
};

struct fetcher_params {
	struct outbox *outbox;
	const char *hub_url, *ollama_url; // NULL: everybody's
	void (*picked)(void *context, const char *model_id, const struct source *source, const char *why);
	void (*progress)(void *context, const struct fetch_progress *progress);
	void (*done)(void *context, const struct fetch_result *result);
	void *context;
};
enum status fetcher_create(struct fetcher **out, const struct fetcher_params *params, struct error *error);
void fetcher_stop(struct fetcher *fetcher);     // soon
void fetcher_destroy(struct fetcher **fetcher); // before the outbox

struct fetch_request {
	const char *model_id, *file; // file: where it will be
	const struct source *source;
	const char *access_token; // NULL: none
	struct models_room room;  // for what is picked
};
// Where part `number` of a model in parts will be, that will itself be at `file`. False: the path is too long.
bool fetch_part_file(const char *file, unsigned number, char *path, size_t size);
// The folder of the files that a model of safetensors, which will itself be at `file`, is made of: while they come; or,
// `whole`, once all are there and were compared with what the hub says. False: the path is too long.
bool fetch_folder_path(const char *file, bool whole, char *path, size_t size);
void fetch_folder_delete(const char *path); // with the files in it; any thread that may wait for the disk
// Errors: STATUS_OUT_OF_MEMORY.
enum status fetcher_start(struct fetcher *fetcher, const struct fetch_request *request, struct error *error);
// Ends a download without further callbacks. With `forget`, its partial files are deleted.
void fetcher_cancel(struct fetcher *fetcher, const char *model_id, const char *file, bool forget);
