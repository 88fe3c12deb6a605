/* The inside of parts*.c. Thread: the loop's. */
#pragma once
#include "server/instances/decide/silence.h"
#include "server/instances/instances_inside.h"
#include "server/library/shards.h"
#include "server/tenants/hop.h"

enum { PARTS_KEY_BYTES = 65, HOP_ID_BYTES = 32, PART_ROW_TIMES = 5, PART_PIECES = 2 };

enum hop_way { WAY_LOCAL, WAY_LINK, WAY_SERVER };

// A piece of a browser's weights, from when it is read until the browser has it.
struct part_piece {
	struct net_frame *frame; // NULL: not read yet
	bool used;
	size_t tensor;
	uint64_t offset, bytes; // of the tensor
	char sha256[65];
};

// A part, and the hop from it to the next.
struct part {
	struct parts *parts;
	unsigned index;
	unsigned first_stage, stage_count;
	char node_id[STORE_ID_BYTES];
	bool local; // on the server's own machine
	bool tab;   // a browser's: the server sends the weights
	enum part_step step;
	struct instance_worker *worker;
	bool died;                           // the worker, of itself
	uint64_t needs_bytes;                // of the file
	uint64_t fetch_bytes, fetched_bytes; // without those that its node already has
	uint64_t load_bytes, loaded_bytes;   // load_bytes 0: not told yet
	double load_ms, prompt_row_s;        // prompt_row_s: of a row of a prompt; 0: not told
	double row_s[PART_ROW_TIMES];        // of steps of 1, 2, 4, 8 and 16 rows; 0: not told
	char hop_id[HOP_ID_BYTES];
	enum hop_way way;
	struct hop *hop;    // WAY_SERVER
	unsigned ends;      // that are connected
	unsigned attempt;   // at connecting it
	unsigned adoptions; // that were asked for
	char *loaded;       // of a spared part: its loaded layers, as a text to compare; else NULL
	int was_stage;      // of a kept part: its first stage in the previous placement; -1: it is loaded
	bool moved_up;      // of a kept part: its number, or the number of parts, has changed
	// Of a browser's, while its weights are sent: the next piece, and those under way.
	char key[PARTS_KEY_BYTES];
	bool keeps; // it has weights of before, so that pieces are offered first
	size_t tensor;
	uint64_t tensor_at;
	struct shards_read *reading;
	unsigned reading_piece;
	struct part_piece pieces[PART_PIECES];
	struct silence_passing passing; // of the ring
	struct spot *spot;              // of a browser's: what of it is checked (parts_spot.c); may be NULL
	bool spot_owed;                 // it has loaded, and no request was checked since
};

// Something that was asked; freed by its answer, which comes once, also after the parts are gone.
struct parts_ask {
	struct parts_ask *next; // of parts->asks
	struct parts *parts;    // NULL: gone
	unsigned which;         // part
	unsigned piece;         // of a browser's weights
	// The attempt in which it was asked: once *attempts has another number, the answer counts no more. NULL: it
	// counts until the end.
	const unsigned *attempts;
	unsigned attempt;
};

struct parts {
	struct instance *instance;
	struct net_loop *loop;
	struct part part[PLACEMENT_STAGES]; // (count)
	unsigned count;
	enum parts_step step;
	unsigned broken;                // hops, since connecting began
	unsigned checks;                // begun, or given up because a hop is connected again
	struct shards_file *file;       // while parts fetch
	struct shards_file *draft_file; // while the last part's node fetches the draft model
	struct parts_ask *asks;
	struct net_timer limit, tell, keep_limit; // keep_limit: for the answers of kept parts
	struct net_timer watch;                   // of browsers that may keep what they are to pass on
	int64_t limit_ms;
	bool failed, proven; // proven: they were ready
	bool doubtful;       // failed, and the end of a worker may be why: not told yet
	bool adopting;       // they were, for a server before this one, and are to be told of this one
	bool spared;         // the remaining parts will be kept or ended
	unsigned kept;       // parts that the placement before had loaded
	double load_ms;      // until they were ready first; < 0: not known
	int faulty;          // the part; -1: none in particular
	struct error fault;
};

// parts.c
// attempts: of parts, or NULL. NULL: out of memory.
struct parts_ask *parts_ask_create(struct parts *parts, unsigned which, const unsigned *attempts);
// Frees it. False: nothing waits for this answer any more.
bool parts_ask_answered(struct parts_ask *ask, struct parts **parts, unsigned *which);
void parts_fail_at(struct parts *parts, unsigned part, const char *what, const struct error *error);
void parts_limit(struct parts *parts, int64_t ms); // of silence, from now on
void parts_limit_step(struct parts *parts);        // the same, as the step has it
void parts_open_worker(struct part *part);
void parts_advance(struct parts *parts);
void parts_set_ready(struct parts *parts);
enum status parts_make_key(char key[PARTS_KEY_BYTES]);
struct json *parts_load_params(const struct parts *parts, const struct part *part); // of instance.load
// Divide the instance's stages, one after the other, into parts.
void parts_divide(struct parts *parts);
// The parameters of a part's worker. devices: (part->stage_count), filled in; must stay valid as long as the result.
struct instance_worker_params parts_worker_params(struct part *part, const struct cluster_device **devices);
// Read the answer to instance.load or instance.adopt: (part->stage_count) memory sizes.
void parts_take_loaded(struct part *part, const struct json *result);
void parts_load(struct part *part); // instance.load

// parts_tab.c
// Tell a browser's worker of its layers and send it their weights; then load it.
void parts_tab_send(struct part *part);
void parts_tab_stop(struct part *part); // nothing is read for it any more

// Look from now on whether browsers pass on what they get; and no longer.
void parts_tab_watch(struct parts *parts);

// parts_fetch.c
void parts_fetch_over(struct parts *parts); // close the file if nobody needs it any more
// Find out which bytes the parts need; then parts without a worker download them. Errors: shards_open's.
enum status parts_plan(struct parts *parts, struct error *error);

// parts_draft.c
// Whether the instance's draft model goes to this part's worker: to the last one's, which chooses the tokens.
bool part_has_draft(const struct part *part);
// The part's own bytes are on its node: it also gets the draft model; then its worker is started.
void parts_fetch_draft(struct part *part);

// parts_adopt.c
void parts_adopt(struct parts *parts); // when all are there
void parts_adopt_kept(struct parts *parts);

// parts_keep.c
// Take over the unchanged parts of the previous placement, once the stages are divided into parts.
void parts_take_kept(struct parts *parts, struct parts *before);

// parts_ring.c
void parts_connect(struct parts *parts);
void parts_disconnect(struct parts *parts);
unsigned parts_unconnected(const struct parts *parts); // the first part whose hop is not there
