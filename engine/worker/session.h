/* A session's worker: the state that its threads share, and how they divide the work.
 *
 *   reader  (reader.c)  polls both sockets, answers pings at once, receives calls and their bodies, queues them, and
 *                       watches how long the driver takes; answers a call itself if it needs no device and the queue
 *                       is empty, which saves a turn of the driver
 *   channel (channel.c) one for each copy to or from another worker: serves its socket
 *   driver  (driver.c)  owns the devices and everything on them: takes the calls in order, enqueues them, and answers
 *                       each when its point in the device's stream is reached, while later ones are enqueued already
 *
 * The body of a write is received, or taken from shared memory, into pieces of host memory from which the device
 * copies; each piece is enqueued when it is full. The body of a read is sent piece by piece in the same way. If the
 * driver can import the shared memory, the device copies to it directly. The memory of a device that is this machine's
 * processor is received into and sent from directly, while no work is in flight.
 *
 *      fd 4 -> reader -> [queue of calls] -> driver -> [steps in a device's stream] -> answer -> fd 4
 *                 ^----- free pieces ------------------------'
 *
 * Back-pressure: without a free piece, or with LIMIT_WORKER_CALLS unanswered, the reader does not read fd 4 until the
 * driver wakes it; it still serves fd 3. Only the driver waits until fd 4 accepts an answer (the reader leaves to it
 * what the socket does not take at once), so a server that does not read delays only its own calls. Fields that `lock`
 * guards are marked (L); each of the others belongs to one thread, as said there. */
#pragma once
#include "common/base/limits.h"
#include "common/net/shared.h"
#include "common/wire/contract.h"
#include "common/wire/message.h"
#include "engine/include/exogpu/exogpu.h"
#include "engine/worker/node_end.h"

#include <pthread.h>

enum call_kind {
	CALL_UNKNOWN,
	CALL_DEVICE, // worker.device, from the node
	CALL_WARM,   // worker.warm, from the node
	CALL_ALLOCATE,
	CALL_WRITE, // also a part of one
	CALL_READ,
	CALL_COPY,
	CALL_FILL,
	CALL_FREE,
	CALL_SHARE,
	CALL_LOAD,
	CALL_LAUNCH,
	CALL_RUN,
	CALL_UNLOAD,
	CALL_SEND, // with its channel's thread until it is only to be answered
	CALL_RECEIVE,
	CALL_PIECE, // one piece of a write or a read
};

enum { NO_PIECE = -1, DEVICE_NUMBERS = 256 };

struct call {
	struct call *next, *previous; // of session->calls
	enum call_kind kind;
	bool from_node;
	bool taken;             // by the driver
	bool quiet;             // needs no device: refused, or received into its place already
	struct message message; // its own; without a head in the parts of a write but the last
	struct error error;     // why it is refused or failed; status 0: it is well
	int64_t arrived_ns;
	int64_t limit_ns;    // how long it may take, once nothing is before it
	int64_t deadline_ns; // 0: its time does not run
	// a write: this part of it, which lies at `offset` of the whole, in a piece of `device`
	uint32_t handle;
	unsigned device;
	uint64_t to_offset, offset, bytes, total_bytes;
	int piece;
	// a read: what, and where in shared memory it is wanted, if it is; and the call of the note that asked, else 0
	struct net_shared_note read;
	bool placed;
	// compute.load
	uint8_t *module; // (module_bytes), or NULL
	size_t module_bytes;
	// memory.copy: how far it is, and when that was last told
	uint64_t copied_bytes;
	int64_t told_ns;
	struct channel_piece *channel_piece; // of CALL_PIECE
};

// One piece of enqueued work; its call is answered with the last of its steps.
struct step {
	struct call *call;
	int piece;               // to give back, or NO_PIECE
	uint64_t bytes;          // of the piece, or that this step of a copy copies
	bool last;               // of the call
	uint64_t started, point; // of the device's stream; started: 0 unless the time between is asked for
};

// Pieces of host memory of a device.
struct pool {
	struct exogpu_buffer *memory;
	uint8_t *bytes;
	unsigned count;
	int free[LIMIT_WORKER_PIECES]; // the last given back is the first taken: it is still in a cache
};

struct worker_device {
	unsigned number;
	struct exogpu_device *device;
	struct exogpu_stream *stream;
	struct exogpu_module *builtin; // of compute.run, from the first on
	struct pool in;                // (L) what the reader receives into
	struct pool out;               // what the driver sends from
	struct exogpu_buffer *shared;  // session->shared, where the device copies to that by itself; or NULL
	bool refusal_told;             // why it does not
	struct step steps[LIMIT_WORKER_STEPS];
	unsigned first_step, step_count;
};

