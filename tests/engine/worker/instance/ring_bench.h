/* A model in several workers that are a ring, from outside, for the suites that look at it. The test is node and server
 * of all of them; one hop may be a wire of its own, that passes messages on, loses them, or says something else. */
#pragma once
#include "engine/text/tokenizer.h"
#include "engine/worker/worker.h"
#include "tests/engine/model/reference.h"
#include "tests/engine/worker/worker_test.h"
#include "tests/tools/model_file.h"

#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

enum { PARTS_MOST = 4, LAYERS = 6, TALKS = 64, TOKENS_MOST = 512, TEXT_MOST = 8192, CONTEXT = 256, NO_WIRE = -1 };

// How much is said: less where each access is watched, which takes some ten times as long.
#if defined(__SANITIZE_THREAD__)
enum { SHORT = 20, LONG = 60 };
#else
enum { SHORT = 50, LONG = 100 };
#endif

static struct talk {
	bool ended;
	uint32_t tokens[TOKENS_MOST];
	size_t count, length;
	int64_t proposed_tokens;
	char text[TEXT_MOST], reason[16], error[512];
} talks[TALKS];

struct ring_bench {
	unsigned parts, lanes, pages, rows, sequences;
	const char *activations;
	int wire;          // the hop that is one, by the part that sends; NO_WIRE: none
	int odd;           // the part that is loaded with `odd_more` instead of the others' epoch and pages
	const char *fault; // of the part `odd`
	bool replaced;     // parts will be: their ends of the ring are left in left_in and left_out
	const char *odd_part;
	unsigned odd_pages;
	int models[PARTS_MOST]; // files of the parts; 0: the whole one
};

static struct worker parts[PARTS_MOST];
static unsigned part_count;
static int left_in[PARTS_MOST], left_out[PARTS_MOST];
static struct model_file_open file;
static struct reference *reference;
static struct tokenizer *tokenizer;
static char path[64];
static int states_timed, singles_told;
static struct json *last_result;
static struct error last_error;

// The wire: a thread from one worker's descriptor 7 to the next one's 6.
static struct {
	int from, to;
	pthread_t thread;
	atomic_bool lose, ending;
	atomic_long passed, lost;
} wire;

// ---- what the workers say ----

static inline void take_delta(struct talk *talk, const struct json *params)
{
	const char *text = json_get_string(params, "text", "");
	assert_false(talk->ended);
	assert_true(talk->length + strlen(text) < TEXT_MOST);
	memcpy(talk->text + talk->length, text, strlen(text) + 1);
	talk->length += strlen(text);
	for (const struct json *one = json_first(json_get(params, "tokens")); one; one = json_next(one)) {
		assert_true(talk->count < TOKENS_MOST);
		talk->tokens[talk->count++] = (uint32_t)json_number(one, 0);
	}
}

static inline void take_notification(const struct message *message)
{
	struct error error = {0};
	const struct contract_method *method = contract_find(contract, message->method);
	assert_non_null(method);
	if (contract_check_params(contract, method, message->params, &error))
		fail_msg("%s: %s", message->method, error.message);
	struct talk *talk = &talks[json_get_integer(message->params, "request", 0)];
	if (!strcmp(message->method, "generate.delta"))
		take_delta(talk, message->params);
	if (!strcmp(message->method, "generate.end")) {
		talk->ended = true;
		talk->proposed_tokens = json_get_integer(message->params, "proposed_tokens", 0);
		snprintf(talk->reason, sizeof(talk->reason), "%s", json_get_string(message->params, "reason", ""));
		snprintf(talk->error, sizeof(talk->error), "%s", json_get_string(message->params, "error", ""));
	}
	states_timed += json_type(json_get(message->params, "timing")) == JSON_OBJECT;
	const struct json *took = json_first(json_get(message->params, "steps_took"));
	singles_told += json_get_bool(took, "alone", false) && json_get_number(took, "rows", 0) == 1 &&
			json_count(json_get(took, "parts_ms")) == 2; // of as many parts
}

// One message of a part. Its answer's id; 0 for a notification, -1 at the end of the stream.
static inline int pump(struct worker *worker)
{
	struct answer answer;
	int id = -1;
	if (receive_answer(worker->server, &answer)) {
		id = 0;
		if (answer.message.kind == MESSAGE_NOTIFICATION) {
			take_notification(&answer.message);
		} else {
			id = (int)json_get_integer(answer.message.head, "id", 0);
			json_destroy(&last_result);
			last_error = (struct error){0};
			if (answer.message.kind == MESSAGE_ERROR)
				message_read_error(&answer.message, &last_error);
			else
				last_result = json_copy(answer.message.result);
		}
	}
	answer_finish(&answer);
	return id;
}

static inline enum status answer_of(struct worker *worker, int id, const char *method)
{
	struct error error = {0};
	int got = 0;
	while (got >= 0 && got != id)
		got = pump(worker);
	assert_int_equal(got, id);
	if (!last_error.status && contract_check_result(contract, contract_find(contract, method), last_result, &error))
		fail_msg("%s: %s", method, error.message);
	return last_error.status;
}

