/* A model in several workers that are a ring, from outside: what they say together is what one alone says. The test is
 * node and server of all of them; one hop may be a wire of its own, that passes messages on, loses them, or says
 * something else. */
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

static void take_delta(struct talk *talk, const struct json *params)
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

static void take_notification(const struct message *message)
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
		snprintf(talk->reason, sizeof(talk->reason), "%s", json_get_string(message->params, "reason", ""));
		snprintf(talk->error, sizeof(talk->error), "%s", json_get_string(message->params, "error", ""));
	}
	states_timed += json_type(json_get(message->params, "timing")) == JSON_OBJECT;
	const struct json *took = json_first(json_get(message->params, "steps_took"));
	singles_told += json_get_bool(took, "alone", false) && json_get_number(took, "rows", 0) == 1 &&
			json_count(json_get(took, "parts_ms")) == 2; // of as many parts
}

// One message of a part. Its answer's id; 0 for a notification, -1 at the end of the stream.
static int pump(struct worker *worker)
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

static enum status answer_of(struct worker *worker, int id, const char *method)
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

static struct worker *last(void)
{
	return &parts[part_count - 1];
}

// ---- rings ----

static void *pass_on(void *context)
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

static void hop(const struct ring_bench *bench, int from, int out[2], int in[2])
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

static void start_part(unsigned index, const int ring[2], const char *fault)
{
	worker_ring[0] = ring[0];
	worker_ring[1] = ring[1];
	worker_start(&parts[index], fault);
	CALL_STATUS(&parts[index], parts[index].node, "worker.instance", STATUS_OK,
		    "'backend':'cpu','cache_directory':null,'ring':%s", ring[0] >= 0 ? "true" : "false");
}

static void close_ends(unsigned index)
{
	close(left_in[index]);
	close(left_out[index]);
}

static void start_ring(const struct ring_bench *bench)
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

static enum status load_share(const struct ring_bench *bench, struct worker *worker, const struct share *share)
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

static enum status load_part(const struct ring_bench *bench, unsigned index)
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

static enum status check_ring(void)
{
	int id = post(last(), last()->server, "instance.check", NULL, 0, "%s", "");
	return answer_of(last(), id, "instance.check");
}

static void load_ring(const struct ring_bench *bench)
{
	for (unsigned i = 0; i < bench->parts; i++)
		if (load_part(bench, i))
			fail_msg("part %u: %s", i, last_error.message);
}

static void begin(const struct ring_bench *bench)
{
	start_ring(bench);
	load_ring(bench);
	if (bench->parts > 1 && check_ring())
		fail_msg("%s", last_error.message);
}

static void end_wire_thread(void)
{
	wire.ending = true;
	if (wire.thread)
		pthread_join(wire.thread, NULL);
	wire.thread = 0;
}

static void end_wire(void)
{
	end_wire_thread();
	if (wire.from)
		close(wire.from);
	if (wire.from)
		close(wire.to);
	wire.from = 0;
}

static void end(void)
{
	for (unsigned i = 0; i < part_count; i++)
		assert_int_equal(worker_end(&parts[i], NULL, 0), 0);
	end_wire();
}

static const char *const prompts[] = {"the rain in spain", "once upon a time there was a model that was cut into parts",
				      "a", "numbers: one two three four five six seven eight nine ten eleven twelve "};
enum { PROMPTS = sizeof(prompts) / sizeof(prompts[0]) };

static void ask(int number, const char *text, const char *more)
{
	talks[number] = (struct talk){0};
	int id = post(last(), last()->server, "generate.start", NULL, 0,
		      "'request':%d,'owner':%d,'prompt':{'text':'%s'},'ignore_end':true,%s", number, number % 5, text,
		      more);
	if (answer_of(last(), id, "generate.start"))
		fail_msg("%s", last_error.message);
}

// The likeliest tokens, so many of them.
static void ask_for(int number, const char *text, int tokens)
{
	char more[64];
	snprintf(more, sizeof(more), "'max_tokens':%d,'sampling':{'temperature':0}", tokens);
	ask(number, text, more);
}

