/* Calls: what the server spends on a call to a worker and on its answer, without the socket between. The program is the
 * worker, as in tests/server/tenants/test_notes.c. Prints CPU nanoseconds, the least of several rounds: for a read that
 * is asked for by a message, and for one by a note in shared memory. */
#include "tests/server/tenants/notes.h"

#include <time.h>

enum { CALLS_OF_ROUND = 20000, ROUNDS = 15 };

static double cpu_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void over(struct worker_call *call, enum status status, const struct json *result, struct net_frame *body,
		 const struct error *error)
{
	(void)call, (void)result, (void)body, (void)error;
	require(!status);
}

static enum status send_nothing(struct line *line, const struct net_parts *parts)
{
	(void)line, (void)parts;
	return STATUS_OK;
}

static void read_by_message(void)
{
	char text[128];
	const struct message_number numbers[] = {{"handle", 7}, {"offset", PIECE}, {"bytes", PIECE}};
	const struct worker_send_params send = {.method = "memory.read", .numbers = numbers, .number_count = 3};
	struct worker_call *call = worker_call_create(NULL, over);
	require(call != NULL);
	call->counts = true;
	call->bytes = PIECE;
	require(!worker_send(world.worker, call, &send, NULL));
	snprintf(text, sizeof text, "{\"jsonrpc\":\"2.0\",\"id\":%lld,\"result\":{\"bytes\":%d}}", (long long)call->id,
		 PIECE);
	say(text);
}

static void read_by_note(void)
{
	uint64_t at = 0;
	struct net_shared_note found;
	struct worker_call *call = worker_call_create(NULL, over);
	require(call != NULL);
	call->counts = true;
	call->bytes = call->body_bytes = PIECE;
	require((call->place = sharing_place(world.worker, PIECE, &at)) != NULL);
	const struct net_shared_note note = {.handle = 7, .offset = PIECE, .bytes = PIECE, .at = at};
	require(sharing_ask(world.worker, call, &note) && net_shared_get(world.shared, &found));
	require(done(found.call));
	ring();
}

static double least_ns(void (*read)(void))
{
	double least = 0;
	for (int round = 0; round < ROUNDS; round++) {
		const double began_ns = cpu_ns();
		for (int i = 0; i < CALLS_OF_ROUND; i++)
			read();
		const double ns = (cpu_ns() - began_ns) / CALLS_OF_ROUND;
		least = round && least < ns ? least : ns;
	}
	return least;
}

int main(void)
{
	require(!load(NULL) && !set_up(NULL));
	world.line.send = send_nothing;
	printf("a read asked for by a message: %.0f ns; by a note: %.0f ns\n", least_ns(read_by_message),
	       least_ns(read_by_note));
	return 0;
}