static inline struct worker *last(void)
{
	return &parts[part_count - 1];
}

// ---- rings ----

static inline void *pass_on(void *context)
{
	(void)context;
	uint8_t *frame = malloc(LIMIT_WORKER_MESSAGE_BYTES);
	while (!wire.ending) {
		struct pollfd fd = {.fd = wire.from, .events = POLLIN};
		uint32_t total;
		if (poll(&fd, 1, 20) <= 0)
			continue;
		if (!receive_bytes(wire.from, (uint8_t *)&total, 4) || total > LIMIT_WORKER_MESSAGE_BYTES - 4 ||
		    !receive_bytes(wire.from, frame + 4, total))
			break;
		memcpy(frame, &total, 4);
		if (wire.lose)
			wire.lost++;
		else if (send(wire.to, frame, total + 4, MSG_NOSIGNAL) == (ssize_t)(total + 4))
			wire.passed++;
	}
	free(frame);
	return NULL;
}

static inline void hop(const struct ring_bench *bench, int from, int out[2], int in[2])
{
	int pair[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	out[from] = pair[0];
	in[(from + 1) % (int)bench->parts] = pair[1];
	if (from != bench->wire)
		return;
	wire.from = pair[1];
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	wire.to = pair[0];
	in[(from + 1) % (int)bench->parts] = pair[1];
	wire.lose = wire.ending = false;
	wire.passed = wire.lost = 0;
	assert_int_equal(pthread_create(&wire.thread, NULL, pass_on, NULL), 0);
}

static inline void start_part(unsigned index, const int ring[2], const char *fault)
{
	worker_ring[0] = ring[0];
	worker_ring[1] = ring[1];
	worker_start(&parts[index], fault);
	CALL_STATUS(&parts[index], parts[index].node, "worker.instance", STATUS_OK,
		    "'backend':'cpu','cache_directory':null,'ring':%s", ring[0] >= 0 ? "true" : "false");
}

static inline void close_ends(unsigned index)
{
	close(left_in[index]);
	close(left_out[index]);
}

static inline void start_ring(const struct ring_bench *bench)
{
	int out[PARTS_MOST], in[PARTS_MOST];
	part_count = bench->parts;
	memset(talks, 0, sizeof(talks));
	states_timed = singles_told = 0;
	for (unsigned i = 0; i < bench->parts && bench->parts > 1; i++)
		hop(bench, (int)i, out, in);
	for (unsigned i = 0; i < bench->parts; i++) {
		worker_model = bench->models[i] ? bench->models[i] : worker_model;
		start_part(i, bench->parts > 1 ? (int[]){in[i], out[i]} : (int[]){-1, -1},
			   bench->fault && (int)i == bench->odd ? bench->fault : NULL);
	}
	for (unsigned i = 0; i < bench->parts && bench->parts > 1; i++) {
		left_in[i] = in[i];
		left_out[i] = out[i];
		if (!bench->replaced)
			close_ends(i);
	}
}

// What a part is to have: layers from `first` until `end`, as `index` of `count`.
struct share {
	unsigned index, count, first, end;
	const char *epoch;
	unsigned pages;
};

static inline enum status load_share(const struct ring_bench *bench, struct worker *worker, const struct share *share)
{
	char more[512] = "", one[128] = "";
	if (share->count > 1)
		snprintf(more, sizeof(more),
			 ",'part':{'instance_id':'ins_1',%s,'index':%u,'count':%u,'lanes':%u,'activations':'%s',"
			 "'last_layer':%u}",
			 share->epoch, share->index, share->count, bench->lanes, bench->activations, share->end);
	// Two stages in each part, of as many layers or nearly.
	unsigned middle = share->first + (share->end - share->first) / 2;
	if (middle > share->first)
		snprintf(one, sizeof(one), "{'hardware_key':'cpu','first_layer':%u,'layer_count':%u,'host_layers':0},",
			 share->first, middle - share->first);
	int id = post(worker, worker->server, "instance.load", NULL, 0,
		      "'stages':[%s{'hardware_key':'cpu','first_layer':%u,'layer_count':%u,'host_layers':0}],"
		      "'context_tokens':%d,'page_count':%u,'batch_rows':%u,'sequences':%u%s",
		      one, middle, share->end - middle, CONTEXT, share->pages, bench->rows, bench->sequences, more);
	return answer_of(worker, id, "instance.load");
}

static inline enum status load_part(const struct ring_bench *bench, unsigned index)
{
	const bool odd = (int)index == bench->odd;
	const struct share share = {.index = index,
				    .count = bench->parts,
				    .first = LAYERS * index / bench->parts,
				    .end = LAYERS * (index + 1) / bench->parts,
				    .epoch = bench->odd_part && odd ? bench->odd_part : "'epoch':3",
				    .pages = bench->odd_pages && odd ? bench->odd_pages : bench->pages};
	return load_share(bench, &parts[index], &share);
}

static inline enum status check_ring(void)
{
	int id = post(last(), last()->server, "instance.check", NULL, 0, "%s", "");
	return answer_of(last(), id, "instance.check");
}

static inline void load_ring(const struct ring_bench *bench)
{
	for (unsigned i = 0; i < bench->parts; i++)
		if (load_part(bench, i))
			fail_msg("part %u: %s", i, last_error.message);
}

static inline void begin(const struct ring_bench *bench)
{
	start_ring(bench);
	load_ring(bench);
	if (bench->parts > 1 && check_ring())
		fail_msg("%s", last_error.message);
}

static inline void end_wire_thread(void)
{
	wire.ending = true;
	if (wire.thread)
		pthread_join(wire.thread, NULL);
	wire.thread = 0;
}

static inline void end_wire(void)
{
	end_wire_thread();
	if (wire.from)
		close(wire.from);
	if (wire.from)
		close(wire.to);
	wire.from = 0;
}

static inline void end(void)
{
	for (unsigned i = 0; i < part_count; i++)
		assert_int_equal(worker_end(&parts[i], NULL, 0), 0);
	end_wire();
}

static const char *const prompts[] = {"the rain in spain", "once upon a time there was a model that was cut into parts",
				      "a", "numbers: one two three four five six seven eight nine ten eleven twelve "};
enum { PROMPTS = sizeof(prompts) / sizeof(prompts[0]) };

static inline void ask(int number, const char *text, const char *more)
{
	talks[number] = (struct talk){0};
	int id = post(last(), last()->server, "generate.start", NULL, 0,
		      "'request':%d,'owner':%d,'prompt':{'text':'%s'},'ignore_end':true,%s", number, number % 5, text,
		      more);
	if (answer_of(last(), id, "generate.start"))
		fail_msg("%s", last_error.message);
}

// The likeliest tokens, so many of them.
static inline void ask_for(int number, const char *text, int tokens)
{
	char more[64];
	snprintf(more, sizeof(more), "'max_tokens':%d,'sampling':{'temperature':0}", tokens);
	ask(number, text, more);
}

static inline void wait_for_end(int number)
{
	while (!talks[number].ended)
		assert_true(pump(last()) >= 0);
}

// Each token is the likeliest after all before it, but for rounding.
static inline void check_talk(const struct talk *talk, const char *prompt)
{
	uint32_t tokens[2 * TOKENS_MOST], vocabulary = model_shape(file.model)->vocabulary;
	struct token_list list = {0};
	struct error error = {0};
	struct reference_result result;
	const struct tokenize_params params = {
		.text = prompt, .length = strlen(prompt), .special = true, .begin = true};
	assert_int_equal(tokenize(tokenizer, &params, &list, &error), STATUS_OK);
	memcpy(tokens, list.tokens, list.count * sizeof(uint32_t));
	memcpy(tokens + list.count, talk->tokens, talk->count * sizeof(uint32_t));
	const struct reference_run run = {.tokens = tokens, .count = (uint32_t)(list.count + talk->count)};
	reference_run(reference, &run, &result);
	for (size_t i = 0; i < talk->count; i++) {
		const double *logits = &result.logits[(list.count + i - 1) * vocabulary];
		double largest = logits[0], least = logits[0];
		for (uint32_t j = 1; j < vocabulary; j++) {
			largest = logits[j] > largest ? logits[j] : largest;
			least = logits[j] < least ? logits[j] : least;
		}
		if (logits[talk->tokens[i]] < largest - 0.01 * (largest - least))
			fail_msg("token %zu of the answer has logit %f, the likeliest %f", i, logits[talk->tokens[i]],
				 largest);
	}
	reference_result_finish(&result);
	token_list_finish(&list);
}

static const struct ring_bench alone = {.parts = 1, .pages = 64, .rows = 64, .sequences = 8, .wire = NO_WIRE};

static const struct ring_bench two = {
	.parts = 2, .lanes = 2, .pages = 64, .rows = 64, .sequences = 8, .activations = "f32", .wire = NO_WIRE};

static inline int make_file(void **state)
{
	struct model_file small = model_file_small();
	struct error error = {0};
	small.layers = LAYERS;
	snprintf(path, sizeof(path), "/tmp/exogpu-ring-XXXXXX");
	int fd = mkstemp(path);
	if (load_contract(state) || fd < 0 || !model_file_save(&small, path))
		return 1;
	close(fd);
	worker_model = open(path, O_RDONLY | O_CLOEXEC);
	model_file_open(&file, &small);
	reference = reference_create(file.model);
	return worker_model < 0 || tokenizer_create(&tokenizer, file.gguf, &error);
}

static inline int remove_file(void **state)
{
	json_destroy(&last_result);
	reference_destroy(&reference);
	tokenizer_destroy(&tokenizer);
	model_file_close(&file);
	close(worker_model);
	unlink(path);
	return drop_contract(state);
}