static void wait_for_end(int number)
{
	while (!talks[number].ended)
		assert_true(pump(last()) >= 0);
}

// Each token is the likeliest after all before it, but for rounding.
static void check_talk(const struct talk *talk, const char *prompt)
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

// ---- tests ----

static void the_same_as_alone(void **state)
{
	(void)state;
	static struct talk wanted[PROMPTS];
	begin(&alone);
	for (int i = 0; i < PROMPTS; i++) {
		ask_for(i + 1, prompts[i], SHORT);
		wait_for_end(i + 1);
		wanted[i] = talks[i + 1];
	}
	end();
	for (unsigned count = 2; count <= 3; count++)
		for (unsigned lanes = 1; lanes <= 3; lanes += 2) {
			struct ring_bench bench = two;
			bench.parts = count;
			bench.lanes = lanes;
			begin(&bench);
			assert_int_equal(json_count(json_get(last_result, "parts")), count);
			print_message("%u parts: a round of %.3f ms, token %d, logit %f\n", count,
				      json_get_number(last_result, "round_ms", -1),
				      (int)json_get_integer(last_result, "token", -1),
				      json_get_number(last_result, "logit", -1));
			for (int i = 0; i < PROMPTS; i++) {
				ask_for(i + 1, prompts[i], SHORT);
				wait_for_end(i + 1);
				assert_string_equal(talks[i + 1].reason, "length");
				assert_int_equal(talks[i + 1].count, SHORT);
				assert_memory_equal(talks[i + 1].tokens, wanted[i].tokens, sizeof(wanted[i].tokens));
				assert_string_equal(talks[i + 1].text, wanted[i].text);
			}
			end();
		}
}

static void sixteen_at_once(void **state)
{
	(void)state;
	static const char *const formats[] = {"f32", "f16"};
	for (unsigned i = 0; i < 4; i++) {
		struct ring_bench bench = two;
		bench.parts = 2 + i % 2;
		bench.lanes = 1 + i;
		bench.activations = formats[i / 2];
		begin(&bench);
		for (int j = 1; j <= 16; j++)
			ask_for(j, prompts[j % PROMPTS], SHORT);
		for (int j = 1; j <= 16; j++)
			wait_for_end(j);
		for (int j = 1; j <= 16; j++) {
			assert_string_equal(talks[j].reason, "length");
			assert_int_equal(talks[j].count, SHORT);
			check_talk(&talks[j], prompts[j % PROMPTS]);
		}
		end();
	}
}

// What a step of one row takes is told of one request alone, whose steps have the parts to themselves.
static void a_request_alone_is_timed(void **state)
{
	(void)state;
	begin(&two);
	ask_for(1, prompts[0], 100);
	wait_for_end(1);
	while (!singles_told) // with the state that tells of its end
		assert_true(pump(last()) >= 0);
	end();
}

// Messages are lost for a while, wherever in the ring: the server has them computed again.
static void lost_messages_are_repaired(void **state)
{
	(void)state;
	long lost = 0, cancels = 0, replaced = 0;
	for (unsigned i = 0; i < 3; i++) {
		struct ring_bench bench = two;
		bench.parts = i < 2 ? 2 : 3;
		bench.wire = i != 0;
		bench.lanes = 3;
		bench.pages = 20; // not enough for all at once
		begin(&bench);
		for (int round = 0; round < 2; round++) {
			for (int j = 1; j <= 8; j++)
				ask_for(j, prompts[j % PROMPTS], LONG);
			while (talks[1].count < 20 && talks[2].count < 20)
				assert_true(pump(last()) >= 0);
			wire.lose = true;
			int id = post(last(), last()->server, "generate.cancel", NULL, 0, "'request':3");
			answer_of(last(), id, "generate.cancel");
			for (int j = 0; j < 1000 && !wire.lost; j++) // all may have ended before
				usleep(1000);
			usleep(20000);
			if (round) { // a check that is lost, too, and answered by the next one
				long before = wire.lost;
				id = post(last(), last()->server, "instance.check", NULL, 0, "%s", "");
				for (int j = 0; j < 1000 && wire.lost < before + 2; j++)
					usleep(1000);
				wire.lose = false;
				int second = post(last(), last()->server, "instance.check", NULL, 0, "%s", "");
				replaced += answer_of(last(), id, "instance.check") == STATUS_CONFLICT;
				assert_int_equal(answer_of(last(), second, "instance.check"), STATUS_OK);
			} else {
				wire.lose = false;
				assert_int_equal(check_ring(), STATUS_OK);
			}
			for (int j = 1; j <= 8; j++) {
				wait_for_end(j);
				bool cancelled = j == 3 && !strcmp(talks[j].reason, "cancelled");
				assert_true(cancelled || !strcmp(talks[j].reason, "length"));
				assert_true(cancelled || talks[j].count == LONG);
				cancels += cancelled;
				check_talk(&talks[j], prompts[j % PROMPTS]);
			}
			lost += wire.lost;
			wire.lost = 0;
		}
		end();
	}
	print_message("%ld messages were lost, %ld requests cancelled, %ld checks begun anew\n", lost, cancels,
		      replaced);
	assert_true(lost > 0 && cancels > 0 && replaced > 0);
}

