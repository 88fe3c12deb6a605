/* The parts of a ring together give the answers of one worker alone, also if messages are lost or wrong, and if parts
 * do not agree. */
#include "tests/engine/worker/instance/ring_bench.h"

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

// With rows for what a text foresees: the same as alone without.
static void proposals_change_no_token(void **state)
{
	(void)state;
	static const char repeats[] = "the rain in spain the rain in spain the rain";
	static const char *const asked[] = {"'max_tokens':150,'sampling':{'temperature':0}",
					    "'max_tokens':150,'sampling':{'temperature':0.3,'seed':7}"};
	static struct talk wanted[2];
	begin(&alone);
	for (int i = 0; i < 2; i++) {
		ask(i + 1, repeats, asked[i]);
		wait_for_end(i + 1);
		wanted[i] = talks[i + 1];
	}
	end();
	for (unsigned lanes = 1; lanes <= 3; lanes += 2) {
		struct ring_bench bench = two;
		char more[128];
		bench.lanes = lanes;
		begin(&bench);
		for (int i = 0; i < 6; i++) { // one by one, then several at once
			snprintf(more, sizeof(more), "%s,'speculate':true", asked[i % 2]);
			ask(i + 1, repeats, more);
			if (i < 2)
				wait_for_end(i + 1);
		}
		for (int i = 0; i < 6; i++) {
			wait_for_end(i + 1);
			assert_string_equal(talks[i + 1].reason, "length");
			assert_int_equal(talks[i + 1].count, 150);
			if (i % 2 == 0)
				check_talk(&talks[i + 1], repeats);
			if (i >= 2)
				continue; // in other steps, prompts may be computed by other kernels
			assert_memory_equal(talks[i + 1].tokens, wanted[i].tokens, sizeof(wanted[0].tokens));
			assert_string_equal(talks[i + 1].text, wanted[i].text);
		}
		end();
	}
}

// Whether rows for foreseen tokens pay is decided with the network time between the parts. In both cases computing
// grows in proportion to the rows, so by computing alone further rows would never pay. In the second case it takes
// almost nothing beside the network time, so they pay.
static void network_time_counts_in_the_price_of_rows(void **state)
{
	(void)state;
	static const char repeats[] = "the rain in spain the rain in spain the rain";
	static const char *const row_s[] = {"1000,2000,4000,8000,16000", "1e-9,2e-9,4e-9,8e-9,16e-9"};
	begin(&two);
	for (int i = 0; i < 2; i++) {
		const int id = post(last(), last()->server, "instance.check", NULL, 0, "'row_s':[%s]", row_s[i]);
		assert_int_equal(answer_of(last(), id, "instance.check"), STATUS_OK);
		ask(i + 1, repeats, "'max_tokens':150,'sampling':{'temperature':0},'speculate':true");
		wait_for_end(i + 1);
		assert_int_equal(talks[i + 1].count, 150);
	}
	assert_int_equal(talks[1].proposed_tokens, 0);
	assert_true(talks[2].proposed_tokens > 0);
	assert_memory_equal(talks[1].tokens, talks[2].tokens, sizeof(talks[1].tokens));
	end();
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
				for (int j = 0; j < (bench.wire ? 20000 : 1000) && wire.lost < before + 2; j++)
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
	assert_true(json_number(json_first(json_get(last_result, "row_s")), 0) > 0);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_same_as_alone),
		cmocka_unit_test(proposals_change_no_token),
		cmocka_unit_test(network_time_counts_in_the_price_of_rows),
		cmocka_unit_test(sixteen_at_once),
		cmocka_unit_test(a_request_alone_is_timed),
		cmocka_unit_test(lost_messages_are_repaired),
		cmocka_unit_test(noise_on_the_ring),
		cmocka_unit_test(a_part_that_is_wrong_gives_another_logit),
		cmocka_unit_test(a_part_that_fails),
		cmocka_unit_test(only_the_last_generates),
		cmocka_unit_test(files_with_holes),
	};
	return cmocka_run_group_tests(tests, make_file, remove_file);
}
