/* Posts messages to the receivers of alerts and to the collector of traces, each attempt once, on a thread of its own:
 * names are resolved and connections made there, never on the loop. An attempt ends within COURIER_MS; of the answer
 * its status, how long to wait and the first COURIER_ANSWER_BYTES of its body are taken. A receiver must have a public
 * address, unless the operator named its host; redirects are not followed (server/hub/fetch_web.h). Thread: the loop's,
 * for every function here. */
#pragma once
#include "common/net/loop.h"

#include <stddef.h>

enum { COURIER_MS = 10000, COURIER_ANSWER_BYTES = 4096 };

struct courier;
// hosts: URLs whose hosts may have private addresses and be spoken to without TLS; (count).
enum status courier_create(struct courier **out, struct net_loop *loop, const char *const *hosts, size_t count,
			   struct error *error);
void courier_destroy(struct courier **courier); // the contexts of what is under way are given to `drop`

// Whether a URL may be one of a receiver, as far as it can be known without asking for its name's address. *url is
// replaced by its plain form. Errors: STATUS_INVALID_PARAMS, STATUS_FORBIDDEN, with a hint. Neither says the URL.
enum status courier_check(const struct courier *courier, char *url, size_t size, struct error *error);

struct courier_result {
	bool delivered;        // the answer was 2xx
	long http_status;      // 0: there was no answer
	int64_t retry_after_s; // that the receiver asks for; 0: it does not
	char message[384];     // for a person, without the path of the URL; "" if it was delivered
	const char *answer;    // (answer_bytes), what the receiver answers, as far as it was read
	size_t answer_bytes;
};
struct courier_letter {
	const char *url, *body;
	const char *const *fields; // (field_count) "Name: value"
	size_t field_count;
	void (*done)(void *context, const struct courier_result *result);
	void (*drop)(void *context); // the courier goes away: `done` is not called
	void *context;
};
// Copies the letter. Errors: STATUS_OUT_OF_MEMORY, and then neither `done` nor `drop` is called.
enum status courier_send(struct courier *courier, const struct courier_letter *letter);