static enum status adopt(unsigned part, int epoch)
{
	int id = post(&parts[part], parts[part].server, "instance.adopt", NULL, 0, "'epoch':%d", epoch);
	return answer_of(&parts[part], id, "instance.adopt");
}

// In any order, with steps and with a check under way. A part that was not told is found out.
static void another_server_takes_the_parts_up(void **state)
{
	(void)state;
	struct ring_bench bench = two;
	bench.parts = 3;
	bench.lanes = 3;
	begin(&bench);
	for (int epoch = 3; epoch < 9; epoch++) {
		for (int j = 1; j <= 4; j++)
			ask_for(j, prompts[j % PROMPTS], 200);
		while (talks[1].count < 5)
			assert_true(pump(last()) >= 0);
		if (epoch % 2)
			post(last(), last()->server, "instance.check", NULL, 0, "%s", "");
		for (unsigned j = 0; j < bench.parts; j++)
			assert_int_equal(adopt((j + (unsigned)epoch) % bench.parts, epoch), STATUS_OK);
		for (int j = 1; j <= 4; j++)
			assert_true(talks[j].ended);
		if (check_ring())
			fail_msg("epoch %d: %s", epoch, last_error.message);
		ask_for(5, prompts[0], 40);
		wait_for_end(5);
		assert_int_equal(talks[5].count, 40);
		check_talk(&talks[5], prompts[0]);
	}
	assert_int_equal(adopt(1, 7), STATUS_CONFLICT);
	assert_int_equal(adopt(2, 9), STATUS_OK);
	assert_int_not_equal(check_ring(), STATUS_OK);
	assert_non_null(strstr(last_error.message, "the epoch is"));
	for (unsigned i = 0; i < part_count; i++)
		worker_end(&parts[i], NULL, 0);
	end_wire();
}

// A part ends, and another takes its place and its ends of the ring; the others stay as they are.
static void a_part_is_replaced(void **state)
{
	(void)state;
	for (int lost = 0; lost < 3; lost++) {
		struct ring_bench bench = two;
		bench.parts = 3;
		bench.wire = NO_WIRE;
		bench.odd = lost;
		bench.replaced = true;
		begin(&bench);
		for (int i = 0; i < 3; i++) // a new last part begins with the first of all rounds
			assert_int_equal(check_ring(), STATUS_OK);
		ask_for(1, prompts[0], 40);
		wait_for_end(1);
		assert_int_equal(worker_end(&parts[lost], NULL, 0), 0);
		start_part((unsigned)lost, (int[]){left_in[lost], left_out[lost]}, NULL);
		bench.odd_part = "'epoch':4";
		assert_int_equal(load_part(&bench, (unsigned)lost), STATUS_OK);
		for (unsigned i = 0; i < bench.parts; i++)
			assert_int_equal((int)i == lost ? STATUS_OK : adopt(i, 4), STATUS_OK);
		if (check_ring())
			fail_msg("part %d: %s", lost, last_error.message);
		ask_for(2, prompts[0], 40);
		wait_for_end(2);
		assert_int_equal(talks[2].count, 40);
		check_talk(&talks[2], prompts[0]);
		end();
		for (unsigned i = 0; i < bench.parts; i++)
			close_ends(i);
	}
}

