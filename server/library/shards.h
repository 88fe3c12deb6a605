/* The byte ranges of model files for other nodes: which ones each shard of an instance needs, and
 * reading them. A shard needs the file's beginning up to the tensors, the tensors of its layers,
 * and, if it is first or last, the token embedding or the output norm and matrix. A node fetches
 * ranges (model.fetch; model.read on a connection of subprotocol exogpu.model.v1, see
 * shards_link.c) only of files that are open here, with the key of its model.fetch, and never
 * beyond the file's end. Each answer carries the SHA-256 of its bytes, or only that if another
 * node supplies the bytes. If a file changes while it is open, that is reported and nothing more
 * of it is served. LIMIT_SHARD_THREADS threads open, read and hash. Thread: the loop's, except
 * these. */
#pragma once
#include "common/net/ws/ws.h"
#include "common/wire/contract.h"
#include "server/library/holders.h"
#include "server/library/models.h"

struct shards;
struct shards_file;

struct shards_params {
	struct net_loop *loop;
	const struct contract *contract; // CONTRACT_NODE
};
enum status shards_create(struct shards **out, const struct shards_params *params, struct error *error);
void shards_destroy(struct shards **shards);           // after all files and connections
struct holders *shards_holders(struct shards *shards); // who has had what of it

struct shards_part {
	uint32_t first_layer, layer_count;
	bool embeds, predicts;
	bool browser; // it is a browser's, which is told of its tensors and sent their bytes
};

struct shards_open_params {
	const char *model_id, *path;     // copied
	const struct shards_part *parts; // (part_count), at most LIMIT_INSTANCE_STAGES; copied
	unsigned part_count;
	// Called once, unless it is closed before: what each part needs is known, or why not.
	void (*done)(void *context, const struct error *error); // NULL: all is well
	void *context;
};
// Errors: STATUS_OUT_OF_MEMORY.
enum status shards_open(struct shards_file **out, struct shards *shards, const struct shards_open_params *params,
			struct error *error);
void shards_close(struct shards_file **file); // nothing is read of it any more. Accepts NULL, leaves NULL behind
// Once it is done:
uint64_t shards_file_bytes(const struct shards_file *file);
uint64_t shards_part_bytes(const struct shards_file *file, unsigned part);
struct json *shards_ranges_json(const struct shards_file *file, unsigned part); // model.fetch's `ranges`
// Of a part that is a browser's: the params of stage.open without name and version, and where the bytes of its tensors
// lie in the file. False: it has no so many.
struct json *shards_stage_json(const struct shards_file *file, unsigned part);
bool shards_stage_tensor(const struct shards_file *file, unsigned part, size_t index, uint64_t *offset,
			 uint64_t *bytes);
// This node may read it, with this key. Errors: STATUS_OUT_OF_MEMORY.
enum status shards_allow(struct shards_file *file, const char *node_id, const char *key);

// Reading a piece.
struct shards_read;
struct shards_read_params {
	const char *node_id, *model_id, *key; // node_id "": this machine's owner, who may read for every node
	uint64_t offset;
	size_t bytes;
	// Called once, later, unless it is cancelled. The frame is the callee's to reference.
	void (*done)(void *context, const struct error *error, struct net_frame *frame, const char *sha256);
	void *context;
};
// Errors, and then `done` is not called: STATUS_FORBIDDEN (no such file, or not for this node or key),
// STATUS_INVALID_PARAMS (outside the file), STATUS_OUT_OF_MEMORY.
enum status shards_read_start(struct shards_read **out, struct shards *shards, const struct shards_read_params *params,
			      struct error *error);
void shards_read_cancel(struct shards_read **read);

// A connection of /node, subprotocol exogpu.model.v1. `node_id`: of its certificate; "" of this machine's owner. The
// others are those of struct net_handler.
struct shards_link;
struct shards_link *shards_link_create(struct shards *shards, const char *node_id);
void shards_link_opened(void *user, struct net_conn *conn);
void shards_link_message(void *user, struct net_conn *conn, const uint8_t *bytes, size_t length, bool binary);
void shards_link_drained(void *user, struct net_conn *conn);
void shards_link_closed(void *user, struct net_conn *conn, int code);
const struct contract *shards_contract(const struct shards *shards);
