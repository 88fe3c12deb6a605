/* Prefixes that move between the workers of two instances of one model: one computes a prompt, the other answers.
 *
 *     generate.start with `give`  -> driver: a job for the prompt's whole pages; after each step the new ones are read
 *                                    -> thread: channel -> node, link, node
 *     prefix.take                 -> thread: channel -> driver, between two steps: pages are written and published
 *
 * A channel (worker.channel) is one stream of bytes, in messages copy.data. All numbers are u32, little-endian:
 *
 *     PREFIX_VERSION, layers, bytes of a page in a layer (stage_page_bytes), 0
 *     groups: count (1 to PREFIX_GROUP_PAGES), tokens (count, STAGE_PAGE_TOKENS), and for each layer the pages (count)
 *     at first, groups of pages that the taker has (taker_tokens): count + PREFIX_BARE, and the tokens alone
 *     0, the end
 *
 * Every move has a thread for its socket and memory for one group, which belongs to the driver or to the thread in
 * turn. So while one group travels the next is computed. Whatever goes wrong with a move ends that move alone: the
 * taker has the pages that came, and computes the rest by itself. Received bytes are hostile input. Fields that `lock`
 * guards are marked (L); the others are the driver's. */
#pragma once
#include "engine/worker/instance/instance.h"

enum {
	PREFIX_VERSION = 2,
	PREFIX_GROUP_PAGES = 16,
	PREFIX_GROUP_BYTES = 64 * 1024 * 1024, // so much, or one page
	PREFIX_PIECE_ROWS = 512,               // of a prompt, in a step: it is given while the next one is computed
};

#define PREFIX_BARE 0x80000000u // with the count of a group

enum prefix_turn { TURN_DRIVER, TURN_THREAD };

struct prefix_move {
	struct prefix_move *next;
	struct instance *instance;
	char channel[65];
	bool gives;
	int fd;
	int64_t opened_ns;
	bool begun; // its call has come
	pthread_t thread;
	pthread_cond_t changed;
	enum prefix_turn turn; // (L) whose the group is
	uint32_t group_count;  // (L) pages in it
	bool group_bare;       // (L) only their tokens
	bool stopped;          // (L) it is to end
	bool over;             // (L) the thread is at its end
	uint64_t bytes;        // (L) that went or came
	// The group: the thread's or the driver's.
	uint32_t group_most;
	uint8_t *group; // tokens, then layer by layer
	uint64_t owner;
	struct generator_prefix *prefix; // NULL: its owner is forgotten, and it is to end
	uint32_t moved;                  // pages
	struct json *id;                 // takes: of the call
	struct request *request;
	uint32_t *tokens; // gives: (wanted, STAGE_PAGE_TOKENS)
	uint32_t wanted;  // gives: pages
	uint32_t bare;    // gives: of these, the first ones, which the taker has
	bool computed;    // gives: the job has ended, as follows
	enum generator_reason reason;
	struct generator_figures figures;
	struct json *spent; // as generate.end has it
};

// Thread: the reader's. worker.channel. fd: taken on STATUS_OK. Errors: STATUS_CONFLICT, STATUS_LIMIT_EXCEEDED,
// STATUS_OUT_OF_MEMORY.
enum status prefix_channel(struct instance *instance, const struct json *params, int fd, struct error *error);
// Thread: the driver's, for all of these. Whether pages of this instance's model can leave it and enter it.
bool prefix_possible(const struct instance *instance);
// generate.start with `give`, of a request that has been made. Errors, and then nothing has begun:
// STATUS_UNAVAILABLE, STATUS_NOT_FOUND (no such channel), STATUS_OUT_OF_MEMORY, generator_add's.
enum status prefix_give(struct request *request, const struct order *order, struct error *error);
void prefix_cancel(struct request *request); // of a request that gives: it ends soon
// generate.start with `counts` and `cached`.
void prefix_count(struct instance *instance, const struct order *order);
// prefix.take: answered when it is over.
void prefix_take(struct instance *instance, const struct order *order);
// generate.forget: its moves end, and let go of their pages. owner: 0 for all.
void prefixes_forget(struct instance *instance, uint64_t owner);
// Between two steps: read, write and end what is due.
void prefixes_tend(struct instance *instance);
// End all, without an answer, and wait for their threads.
void prefixes_drop(struct instance *instance);

// ---- prefix_stream.c: the threads ----

// Start the thread of a move whose fields are set; false: it cannot be had.
bool prefix_start(struct prefix_move *move);
uint32_t prefix_layer_count(const struct instance *instance);
uint64_t prefix_page_bytes(const struct instance *instance);