static enum status adopt_as(struct worker *worker, int epoch, unsigned index, unsigned count)
{
	int id = post(worker, worker->server, "instance.adopt", NULL, 0,
		      "'epoch':%d,'part':{'index':%u,'count':%u,'lanes':%u}", epoch, index, count, count);
	return answer_of(worker, id, "instance.adopt");
}

// A part of what a ring becomes: a worker that stays, and is told of its place, or another one.
struct place {
	int was;                 // the worker's place before; -1: it is new
	unsigned in, out, first; // whose ends of the ring it has, in that of most parts; its first layer
};

static const struct reshaped {
	const char *what;
	unsigned parts, now_parts;
	struct place now[PARTS_MOST];
} shapes[] = {
	{"of three the first is another, with the second's layers", 3, 2, {{-1, 0, 1, 0}, {2, 2, 2, 4}}},
	{"of three the last is another, with the second's layers", 3, 2, {{0, 0, 0, 0}, {-1, 1, 2, 2}}},
	{"of four the first is another, with the second's layers", 4, 3, {{-1, 0, 1, 0}, {2, 2, 2, 3}, {3, 3, 3, 4}}},
	{"of four the last is another, with the third's layers", 4, 3, {{0, 0, 0, 0}, {1, 1, 1, 1}, {-1, 2, 3, 3}}},
};

// A step of the epoch before, from where the part before it is or was, that has been at one part more than a step has
// by now when it comes there.
static void send_past(const struct place *place, unsigned index, int epoch)
{
	static const uint32_t body[4] = {2}; // f32, of no rows
	static const char at[] = ",{'waited_ns':1,'spent_ns':1,'came_bytes':1,'stages_ns':[1]}";
	char head[1024];
	struct buffer out;
	int length = snprintf(head, sizeof(head),
			      "{'jsonrpc':'2.0','method':'ring.step','params':{'epoch':%d,'round':1,'lane':0,'step':9,"
			      "'parts':[%s",
			      epoch - 1, at + 1);
	for (unsigned i = 0; i < index; i++)
		length += snprintf(head + length, sizeof(head) - (size_t)length, "%s", at);
	length += snprintf(head + length, sizeof(head) - (size_t)length, "]}}");
	for (char *quote = head; (quote = strchr(quote, '\''));)
		*quote = '"';
	buffer_init(&out, 4096);
	assert_int_equal(message_encode_stream(&out, head, (size_t)length, body, sizeof(body)), STATUS_OK);
	send_bytes(left_out[place->in - 1], out.data, out.length);
	buffer_finish(&out);
}

// Who does not stay is killed.
static void become(const struct ring_bench *bench, const struct place *now, unsigned count, int epoch)
{
	struct worker was[PARTS_MOST];
	bool stays[PARTS_MOST] = {false};
	char word[32];
	memcpy(was, parts, sizeof(was));
	snprintf(word, sizeof(word), "'epoch':%d", epoch);
	for (unsigned i = 0; i < count; i++)
		if (now[i].was >= 0)
			stays[now[i].was] = true;
	for (unsigned i = 0; i < part_count; i++)
		if (!stays[i]) {
			assert_int_equal(kill(was[i].pid, SIGKILL), 0);
			assert_int_equal(worker_end(&was[i], NULL, 0), -SIGKILL);
		}
	part_count = count;
	for (unsigned i = 0; i < count; i++) {
		const struct share share = {.index = i,
					    .count = count,
					    .first = now[i].first,
					    .end = i + 1 < count ? now[i + 1].first : LAYERS,
					    .epoch = word,
					    .pages = bench->pages};
		if (now[i].was >= 0) {
			parts[i] = was[now[i].was];
			continue;
		}
		start_part(i, (int[]){left_in[now[i].in], left_out[now[i].out]}, NULL);
		assert_int_equal(load_share(bench, &parts[i], &share), STATUS_OK);
	}
	for (unsigned i = 0; i < count; i++)
		if (now[i].was >= 0 && adopt_as(&parts[i], epoch, i, count))
			fail_msg("part %u: %s", i, last_error.message);
	for (unsigned i = 1; i < count; i++)
		if (now[i].was >= 0)
			send_past(&now[i], i, epoch);
	if (check_ring())
		fail_msg("%s", last_error.message);
	assert_int_equal(json_count(json_get(last_result, "parts")), count);
}

