/* Parts of a ring that stay while others are replaced, while they become other parts, and while another server takes
 * them up. */
#include "tests/engine/worker/instance/ring_bench.h"

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(another_server_takes_the_parts_up),
		cmocka_unit_test(a_part_is_replaced),
		cmocka_unit_test(parts_move_up_and_back),
		cmocka_unit_test(a_part_is_no_other),
		cmocka_unit_test(parts_that_do_not_agree),
	};
	return cmocka_run_group_tests(tests, make_file, remove_file);
}
