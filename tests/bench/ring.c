/* A model in two parts on one machine, beside the same model in one worker: what being a ring costs.
 *
 *   ring EXOGPU MODEL LAYERS [ROUNDS [STREAMS ...]]
 *
 * EXOGPU: the binary; MODEL: a file, of generate_model say, with LAYERS layers; STREAMS: 1 4 8 16 32, and 0,
 * which stands for a long prompt. All are loaded at the same time, on the CPU, and asked in turn, so that a busy
 * machine is so for all; figures are medians of the time of a token, of all streams together. Beside one worker with
 * all cores:
 *
 *   floor   two workers without a ring, each with the whole model, half of the streams and half of the cores (whole
 *           ones where a core runs two threads): as much work, memory and traffic as in a ring of two lanes
 *   halves  a ring of two parts, each with half of the cores
 *   whole   a ring of two parts, each with all cores, as the server starts them
 *
 * Of both rings the generator chooses how many lanes it uses: it does so in a longer turn that comes first and is not
 * measured. Prints one table in Markdown. */
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/wire/message.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	PARTS = 2,
	STREAMS_MOST = 32,
	ROUNDS_MOST = 64,
	TOKENS = 48, // of one stream; of several fewer each
	FIRST = 40,  // of each in the first turn
	SHORT = 4,   // tokens of a prompt that is not what is measured
	PROMPT = 512,
	CONTEXT = 1024,
	PAGES = (STREAMS_MOST * 2 * TOKENS + 2 * PROMPT) / 32
};

struct worker {
	pid_t pid;
	int node, server;
	struct buffer in;
};

// One worker, a ring, of which the last part is asked, or two that know nothing of each other.
struct instance {
	struct worker workers[PARTS];
	int count, asked;        // from this worker on they are asked
	double step_ms, hops_ms; // as it has told last
};

enum kind { ALONE, FLOOR, HALVES, WHOLE, KINDS };

static struct {
	const char *binary, *model;
	unsigned layers;
	int cpus[CPU_SETSIZE], cpu_count; // that may be used; threads of a core stand side by side
	int requests, ids;
} bench;

static void require(bool condition, const char *what)
{
	if (condition)
		return;
	perror(what);
	exit(1);
}

// ---- workers ----

// The first processor of the core of this one: of "0,64" and "0-1" it is 0.
static int core_of(int cpu)
{
	char path[96];
	int first = cpu;
	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
	FILE *file = fopen(path, "r");
	if (!file)
		return cpu;
	if (fscanf(file, "%d", &first) != 1)
		first = cpu;
	fclose(file);
	return first;
}

static int by_core(const void *a, const void *b)
{
	const int cpus[2] = {*(const int *)a, *(const int *)b}, cores[2] = {core_of(cpus[0]), core_of(cpus[1])};
	return cores[0] != cores[1] ? cores[0] - cores[1] : cpus[0] - cpus[1];
}

static void find_cpus(void)
{
	cpu_set_t usable;
	require(!sched_getaffinity(0, sizeof(usable), &usable), "asking for processors");
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET((size_t)cpu, &usable))
			bench.cpus[bench.cpu_count++] = cpu;
	qsort(bench.cpus, (size_t)bench.cpu_count, sizeof(int), by_core);
	require(bench.cpu_count >= PARTS, "two processors");
}

static void use_cpus(int first, int count)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	for (int i = first; i < first + count; i++)
		CPU_SET((size_t)bench.cpus[i], &set);
	require(!sched_setaffinity(0, sizeof(set), &set), "setting processors");
}

static void start_worker(struct worker *worker, int in, int out, int first_cpu, int cpus)
{
	int node[2], server[2], model = open(bench.model, O_RDONLY);
	require(model >= 0, bench.model);
	require(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, node), "a socket");
	require(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, server), "a socket");
	worker->pid = fork();
	if (!worker->pid) {
		const int from[] = {node[1], server[1], model, in, out};
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		use_cpus(first_cpu, cpus);
		for (int i = 0; i < 5; i++)
			dup2(from[i], 100 + i);
		for (int i = 0; i < 5 && from[i] >= 0; i++)
			dup2(100 + i, 3 + i);
		for (int i = in >= 0 ? 8 : 6; i < 128; i++)
			close(i);
		execl(bench.binary, "exogpu", "worker", NULL);
		_exit(127);
	}
	close(node[1]);
	close(server[1]);
	close(model);
	worker->node = node[0];
	worker->server = server[0];
	buffer_init(&worker->in, LIMIT_WORKER_MESSAGE_BYTES);
}

static int post(int fd, const char *method, const char *params)
{
	struct buffer head, out;
	buffer_init(&head, LIMIT_HEAD_BYTES);
	buffer_init(&out, LIMIT_HEAD_BYTES + 8);
	buffer_printf(&head, "{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"%s\",\"params\":{%s}}", ++bench.ids, method,
		      params);
	require(!message_encode_stream(&out, (const char *)head.data, head.length, NULL, 0) &&
			send(fd, out.data, out.length, MSG_NOSIGNAL) == (ssize_t)out.length,
		"a call");
	buffer_finish(&head);
	buffer_finish(&out);
	return bench.ids;
}