static void talk_as(const struct talk *wanted)
{
	ask_for(1, prompts[1], SHORT);
	wait_for_end(1);
	assert_int_equal(talks[1].count, wanted->count);
	assert_memory_equal(talks[1].tokens, wanted->tokens, sizeof(wanted->tokens));
	assert_string_equal(talks[1].text, wanted->text);
}

// In the middle of answers parts are lost, others take their layers, and the rest stay, in a ring of fewer: what was on
// its way is left over, in the sockets too, and says it had been at more parts. Then the ring grows back.
static void parts_move_up_and_back(void **state)
{
	(void)state;
	static struct talk wanted;
	begin(&alone);
	ask_for(1, prompts[1], SHORT);
	wait_for_end(1);
	wanted = talks[1];
	end();
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		struct ring_bench bench = two;
		const struct reshaped *shape = &shapes[i];
		struct place back[PARTS_MOST];
		bench.parts = bench.lanes = shape->parts;
		bench.replaced = true;
		print_message("%s\n", shape->what);
		begin(&bench);
		for (int j = 1; j <= 8; j++)
			ask_for(j, prompts[j % PROMPTS], 200);
		while (talks[1].count < 20)
			assert_true(pump(last()) >= 0);
		bench.lanes = shape->now_parts;
		become(&bench, shape->now, shape->now_parts, 4);
		talk_as(&wanted);
		for (unsigned j = 0; j < shape->parts; j++)
			back[j] = (struct place){-1, j, j, LAYERS * j / shape->parts};
		for (unsigned j = 0; j < shape->now_parts; j++)
			if (shape->now[j].was >= 0)
				back[shape->now[j].was].was = (int)j;
		for (int j = 1; j <= 8; j++)
			ask_for(j, prompts[j % PROMPTS], 200);
		while (talks[1].count < 20)
			assert_true(pump(last()) >= 0);
		bench.lanes = shape->parts;
		become(&bench, back, shape->parts, 5);
		talk_as(&wanted);
		for (unsigned j = 0; j < shape->parts; j++)
			close_ends(j);
		end();
	}
}

static void a_part_is_no_other(void **state)
{
	(void)state;
	static const struct {
		unsigned part, index, count;
		int epoch;
		enum status status;
	} asked[] = {
		{0, 1, 3, 4, STATUS_CONFLICT},       // it embeds
		{0, 1, 2, 4, STATUS_CONFLICT},       // and does not predict
		{1, 0, 3, 4, STATUS_CONFLICT},       // it does not embed
		{1, 1, 2, 4, STATUS_CONFLICT},       // nor predict
		{2, 1, 3, 4, STATUS_CONFLICT},       // it predicts
		{2, 0, 2, 4, STATUS_CONFLICT},       // and does not embed
		{2, 1, 2, 3, STATUS_CONFLICT},       // in this epoch it is another one
		{2, 1, 2, 2, STATUS_CONFLICT},       // one that is past
		{1, 3, 3, 4, STATUS_INVALID_PARAMS}, // there are not as many
		{2, 63, 2, 4, STATUS_INVALID_PARAMS}, {2, 64, 65, 4, STATUS_INVALID_PARAMS},
		{0, 0, 1, 4, STATUS_INVALID_PARAMS}, // that is no ring
	};
	struct ring_bench bench = two;
	bench.parts = 3;
	begin(&bench);
	ask_for(1, prompts[0], 20);
	wait_for_end(1);
	const struct talk wanted = talks[1];
	for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
		const enum status status = adopt_as(&parts[asked[i].part], asked[i].epoch, asked[i].index,
						    asked[i].count);
		print_message("%u as %u of %u: %s\n", asked[i].part, asked[i].index, asked[i].count,
			      last_error.message);
		assert_int_equal(status, asked[i].status);
	}
	int id = post(last(), last()->server, "instance.adopt", NULL, 0, "'epoch':4,'part':{'index':1,'count':2}");
	assert_int_equal(answer_of(last(), id, "instance.adopt"), STATUS_INVALID_PARAMS);
	ask_for(2, prompts[0], 20); // all of them are what they were
	wait_for_end(2);
	assert_memory_equal(talks[2].tokens, wanted.tokens, sizeof(wanted.tokens));
	// One that has moved up alone is found out.
	assert_int_equal(adopt_as(last(), 4, 1, 2), STATUS_OK);
	assert_int_equal(adopt(0, 4), STATUS_OK);
	assert_int_equal(adopt(1, 4), STATUS_OK);
	assert_int_not_equal(check_ring(), STATUS_OK);
	print_message("%s\n", last_error.message);
	assert_non_null(strstr(last_error.message, "the number of parts is"));
	for (unsigned i = 0; i < part_count; i++)
		worker_end(&parts[i], NULL, 0);
	begin(&alone);
	assert_int_equal(adopt_as(last(), 4, 1, 2), STATUS_INVALID_PARAMS);
	end();
}

