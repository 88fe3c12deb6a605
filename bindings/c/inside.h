/* Declarations that the sources of libexogpu_client share: the client, and how a call begins, asks and ends.
 *
 * Every public call is inside_begin, inside_ask any number of times, inside_end. In between, this thread alone has the
 * connection, and SIGPIPE, which a write to a socket may raise, waits. */
#pragma once
#include "server/cli/client.h"

#include <exogpu/exogpu_client.h>
#include <pthread.h>

struct launched {
	uint64_t point; // 0: a free place
	int64_t id;     // of the call
};

struct exogpu_client {
	pthread_mutex_t lock;
	pthread_cond_t over_now;
	pthread_t keeper; // answers pings between calls
	bool over;
	struct target target;
	struct client *client; // NULL once a call was given up
	int64_t timeout_ms;
	struct launched launched[EXOGPU_CLIENT_LAUNCHES];
	uint64_t last_point;
	struct exogpu_client_buffer *buffers;
	struct exogpu_client_module *modules;
};

struct exogpu_client_buffer {
	struct exogpu_client *client;
	struct exogpu_client_buffer *next, **link;
	char id[EXOGPU_CLIENT_ID_BYTES];
	uint64_t bytes;
};

struct exogpu_client_module {
	struct exogpu_client *client;
	struct exogpu_client_module *next, **link;
	char id[EXOGPU_CLIENT_ID_BYTES];
	struct exogpu_kernel *kernels; // (kernel_count)
	unsigned kernel_count;
};

struct quiet {
	sigset_t before;
	bool pending; // SIGPIPE waited already
};
void inside_begin(struct exogpu_client *client, struct quiet *quiet);
void inside_end(struct exogpu_client *client, const struct quiet *quiet);
// Errors: STATUS_UNAVAILABLE: a call was given up, and nobody knows what was done.
enum status inside_usable(const struct exogpu_client *client, struct error *error);
// Send a call and wait. `params` is taken. *result (may be NULL) is the caller's to destroy.
struct inside_call {
	const char *method;
	struct json *params;
	struct net_frame *body; // may be NULL
};
enum status inside_ask(struct exogpu_client *client, const struct inside_call *call, struct json **result,
		       struct error *error);
// Wait for a call that was sent. One that is late ends the use of this client: its answer might come at any time.
enum status inside_wait(struct exogpu_client *client, int64_t id, struct json **result, struct error *error);
// An id of an answer. Errors: STATUS_INTERNAL: it has none.
enum status inside_read_id(const struct json *result, const char *name, char id[EXOGPU_CLIENT_ID_BYTES],
			   struct error *error);
// As the contract has it; NULL: there is no such format.
const char *inside_format_word(enum exogpu_format format);