// One message, if all of it has come; to be finished, before the next.
static bool take(struct worker *worker, struct message *message)
{
	static struct buffer frame;
	const uint8_t *bytes;
	size_t length, used = 0;
	require(!message_next(&worker->in, &bytes, &length, &used), "a message");
	if (!used)
		return false;
	if (!frame.maximum)
		buffer_init(&frame, LIMIT_WORKER_MESSAGE_BYTES);
	buffer_clear(&frame);
	buffer_append(&frame, bytes, length);
	buffer_consume(&worker->in, used);
	require(!message_decode(message, frame.data, frame.length, NULL), "a message");
	if (message->kind != MESSAGE_ERROR)
		return true;
	fprintf(stderr, "ring: %s\n", json_get_string(message->error, "message", ""));
	exit(1);
}

static void receive(struct worker *worker, int fd)
{
	require(!buffer_reserve(&worker->in, 65536), "memory");
	ssize_t got = recv(fd, worker->in.data + worker->in.length, 65536, 0);
	require(got > 0, "a worker has ended");
	worker->in.length += (size_t)got;
}

// The next message of one of those that are asked.
static void take_any(struct instance *instance, struct message *message)
{
	struct pollfd polled[PARTS];
	const int count = instance->count - instance->asked;
	struct worker *workers = instance->workers + instance->asked;
	for (;;) {
		for (int i = 0; i < count; i++) {
			if (take(&workers[i], message))
				return;
			polled[i] = (struct pollfd){.fd = workers[i].server, .events = POLLIN};
		}
		require(poll(polled, (nfds_t)count, -1) > 0, "waiting for a worker");
		for (int i = 0; i < count; i++)
			if (polled[i].revents)
				receive(&workers[i], polled[i].fd);
	}
}

static void wait_answer(struct worker *worker, int fd, int id)
{
	for (int64_t got = 0; got != id;) {
		struct message message;
		while (!take(worker, &message))
			receive(worker, fd);
		got = message.kind == MESSAGE_RESULT ? json_get_integer(message.head, "id", 0) : 0;
		message_finish(&message);
	}
}

static void begin(struct instance *instance, int count, bool ring, bool halves)
{
	int hops[PARTS][2];
	*instance = (struct instance){.count = count, .asked = ring ? count - 1 : 0};
	for (int i = 0; i < count; i++)
		require(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, hops[i]), "a socket");
	for (int i = 0; i < count; i++) {
		struct worker *worker = &instance->workers[i];
		int half = bench.cpu_count / 2;
		start_worker(worker, ring ? hops[(i + count - 1) % count][1] : -1, ring ? hops[i][0] : -1,
			     halves ? i * half : 0, halves ? half : bench.cpu_count);
		wait_answer(worker, worker->node,
			    post(worker->node, "worker.instance",
				 ring ? "\"backend\":\"cpu\",\"cache_directory\":null,\"ring\":true"
				      : "\"backend\":\"cpu\",\"cache_directory\":null"));
	}
	for (int i = 0; i < count; i++) {
		char params[1024], part[256] = "";
		unsigned first = ring ? bench.layers * (unsigned)i / (unsigned)count : 0;
		unsigned end = ring ? bench.layers * (unsigned)(i + 1) / (unsigned)count : bench.layers;
		struct worker *worker = &instance->workers[i];
		if (ring)
			snprintf(part, sizeof(part),
				 ",\"part\":{\"instance_id\":\"ins_1\",\"epoch\":1,\"index\":%d,\"count\":%d,"
				 "\"lanes\":%d,\"activations\":\"f32\",\"last_layer\":%u}",
				 i, count, count, end);
		snprintf(params, sizeof(params),
			 "\"stages\":[{\"hardware_key\":\"cpu\",\"first_layer\":%u,\"layer_count\":%u,"
			 "\"host_layers\":0}],\"context_tokens\":%d,\"page_count\":%d,\"batch_rows\":512,"
			 "\"sequences\":%d%s",
			 first, end - first, CONTEXT, PAGES, STREAMS_MOST, part);
		wait_answer(worker, worker->server, post(worker->server, "instance.load", params));
		close(hops[i][0]);
		close(hops[i][1]);
	}
	struct worker *last = &instance->workers[count - 1];
	if (ring)
		wait_answer(last, last->server, post(last->server, "instance.check", ""));
}

static void end(struct instance *instance)
{
	for (int i = 0; i < instance->count; i++) {
		close(instance->workers[i].node);
		close(instance->workers[i].server);
		waitpid(instance->workers[i].pid, NULL, 0);
		buffer_finish(&instance->workers[i].in);
	}
}

// ---- measuring ----