// The memory of a handle.
struct memory_slot {
	uint32_t handle; // 0: free
	struct worker_device *device;
	struct exogpu_buffer *buffer;
	uint64_t bytes;
	uint8_t *direct; // where sockets may write and read, or NULL
};
struct module_slot {
	uint32_t handle;
	struct worker_device *device;
	struct exogpu_module *module;
};

enum driver_state {
	DRIVER_WAITS,   // the steps' time runs
	DRIVER_CALLS,   // in session->current, whose time runs
	DRIVER_ANSWERS, // answered: the time that the server takes to read does not count
};

struct session {
	const struct contract *contract;
	const char *backend;         // as exogpu_open takes it
	const char *cache_directory; // or NULL
	uint64_t memory_limit_bytes; // of all devices together; 0: none
	bool confined;               // what a tenant's code could do as this process is bounded by the sandbox
	struct node_end node;        // the reader's; the driver answers by it
	int wake_fd;
	int stream_fd; // -1: a spare, until worker.bind brings it (node_calls.c)

	pthread_mutex_t lock;
	pthread_cond_t arrived;          // (L) signalled for the driver
	struct call *calls, *last_call;  // (L) all that are not answered, in order of arrival
	struct call *next_call;          // (L) the first that the driver has not taken
	unsigned call_count, loud_count; // (L) calls; calls that are not quiet
	unsigned piece_count;            // (L) of these, the pieces of copies
	bool reader_waits;               // (L) wake it when a call is answered or a piece given back
	bool ending;                     // (L) the driver is to return
	enum driver_state state;         // (L)
	int64_t state_ns;                // (L) since when
	struct call *current;            // (L) what the driver is in
	struct memory_slot memory[LIMIT_ALLOCATIONS_OF_SESSION]; // (L) changed by the driver only
	unsigned memory_count;                                   // (L) slots in use lie below
	struct worker_device *devices[DEVICE_NUMBERS];           // (L) as memory
	struct channel *channels;                                // (L)
	unsigned channel_count, channel_threads;                 // (L) channels; channels whose thread runs
	pthread_cond_t piece_done;                               // (L) for those threads; also: one has ended

	// the driver's
	struct worker_device *warm; // what a spare has opened, for the first worker.device that names it; or NULL
	char warm_key[257];         // its hardware key
	struct module_slot modules[LIMIT_MODULES_OF_SESSION];
	unsigned device_count, device_end; // open; their numbers lie below device_end
	unsigned step_count;               // of all devices
	uint64_t memory_bytes;
	struct error write_error;          // of the write whose parts are coming
	struct worker_device *open_device; // that the read is from whose body is being sent
	bool stream_gone;                  // the server reads no more

	// Memory from which the server sends, and into which it has reads written.
	struct net_shared *shared; // (L) changed by the driver only; NULL: none
	int shared_fd;             // the driver's: to be passed on with the next answer; -1: none
	uint8_t *shared_to;        // the driver's: of the read whose body is being put there, where the next byte goes
	struct buffer open_head;   // the driver's: its answer, which goes when all of the body is there,
	uint64_t open_noted;       // or the call that a note then answers; 0: none

	pthread_t driver;
	pthread_mutex_t sending; // one message at a time to the server
	bool message_open;       // (sending) the answer to a read has begun, and not all of its body is in it
};

struct session_params {
	const struct contract *contract;
	const char *backend, *cache_directory; // as in struct session
	uint64_t memory_limit_bytes;
	bool confined;
	int node_fd, stream_fd; // stream_fd -1: a spare
};

enum status session_create(struct session **out, const struct session_params *params, struct error *error);
// Frees all memory on the devices, too. The threads must have ended.
void session_destroy(struct session **session);
// Start the driver's thread. Errors: STATUS_INTERNAL.
enum status session_start(struct session *session, struct error *error);
// The reader's thread: serve until either socket ends; then STATUS_OK. Errors: STATUS_INVALID_REQUEST (the framing is
// wrong), STATUS_INTERNAL. Does not return after a hang or the loss of a device: those end the process (worker.h).
enum status reader_run(struct session *session, struct error *error);
// Wait for the driver to end its call and to free everything. A worker does not do this: it ends with its process.
void session_stop(struct session *session);

// ---- calls.c: the line of calls ----

// A call with a limit of a minute, the default for calls without one. NULL: out of memory.
struct call *call_create(enum call_kind kind);
// Put a call (taken) into the line.
void calls_put(struct session *session, struct call *call);
unsigned calls_count(struct session *session); // that are not answered
// The next for the driver; with `wait` it waits for one. NULL: none now, or the session ends.
struct call *calls_take(struct session *session, bool wait);
// The call is answered: remove it from the queue, and free it.
void calls_remove(struct session *session, struct call *call);
void call_destroy(struct call **call);
void session_wake_reader(struct session *session); // with the lock held
// Thread: the driver's. Enter a call, whose time begins now; begin to answer; come back from either.
void watch_enter(struct session *session, struct call *call);
void watch_answer(struct session *session);
void watch_return(struct session *session);
// Thread: the reader's. End the process if a call has outlasted its limit.
void watch_check(struct session *session);
// How long the oldest call has been in progress; 0 if there is none.
int64_t watch_oldest_ns(struct session *session);

