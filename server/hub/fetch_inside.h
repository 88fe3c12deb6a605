/* The inside of the fetcher, for fetch*.c. Thread: the fetcher's, unless a function says otherwise. */
#pragma once
#include "common/base/buffer.h"
#include "server/hub/fetch.h"
#include "server/hub/fetch_part.h"
#include "server/hub/fetch_web.h"

// Something to be done on the fetcher's thread; embedded in its owner. `run` with fetcher NULL: it goes away, and the
// task is only to be freed.
struct fetch_task {
	struct fetch_task *next;
	void (*run)(struct fetch_task *task, struct fetcher *fetcher);
};

struct fetcher {
	struct fetcher_params params;
	pthread_t thread;
	bool started;
	struct web *web;
	struct fetch_job *jobs;  // oldest first
	struct search *searches; // under way
	pthread_mutex_t lock;
	// Under lock.
	struct fetch_task *first, *last;
	bool stop;
};
// The loop's thread.
void fetcher_post(struct fetcher *fetcher, struct fetch_task *task);

struct fetch_connection {
	struct fetch_job *job;
	struct web_question *question; // NULL: idle
	struct fetch_span span;        // that it fetches; end INT64_MAX: all that comes
	int64_t at;                    // the next byte
	bool led;                      // it was asked where a redirect led before
	bool from_start;               // what is there is of another file: the beginning is asked for next
	bool accepted;                 // its answer is of the file that is being fetched
};

struct fetch_weights; // of a job that fetches a repository of safetensors: fetch_weights.c

struct fetch_job {
	struct fetch_job *next;
	struct fetcher *fetcher;
	char model_id[FETCH_ID_BYTES];
	struct source source;
	char *token;
	struct models_room room;
	struct fetch_part part;
	char file[FETCH_PATH_BYTES];   // where the model will be
	struct fetch_weights *weights; // owned; NULL: no repository of safetensors
	unsigned number; // of a model in several files: which is fetched, from 1 on; they come one after the other
	char (*part_sha256s)[65];        // (source.parts), owned: what each should have; NULL before the first
	int64_t before_bytes, all_bytes; // of parts before; of all, 0: not known
	struct fetch_identity promised;  // what the hub says of the file
	char url[FETCH_URL_BYTES];       // where it is asked for; "" until it is found
	char led_to[FETCH_URL_BYTES];    // where that led, to spare the way; ""
	struct web_question *finding;
	struct buffer answer;           // of finding
	struct sampling_words sampling; // that the model's authors recommend beside the file
	char advice_sha256[65];         // of Ollama's layer that has them; ""
	bool advised;                   // it was asked for, or is nowhere
	unsigned advice_failures;
	int64_t advice_due_ms; // steady: it is not asked for before
	struct fetch_connection connections[LIMIT_FETCH_CONNECTIONS];
	bool running;    // one of LIMIT_FETCHES
	bool whole;      // it was there when the job began
	bool identified; // the answer of a connection has said what the file is
	bool single;     // the server knows no ranges
	bool ended;
	struct error fault; // of the file itself: it ends with this
	bool unusable;      // with `fault`: it is no model that is computed here
	int64_t due_ms;     // steady: nothing is asked before
	unsigned failures, retries, restarts;
	int64_t failed_at_bytes; // how much was there at the last failure
	char reason[200];
	int64_t told_ms, told_bytes; // progress, last
	double bytes_per_s;
};
void fetch_job_begin(struct fetch_job *job); // it may run now
void fetch_job_tick(struct fetch_job *job);
void fetch_job_destroy(struct fetch_job **job, bool forget);
// fetch_find.c: what is there to be fetched; ends in fetch_job_found or fetch_job_failed.
void fetch_job_find(struct fetch_job *job);
void fetch_job_found(struct fetch_job *job);
// Something broke: it is tried again after a while, or this is its end. `final`: it is.
void fetch_job_failed(struct fetch_job *job, const struct error *why, bool final, int64_t wait_s);
void fetch_job_end(struct fetch_job *job, const struct error *why); // NULL: all is there
unsigned fetch_job_files(const struct fetch_job *job); // that are fetched, as far as that is known; 0: it is one
// Begin with file `number` of a model in several. Errors: STATUS_OUT_OF_MEMORY.
enum status fetch_job_take_part(struct fetch_job *job, unsigned number, struct error *error);
// fetch_weights.c: `listing` is a hub's answer; begin with the first file. `picked`: nobody has asked for safetensors.
// Errors: those of hub_read_weights and hub_weights_check; STATUS_LIMIT_EXCEEDED.
enum status fetch_weights_begin(struct fetch_job *job, const char *listing, size_t length, bool picked,
				struct error *error);
void fetch_weights_destroy(struct fetch_weights **weights);
const char *fetch_weights_name(const struct fetch_job *job); // of the file that is fetched
unsigned fetch_weights_count(const struct fetch_weights *weights);
// Where file `number` of them will be. False: the path is too long.
bool fetch_weights_file(const struct fetch_weights *weights, unsigned number, char *path, size_t size);
// Set the job's URL, and the length and SHA-256 that the hub promised, to those of the file that is fetched. False: the
// URL is too long.
bool fetch_weights_find(struct fetch_job *job, const char *hub);
// Set the promised length and SHA-256, and forget what is on the disk of another file.
void fetch_weights_promise(struct fetch_job *job);
// The file is there: look at it, and at what comes after it. Errors, after which the job ends: those of convert_check
// and convert_tensor_files; STATUS_LIMIT_EXCEEDED (no room on the disk), STATUS_UNAVAILABLE (it is not what the hub
// says, or fits no device).
enum status fetch_weights_took(struct fetch_job *job, struct error *error);
void fetch_job_ask_advice(struct fetch_job *job); // where it was not asked for: fetch_advice.c
void fetch_tell_picked(struct fetch_job *job, const char *why);
// Turn an HTTP status that is no success into an error. *final is true if asking again changes nothing.
void fetch_explain(const struct fetch_headers *headers, const char *url, bool token, bool *final, struct error *error);
