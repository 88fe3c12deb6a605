/* One end of a connection between two processes: its calls, its notifications, and what the other end asks of it.
 *
 * It knows no socket: what is to be sent goes to `send`, and the bytes of each message that came go to rpc_receive. A
 * call of ours gets a number and is kept until it is answered, is late or the end is closed; `done` is told which,
 * once. What the other end answers must fit the contract, or the call fails. What it asks must be in the contract
 * with the direction `serves`, its params must fit, and it must be one of `methods`. What we answer is held to the
 * contract in debug builds. Our params are not: the other end checks them.
 * Thread: its owner's. No callback may free the struct. `done` comes from inside rpc_receive, rpc_expire and
 * rpc_close. */
#pragma once
#include "common/wire/contract.h"
#include "common/wire/message.h"

// The end of a call. `result` fits the contract and lasts as long as the callback; NULL unless `status` is STATUS_OK.
typedef void rpc_done(void *context, enum status status, const struct json *result, const struct error *error);

// Serve a call or notification whose params fit. STATUS_OK is answered {}, an error with `error`, and after
// STATUS_PENDING the method answers itself, by rpc_answer, now or later.
typedef enum status rpc_serve(void *arg, const struct message *message, struct error *error);
struct rpc_method {
	const char *name;
	rpc_serve *serve;
};

// Bytes that go with a message. `holder`: whatever `send` needs to know of who owns them.
struct rpc_body {
	const void *bytes;
	size_t length;
	void *holder;
};

struct rpc_params {
	const struct contract *contract; // NULL: answers are not checked, and nothing is served
	const char *serves;              // a direction of the contract, such as "node-to-server"
	const char *peer;                // the other end in words, such as "the node"
	const struct rpc_method *methods;
	size_t method_count;
	size_t most_calls;   // of ours, that wait for their answers
	bool answers_faults; // what is no message is answered with an error
	bool breach_ends; // an answer that breaks the contract leaves its call waiting, as who sent it is ended for it
	bool in_order;    // an error without an id is the answer to the oldest call
	// Send a head and, unless it is NULL, a body. An error makes the call fail.
	enum status (*send)(void *arg, const struct buffer *head, const struct rpc_body *body);
	// Whether the method of this name, which may be none of the contract's, may be called now. NULL: each may
	// always.
	enum status (*admit)(void *arg, const char *method, struct error *error);
	int64_t (*now_ms)(void); // a steady clock; NULL: clock_steady_ms
	void *arg;
};

struct rpc_call;
struct rpc {
	struct rpc_params params;
	struct rpc_call *first, **last; // that wait, oldest first
	size_t waiting;
	struct buffer head;        // that was printed last, to be used again; not what is being sent
	int64_t last_id, stale_id; // stale_id: of the last that rpc_end_calls has ended
	bool closed;
};

// `methods` is not copied; each of them must be in the contract, with the direction `serves`.
void rpc_init(struct rpc *rpc, const struct rpc_params *params);
// Ends every call of ours that waits with `error`, as when the other end has forgotten them; others may follow.
void rpc_end_calls(struct rpc *rpc, const struct error *error);
// Ends every call of ours with `error`; NULL: without a word to who waits. From here on nothing is sent. It frees all
// that the rpc has.
void rpc_close(struct rpc *rpc, const struct error *error);

struct rpc_ask {
	const char *method;  // one of the contract
	struct json *params; // taken, also on failure; or, where they are integers only and no tree is worth making,
	const struct message_number *numbers; // (number_count)
	size_t number_count;
	int64_t patience_ms; // STATUS_TIMEOUT if there is no answer by then; 0: it may take as long as the end is open
	rpc_done *done;      // NULL: nobody waits, so the call is not kept, and its answer is RPC_UNASKED
	void *context;
	const struct rpc_body *body; // goes with it; may be NULL
};
// Errors, and then `done` is not called: STATUS_UNAVAILABLE (most_calls wait, the end is closed, no memory), those of
// `send`, STATUS_LIMIT_EXCEEDED (longer than a message may be).
enum status rpc_call(struct rpc *rpc, const struct rpc_ask *ask);
// Keep a call that goes by another way than `send`; its id is rpc->last_id. Its answer may come either way.
enum status rpc_expect(struct rpc *rpc, const struct rpc_ask *ask);
// It has come by another way: `done` is told STATUS_OK, without a result. False: no such call waits.
bool rpc_settle(struct rpc *rpc, int64_t id);
// The context of a call that waits: that of this id, and method unless it is NULL; id 0: the oldest of this method.
// NULL: there is none.
void *rpc_find(const struct rpc *rpc, int64_t id, const char *method);
// The id of an answer, if it can be one of ours.
bool rpc_read_id(const struct message *message, int64_t *id);
// `params` is taken.
enum status rpc_notify(struct rpc *rpc, const char *method, struct json *params);
// Answer a call of the other end with `result` (taken) or, unless it is NULL, with the error. Nothing is sent if `id`
// is NULL. `method`: NULL if it is not known. A result that cannot be sent, which is one that is too long, becomes an
// error. Thread: any, if `send` allows it; not while the end is closed.
void rpc_answer(struct rpc *rpc, const char *method, const struct json *id, struct json *result,
		const struct error *error);
// The same with a body, for who wants to know of failure.
enum status rpc_answer_body(struct rpc *rpc, const char *method, const struct json *id, struct json *result,
			    const struct rpc_body *body);

enum rpc_heard {
	RPC_SERVED,   // a call or notification; what is refused later is not refused here
	RPC_REFUSED,  // a call or notification that was answered with an error
	RPC_ANSWERED, // an answer that was waited for
	RPC_UNASKED,  // an answer that nobody waits for: a second one, a late one, one to no call
	RPC_STALE,    // an answer to a call that rpc_end_calls has ended
	RPC_BROKEN,   // an answer that breaks the contract: its call has failed, unless breach_ends
	RPC_GARBAGE,  // no message
};
// A message that came, as a text or a binary frame. `error` says why, of all but RPC_SERVED and RPC_ANSWERED.
enum rpc_heard rpc_receive(struct rpc *rpc, const uint8_t *bytes, size_t length, bool binary, struct error *error);
// The same of a message that has been decoded.
enum rpc_heard rpc_take(struct rpc *rpc, const struct message *message, struct error *error);
// Ends calls that are late. Returns in how many ms the next is; -1: none will be.
int64_t rpc_expire(struct rpc *rpc);
// The method of a call that is late, and for how long it has waited; NULL: none is. Unlike with rpc_expire it waits on,
// for an owner that ends the other end instead.
const char *rpc_late(const struct rpc *rpc, int64_t *waited_ms);
// Give every call that waits so much longer.
void rpc_postpone(struct rpc *rpc, int64_t ms);
