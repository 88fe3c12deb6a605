/* The state that the files of the model cache share: models.c has the course of a fetch, and the thread;
 * models_pieces.c the pieces; models_give.c requests of other nodes. Internal. */
#pragma once
#include "common/wire/rpc.h"
#include "common/work/jobs.h"
#include "engine/node/links/links_models.h"
#include "engine/node/models/models.h"
#include "engine/node/models/models_disk.h"
#include "engine/node/models/models_peers.h"

enum { MODEL_PIECES_AT_ONCE = 4 };

struct model {
	struct model *next;
	char id[65];
	struct model_disk disk; // the thread's
	struct fetch *busy;     // that has it now; NULL: none
	bool fetched;           // once since the node started
};

// A piece that was asked for, until it is written.
struct piece {
	struct fetch *fetch;
	enum { PIECE_FREE, PIECE_ASKED, PIECE_ANSWERED } state; // its place is free again when it is written
	struct model_span at;
	bool digest;                        // the server is asked for no more than that
	uint8_t sha256[MODEL_SHA256_BYTES]; // once the server has told it
	struct model_peer_piece peer;       // with it
};

enum job_kind { JOB_UNKNOWN, JOB_OPEN, JOB_PUT, JOB_CLOSE, JOB_FORGET, JOB_GIVE };

struct disk_job {
	struct job job; // first member
	struct node_models *models;
	enum job_kind kind;
	struct model *model;
	struct fetch *fetch; // NULL: model.forget, or another node's request
	struct uplink_call *call;
	struct link_request *request;
	struct model_piece piece;
	struct net_frame *bytes; // of the piece
	bool from_peer;
	uint64_t freed;
	struct error error;
	bool embedded; // in its fetch
};

struct fetch {
	struct fetch *next;
	struct node_models *all;
	struct model *model;
	struct uplink_call *call;
	char key[65];
	struct model_wanted wanted; // the thread's until JOB_OPEN is back
	uint64_t total, fetched;    // bytes
	_Atomic uint64_t here;
	atomic_bool given_up;
	struct net_conn *conn;         // NULL before it is open
	struct rpc rpc;                // of it
	const struct net_parts *parts; // of the answer that is being taken
	bool dialled;                  // and not closed yet
	bool begun, over;              // has its model; nothing more is asked for
	bool ended;                    // answered: waits for its connection to close, and is in no list
	unsigned jobs;
	struct disk_job last; // JOB_CLOSE; its kind is set while it is in progress
	struct piece pieces[MODEL_PIECES_AT_ONCE];
	struct model_peers *peers; // NULL: none
	uint64_t peer_bytes;       // of `fetched`
	size_t next_gap;
	int64_t moved_ms;
	uint64_t told;   // bytes
	int64_t told_ms; // steady; when the server was told last
	struct net_timer tick;
	struct error error;
};

struct node_models {
	struct node_models_params params;
	char folder[4096];
	struct model *models;
	struct fetch *fetches; // in the order in which they came
	struct jobs *jobs;
	struct net_timer next; // a fetch has ended: another one may begin
};

// models.c
struct model *node_models_find(const struct node_models *models, const char *id);
void node_models_put_job(struct node_models *models, struct disk_job *job);
void node_models_finish(struct fetch *fetch); // nothing more is asked for
void node_models_fail(struct fetch *fetch, const struct error *error);

// models_pieces.c
void node_models_calls_init(struct fetch *fetch); // before its connection is dialled
void node_models_ask_more(struct fetch *fetch);
void node_models_take_answer(void *user, struct net_conn *conn, const uint8_t *bytes, size_t length, bool binary);
void node_models_piece_written(struct fetch *fetch, const struct disk_job *job);
void node_models_cancel_pieces(struct fetch *fetch);

// models_give.c
void node_models_gave(struct disk_job *job);