static void parts_that_do_not_agree(void **state)
{
	(void)state;
	static const struct {
		const char *part;
		unsigned pages;
		const char *says;
	} odd[] = {{"'epoch':4", 0, "the epoch is"}, {"'epoch':3", 48, "the number of pages is"}};
	for (unsigned i = 0; i < 6; i++) {
		struct ring_bench bench = two;
		char said[1024];
		bench.parts = 3;
		bench.odd = (int)(i % 3);
		bench.odd_part = odd[i / 3].part;
		bench.odd_pages = odd[i / 3].pages ? odd[i / 3].pages : bench.pages;
		start_ring(&bench);
		load_ring(&bench);
		assert_true(check_ring() != STATUS_OK);
		print_message("%s\n", last_error.message);
		assert_non_null(strstr(last_error.message, odd[i / 3].says));
		struct worker *who = &parts[last_error.message[5] - '1']; // "part 1 of 3"
		while (pump(who) >= 0)
			;
		int failed = 0;
		for (unsigned j = 0; j < part_count; j++) {
			int result = worker_end(&parts[j], said, sizeof(said));
			failed += result != 0 && strstr(said, odd[i / 3].says) != NULL;
		}
		assert_int_equal(failed, 1); // only the one that saw it has ended
	}
}

// What is no part of a ring's talk ends the part that hears it, with a word, and the last part's server hears of it.
static void noise_on_the_ring(void **state)
{
	(void)state;
	static const char head[] = "{\"jsonrpc\":\"2.0\",\"method\":\"ring.step\",\"params\":{\"epoch\":3,"
				   "\"round\":1,\"lane\":0,\"step\":9,\"parts\":[]}}";
	static const uint32_t bodies[][8] = {
		{2, 0, 0, 0},               // activations where tokens are due
		{1, 1, 0, 0, 64},           // no such page
		{1, 0, 1, 1, 1, 256, 0, 0}, // outside the context
		{1, 0, 1, 1, 1, 0, 64, 5},  // no such page of a run
		{1, 0, 1, 1, 1, 0, 0, 512}, // outside the vocabulary
		{1, 0, 9, 9, 1, 0, 0, 0},   // more sequences than there are
		{1, 0, 1, 65, 65, 0, 0, 0}, // more rows
		{1, 9, 0, 0, 0, 0, 0, 0},   // not as long as it says
		{1, 0, 1, 2, 1, 0, 0, 0},   // runs that are not the rows
	};
	for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]) + 3; i++) {
		struct ring_bench bench = two;
		struct buffer out;
		char said[1024];
		bool is_body = i < sizeof(bodies) / sizeof(bodies[0]);
		bench.wire = 1;
		begin(&bench);
		end_wire_thread();
		buffer_init(&out, 4096);
		if (is_body)
			message_encode_stream(&out, head, sizeof(head) - 1, bodies[i], i ? 32 : 16);
		else if (i % 3 == 0)
			message_encode_stream(&out, "{}", 2, NULL, 0);
		else
			buffer_append(&out, i % 3 == 1 ? "\1\0\0\0\0\0\0\0" : "\xff\xff\xff\xff\xff\xff\xff", 8);
		send_bytes(wire.to, out.data, out.length);
		buffer_finish(&out);
		int id = pump(&parts[0]); // its end
		assert_int_equal(id, -1);
		assert_int_equal(worker_end(&parts[0], said, sizeof(said)), WORKER_DEVICE_LOST);
		print_message("%s", said);
		assert_non_null(strstr(said, "previous part"));
		assert_int_equal(worker_end(&parts[1], NULL, 0), 0); // waits, and lives
		end_wire();
	}
}