// `streams` requests at once. Milliseconds a token while all of them generate; of a prompt, by its token.
static double ask(struct instance *instance, int streams, int prompt, int tokens)
{
	const int asked = instance->count - instance->asked;
	char *params = malloc(32768);
	int64_t first_ns = 0, last_ns = 0, began_ns = clock_steady_ns(), before = bench.requests;
	for (int i = 0; i < streams; i++) {
		int length = snprintf(params, 32768,
				      "\"request\":%d,\"owner\":0,\"ignore_end\":true,\"max_tokens\":%d,"
				      "\"sampling\":{\"temperature\":0},\"prompt\":{\"tokens\":[",
				      ++bench.requests, tokens);
		for (int j = 0; j < prompt; j++)
			length += snprintf(params + length, (size_t)(32768 - length), "%s%d", j ? "," : "",
					   100 + (i * 31 + j * 7) % 400);
		snprintf(params + length, (size_t)(32768 - length), "]}");
		post(instance->workers[instance->asked + i % asked].server, "generate.start", params);
	}
	free(params);
	int made = 0, left = streams;
	bool begun[STREAMS_MOST] = {false};
	for (int ends = 0; ends < streams;) {
		struct message message;
		take_any(instance, &message);
		const char *method = message.method ? message.method : "";
		const struct json *timing = json_get(message.params, "timing");
		ends += !strcmp(method, "generate.end");
		last_ns = ends && !last_ns ? clock_steady_ns() : last_ns;
		if (!strcmp(method, "generate.delta")) {
			bool *first = &begun[json_get_integer(message.params, "request", 0) - before - 1];
			made += first_ns && !ends ? (int)json_count(json_get(message.params, "tokens")) : 0;
			left -= !*first;
			*first = true;
			if (!left && !first_ns)
				first_ns = clock_steady_ns();
		}
		if (json_type(timing) == JSON_OBJECT) {
			instance->step_ms = json_get_number(timing, "step_ms", 0);
			instance->hops_ms = json_get_number(timing, "hops_ms", 0);
		}
		message_finish(&message);
	}
	if (tokens == 1)
		return (double)(last_ns - began_ns) * 1e-6 / prompt;
	require(made > 0, "tokens after the first of each");
	return (double)(last_ns - first_ns) * 1e-6 / made;
}

static int by_size(const void *a, const void *b)
{
	double first = *(const double *)a, second = *(const double *)b;
	return (first > second) - (first < second);
}

// Of those that there are, in turn; the first is what the others are compared with.
static void measure(struct instance *const instances[KINDS], int streams, int prompt, int tokens, int rounds)
{
	double figures[KINDS][ROUNDS_MOST], of_one = 0;
	for (int i = -1; i < rounds; i++)
		for (int j = 0; j < KINDS; j++) {
			if (!instances[j])
				continue;
			double figure = ask(instances[j], streams, prompt, i < 0 && tokens > 1 ? FIRST : tokens);
			if (i >= 0)
				figures[j][i] = figure;
		}
	if (tokens == 1)
		printf("| a prompt of %d |", prompt);
	else
		printf("| %d stream%s |", streams, streams > 1 ? "s" : "");
	for (int j = 0; j < KINDS; j++) {
		if (!instances[j]) {
			printf(" |");
			continue;
		}
		qsort(figures[j], (size_t)rounds, sizeof(double), by_size);
		const double median = figures[j][rounds / 2];
		of_one = j ? of_one : median;
		printf(j ? " %.3f, %+.1f %% |" : " %.3f |", median, 100 * (median / of_one - 1));
	}
	printf(" %.2f, %.2f |\n", instances[WHOLE]->step_ms, instances[WHOLE]->hops_ms);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	static const int usual[] = {1, 4, 8, 16, 32, 0, -1};
	struct instance alone, floor, halves, whole;
	int rounds = argc > 4 ? (int)strtol(argv[4], NULL, 10) : 5;
	if (argc < 4 || rounds < 1 || rounds > ROUNDS_MOST) {
		fputs("usage: ring EXOGPU MODEL LAYERS [ROUNDS [STREAMS ...]]\n", stderr);
		return 2;
	}
	bench.binary = argv[1];
	bench.model = argv[2];
	bench.layers = (unsigned)strtoul(argv[3], NULL, 10);
	find_cpus();
	printf("| ms a token | one worker | two, half the streams | ring, half the cores each | ring, all cores each |"
	       " its round, hops |\n| --- | ---: | ---: | ---: | ---: | ---: |\n");
	begin(&alone, 1, false, false);
	begin(&floor, 2, false, true);
	begin(&halves, 2, true, true);
	begin(&whole, 2, true, false);
	for (int i = 0; argc > 5 ? i + 5 < argc : usual[i] >= 0; i++) {
		const int streams = argc > 5 ? (int)strtol(argv[i + 5], NULL, 10) : usual[i];
		struct instance *all[] = {&alone, streams > 1 ? &floor : NULL, streams != 1 ? &halves : NULL, &whole};
		require(streams >= 0 && streams <= STREAMS_MOST, "a number of streams");
		if (streams)
			measure(all, streams, SHORT, streams > 1 ? TOKENS / 2 : TOKENS, rounds);
		else
			measure(all, 1, PROMPT, 1, rounds);
	}
	end(&whole);
	end(&halves);
	end(&floor);
	end(&alone);
	return 0;
}