// ---- node_calls.c ----

void node_calls_init(struct session *session, int fd);

// ---- channel.c ----

// worker.channel. fd: taken on STATUS_OK. Errors: STATUS_CONFLICT, STATUS_LIMIT_EXCEEDED, STATUS_OUT_OF_MEMORY.
enum status channel_open(struct session *session, const struct json *params, int fd, struct error *error);
// memory.send or memory.receive (taken): it comes into the line when all of it is done.
void channel_call(struct session *session, struct call *call);
// Thread: the driver's. One piece of a copy.
void channel_move(struct session *session, struct call *call);
// End all and wait for their threads; the driver still serves them.
void channels_stop(struct session *session);

// ---- driver.c, answer.c ----

void *driver_main(void *session);
// Answer a call with call->error, or with `result` (taken; NULL: {"bytes": call->total_bytes}); the body, if any,
// follows the head.
void answer_call(struct session *session, struct call *call, struct json *result, const uint8_t *body,
		 size_t body_bytes);
// Thread: the reader's. Answer a call that is the only one, after copying `from` to where in shared memory it is wanted
// (NULL: nothing). False: nothing is done, since the server does not take it now or there is no such place.
bool answer_at_once(struct session *session, const struct call *call, const uint8_t *from);
// The same for a read that was asked for by a note, of memory that the caller holds.
bool answer_note(struct session *session, struct net_shared *shared, const struct net_shared_note *note,
		 const uint8_t *from);
// The head of the answer to a read, whose body follows by answer_more, the last with `last`.
void answer_open(struct session *session, struct call *call);
void answer_more(struct session *session, const uint8_t *body, size_t body_bytes, bool last);
// Tell the server (params is taken); false: not now, in the middle of an answer. Thread: the driver's.
bool answer_notice(struct session *session, const char *method, struct json *params);
// Say `error` for every unanswered call from `call` on (only for that one unless `all`) as far as the server takes it
// at once, and end the process. No call goes meanwhile: the driver calls it, or the lock is held.
_Noreturn void session_end(struct session *session, struct call *call, bool all, const struct error *error);

// ---- memory.c, compute.c: what the driver does with calls; errors go to call->error ----

struct memory_slot *memory_find(struct session *session, uint32_t handle); // NULL if there is none
enum status memory_check_range(const struct memory_slot *slot, uint64_t offset, uint64_t bytes, struct error *error);
void memory_allocate(struct session *session, struct call *call);
void memory_write(struct session *session, struct call *call);
void memory_read(struct session *session, struct call *call);
// Thread: the reader's, while no call is in the line. Where a read begins that needs no device; NULL: it is the
// driver's.
const uint8_t *memory_direct(struct session *session, uint64_t handle, uint64_t offset, uint64_t bytes);
void memory_copy(struct session *session, struct call *call);
// So many more bytes are copied: notify the server, at most every 500 ms. Thread: the driver's, outside of calls.
void memory_copied(struct session *session, struct call *call, uint64_t bytes);
void memory_fill(struct session *session, struct call *call);
void memory_free(struct session *session, struct call *call);
void memory_share(struct session *session, struct call *call);
// Import the shared memory, so that the device copies to it directly; if that fails, copies go by pieces.
void memory_import(struct session *session, struct worker_device *device);
void compute_load(struct session *session, struct call *call);
void compute_launch(struct session *session, struct call *call);
void compute_run(struct session *session, struct call *call);
// Thread: the reader's. Errors: STATUS_INVALID_PARAMS: more numbers than a call may have.
enum status compute_check_run(struct call *call);
void compute_unload(struct session *session, struct call *call);
void compute_drop_modules(struct session *session);

// ---- driver.c, for those two ----

// Handle the status of a back end's call; does not return if the device is lost. Returns status.
enum status driver_told(struct session *session, struct call *call, enum status status);
// Mark and note the step; `started` as in struct step. Answers the call at once if that fails.
void driver_step(struct session *session, struct worker_device *device, const struct step *step);
// Wait until there is room for one more step, or until none is left.
void driver_room(struct session *session, struct worker_device *device);
void driver_drain(struct session *session, struct worker_device *device);
// Wait for the oldest step of a device, and answer the call that it completes.
void driver_finish_oldest(struct session *session, struct worker_device *device);
// Answer now, in turn: not within the body of a read. `result` as answer_call has it.
void driver_answer(struct session *session, struct call *call, struct json *result);
// Parameters that are handles, counts and numbers have been checked: read them.
uint64_t call_count(const struct call *call, const char *name);