// What the reference token leads to, whatever the parts are; NAN of one that ends in no answer.
static double expected_logit(const struct ring_bench *bench, uint32_t token)
{
	start_ring(bench);
	load_ring(bench);
	assert_true(json_get_number(last_result, "prompt_row_s", 0) > 0);
	int id = post(last(), last()->server, "instance.check", NULL, 0, "'expected_token':%u,'prompt_row_s':0.1",
		      token);
	const bool answered = answer_of(last(), id, "instance.check") == STATUS_OK;
	const double logit = answered ? json_get_number(last_result, "expected_logit", NAN) : NAN;
	end();
	return logit;
}

static void a_part_that_is_wrong_gives_another_logit(void **state)
{
	(void)state;
	struct ring_bench bench = two;
	begin(&bench);
	const double logit = json_get_number(last_result, "logit", 0);
	const double spread = json_get_number(last_result, "spread", 0);
	const uint32_t token = (uint32_t)json_get_integer(last_result, "token", 0);
	assert_null(json_get(last_result, "expected_logit"));
	end();
	for (bench.parts = 2; bench.parts <= 3; bench.parts++) {
		const double again = expected_logit(&bench, token);
		print_message("%u parts: token %u has a logit of %f, was %f\n", bench.parts, token, again, logit);
		assert_true(fabs(again - logit) < 1e-4 * fabs(logit));
	}
	bench.parts = 3;
	bench.odd = 1;
	bench.fault = "step-wrong:cpu";
	const double wrong = expected_logit(&bench, token);
	print_message("with a part that is wrong it has a logit of %f; the spread is %f\n", wrong, spread);
	assert_true(spread > 0);
	assert_true(fabs(wrong - logit) > 0.2 * spread);
}

static void a_part_that_fails(void **state)
{
	(void)state;
	struct ring_bench bench = two;
	bench.parts = 3;
	bench.odd = 1;
	bench.fault = "step-lost:cpu";
	begin(&bench);
	ask(1, prompts[0], "'max_tokens':50");
	while (pump(&parts[1]) >= 0)
		;
	assert_int_equal(worker_end(&parts[1], NULL, 0), WORKER_DEVICE_LOST);
	usleep(20000);
	for (unsigned i = 0; i < 3; i += 2)
		CALL_STATUS(&parts[i], parts[i].node, "worker.ping", STATUS_OK, "%s", "");
	assert_false(talks[1].ended); // it waits: the server places the rest anew
	assert_int_equal(worker_end(&parts[0], NULL, 0), 0);
	assert_int_equal(worker_end(&parts[2], NULL, 0), 0);
}

static void only_the_last_generates(void **state)
{
	(void)state;
	begin(&two);
	int id = post(&parts[0], parts[0].server, "generate.start", NULL, 0,
		      "'request':1,'owner':0,'prompt':{'text':'a'}");
	assert_int_equal(answer_of(&parts[0], id, "generate.start"), STATUS_CONFLICT);
	id = post(&parts[0], parts[0].server, "generate.cancel", NULL, 0, "'request':1");
	assert_int_equal(answer_of(&parts[0], id, "generate.cancel"), STATUS_OK);
	id = post(&parts[0], parts[0].server, "instance.check", NULL, 0, "%s", "");
	assert_int_equal(answer_of(&parts[0], id, "instance.check"), STATUS_CONFLICT);
	id = post(last(), last()->server, "generate.embed", NULL, 0, "'request':90,'owner':1,'prompt':{'text':'%s'}",
		  prompts[1]);
	assert_int_equal(answer_of(last(), id, "generate.embed"), STATUS_OK);
	assert_int_equal(json_count(json_get(last_result, "embedding")), model_shape(file.model)->embedding);
	// Long enough for a word on how long rounds are.
	for (int i = 0; i < 100 && !states_timed; i++) {
		ask(1, prompts[1], "'max_tokens':150");
		wait_for_end(1);
	}
	assert_true(states_timed > 0);
	end();
}

// Bytes of a tensor in the file.
static void copy_tensor(int fd, enum model_role role, uint32_t layer)
{
	struct model_tensor tensor;
	if (model_tensor(file.model, role, layer, &tensor))
		assert_int_equal(pwrite(fd, tensor.data, tensor.bytes, tensor.data - file.bytes), tensor.bytes);
}

// A file that has what comes before the tensors, and of them those of some layers.
static int make_part_file(unsigned first, unsigned end)
{
	char other[] = "/tmp/exogpu-part-XXXXXX";
	int fd = mkstemp(other);
	uint64_t bytes = gguf_bytes(file.gguf), data = bytes;
	assert_true(fd >= 0 && !unlink(other) && !ftruncate(fd, (off_t)bytes));
	for (size_t i = 0; i < gguf_tensor_count(file.gguf); i++) {
		uint64_t place = (uint64_t)(gguf_tensor(file.gguf, i)->data - file.bytes);
		data = place < data ? place : data;
	}
	assert_int_equal(pwrite(fd, file.bytes, data, 0), data);
	for (enum model_role role = ROLE_TOKEN_EMBEDDING; role < ROLE_COUNT; role++)
		if (role == ROLE_TOKEN_EMBEDDING ? !first : end == LAYERS && role <= ROLE_OUTPUT)
			copy_tensor(fd, role, 0);
		else
			for (unsigned layer = first; layer < end && role > ROLE_OUTPUT; layer++)
				copy_tensor(fd, role, layer);
	return fd;
}

static void files_with_holes(void **state)
{
	(void)state;
	int kept = worker_model;
	struct talk wanted;
	begin(&alone);
	ask_for(1, prompts[1], SHORT);
	wait_for_end(1);
	wanted = talks[1];
	end();
	struct ring_bench bench = two;
	bench.parts = 3;
	for (unsigned i = 0; i < 3; i++)
		bench.models[i] = make_part_file(LAYERS * i / 3, LAYERS * (i + 1) / 3);
	begin(&bench);
	ask_for(1, prompts[1], SHORT);
	wait_for_end(1);
	assert_memory_equal(talks[1].tokens, wanted.tokens, sizeof(wanted.tokens));
	end();
	for (unsigned i = 0; i < 3; i++)
		close(bench.models[i]);
	worker_model = kept;
}

static int make_file(void **state)
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

static int remove_file(void **state)
{
	json_destroy(&last_result);
	reference_destroy(&reference);
	tokenizer_destroy(&tokenizer);
	model_file_close(&file);
	close(worker_model);
	unlink(path);
	return drop_contract(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_same_as_alone),
		cmocka_unit_test(sixteen_at_once),
		cmocka_unit_test(a_request_alone_is_timed),
		cmocka_unit_test(lost_messages_are_repaired),
		cmocka_unit_test(another_server_takes_the_parts_up),
		cmocka_unit_test(a_part_is_replaced),
		cmocka_unit_test(parts_move_up_and_back),
		cmocka_unit_test(a_part_is_no_other),
		cmocka_unit_test(parts_that_do_not_agree),
		cmocka_unit_test(noise_on_the_ring),
		cmocka_unit_test(a_part_that_fails),
		cmocka_unit_test(a_part_that_is_wrong_gives_another_logit),
		cmocka_unit_test(only_the_last_generates),
		cmocka_unit_test(files_with_holes),
	};
	return cmocka_run_group_tests(tests, make_file, remove_file);
}
