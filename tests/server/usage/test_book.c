/* The book of usage: what sums count, over tokens, models and devices; what is kept, and for how long; what is stored
 * and read back. */
#include "common/base/limits.h"
#include "server/usage/book.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
// cmocka.h needs the four above it.
#include <cmocka.h>

enum { NOON = 1795867200 / BOOK_DAY_S * BOOK_DAY_S + 12 * BOOK_HOUR_S };

struct seen {
	struct book_sum sums[LIMIT_USAGE_ROWS];
	size_t count;
	int64_t step_s;
};
static struct seen seen;
static struct book *book;

static int setup(void **state)
{
	(void)state;
	return book_create(&book);
}

static int teardown(void **state)
{
	(void)state;
	book_destroy(&book);
	return 0;
}

static void see(void *context, const struct book_sum *sum)
{
	(void)context;
	assert_true(seen.count < LIMIT_USAGE_ROWS);
	seen.sums[seen.count++] = *sum;
}

static void sum(const struct book_query *query)
{
	seen.count = 0;
	assert_int_equal(book_sum(book, query, see, NULL, &seen.step_s), STATUS_OK);
}

static const struct store_counts *of(const char *id)
{
	for (size_t i = 0; i < seen.count; i++)
		if (!strcmp(seen.sums[i].id, id))
			return &seen.sums[i].counts;
	fail_msg("there is no row of %s", id);
	return NULL;
}

static struct book_key key_of(const char *token, const char *model, const char *device)
{
	return (struct book_key){.of = {
					 book_name(book, BOOK_TOKEN, token, token),
					 book_name(book, BOOK_MODEL, model, model),
					 book_name(book, BOOK_DEVICE, device, device),
				 }};
}

// A request as usage.c counts it: once without a device, and once for each.
static void request(int64_t now_s, const char *token, const char *model, const char *devices[2])
{
	const struct store_counts counts = {
		.requests = 1, .prompt_tokens = 10, .cached_tokens = 4, .completion_tokens = 6};
	struct book_key key = key_of(token, model, "");
	book_add(book, now_s, &key, &counts);
	for (int i = 0; i < 2 && devices[i]; i++) {
		struct store_counts more = counts;
		more.device_s = 2;
		more.energy_joules = 100;
		more.energy_source = i ? STORE_ENERGY_INTEGRATED : STORE_ENERGY_COUNTER;
		key = key_of(token, model, devices[i]);
		book_add(book, now_s, &key, &more);
	}
}

static const char *one_device[2] = {"gpu"}, *two_devices[2] = {"gpu", "cpu"};

static void test_a_request_counts_once(void **state)
{
	(void)state;
	request(NOON, "alice", "llama", two_devices);
	request(NOON + 1, "bob", "llama", one_device);
	request(NOON + 2, "alice", "qwen", one_device);
	struct book_query query = {.by = BOOK_TOKEN, .from_s = NOON, .to_s = NOON + 60};
	sum(&query);
	assert_int_equal(seen.count, 2);
	assert_int_equal(of("alice")->requests, 2);
	assert_int_equal(of("alice")->prompt_tokens, 20);
	assert_int_equal(of("alice")->cached_tokens, 8);
	assert_int_equal(of("alice")->completion_tokens, 12);
	assert_true(of("alice")->device_s == 6);
	assert_true(of("alice")->energy_joules == 300);
	assert_int_equal(of("alice")->energy_source, STORE_ENERGY_INTEGRATED); // one part is
	assert_int_equal(of("bob")->energy_source, STORE_ENERGY_COUNTER);
	query.by = BOOK_MODEL;
	sum(&query);
	assert_string_equal(seen.sums[0].id, "llama"); // devices computed longest for it
	assert_int_equal(of("llama")->requests, 2);
	assert_int_equal(of("qwen")->requests, 1);
	query.by = BOOK_DEVICE;
	sum(&query);
	assert_int_equal(of("gpu")->requests, 3);
	assert_int_equal(of("cpu")->requests, 1);
	assert_true(of("gpu")->device_s == 6);
	query.token_id = "bob";
	sum(&query);
	assert_int_equal(seen.count, 1);
	assert_int_equal(of("gpu")->requests, 1);
	query.token_id = "nobody";
	sum(&query);
	assert_int_equal(seen.count, 0);
}

static void test_idle_belongs_to_nobody(void **state)
{
	(void)state;
	const struct store_counts idle = {.idle_joules = 50, .energy_source = STORE_ENERGY_COUNTER};
	const struct book_key key = key_of("", "", "gpu");
	request(NOON, "alice", "llama", one_device);
	book_add(book, NOON, &key, &idle);
	struct book_query query = {.by = BOOK_DEVICE, .from_s = NOON, .to_s = NOON + 60};
	sum(&query);
	assert_true(of("gpu")->idle_joules == 50);
	assert_true(of("gpu")->energy_joules == 100);
	query.by = BOOK_TOKEN;
	sum(&query);
	assert_int_equal(seen.count, 1);
	assert_true(of("alice")->idle_joules == 0);
	query.by = BOOK_DEVICE;
	query.token_id = "alice";
	sum(&query);
	assert_true(of("gpu")->idle_joules == 0);
}

static void test_steps(void **state)
{
	(void)state;
	for (int hour = 0; hour < 30; hour++)
		request(NOON + (int64_t)hour * BOOK_HOUR_S, "alice", "llama", one_device);
	struct book_query query = {
		.by = BOOK_TOKEN, .from_s = NOON, .to_s = NOON + (int64_t)30 * BOOK_HOUR_S, .step_s = BOOK_HOUR_S};
	sum(&query);
	assert_int_equal(seen.count, 30);
	assert_int_equal(seen.sums[29].at_s, NOON + (int64_t)29 * BOOK_HOUR_S);
	query.step_s = 1;
	sum(&query);
	assert_int_equal(seen.step_s, BOOK_HOUR_S);
	assert_int_equal(seen.count, 30);
	query.step_s = BOOK_DAY_S;
	sum(&query);
	assert_int_equal(seen.count, 2);
	assert_int_equal(seen.sums[0].counts.requests, 12);
	assert_int_equal(seen.sums[1].counts.requests, 18);
	query.step_s = 0;
	sum(&query);
	assert_int_equal(seen.count, 1);
	assert_int_equal(seen.sums[0].at_s, NOON);
	query.from_s = NOON + BOOK_HOUR_S; // and what is not asked for is left out
	query.to_s = NOON + (int64_t)3 * BOOK_HOUR_S;
	sum(&query);
	assert_int_equal(seen.sums[0].counts.requests, 2);
}

static void test_hours_go_and_days_stay(void **state)
{
	(void)state;
	for (int day = 0; day < 400; day++)
		request(NOON + (int64_t)day * BOOK_DAY_S, "alice", "llama", one_device);
	const int64_t last_s = NOON + (int64_t)399 * BOOK_DAY_S;
	struct book_query query = {.by = BOOK_TOKEN, .from_s = 0, .to_s = last_s + BOOK_DAY_S, .step_s = BOOK_DAY_S};
	sum(&query);
	assert_int_equal(seen.count, 367); // a year, and this day
	query.from_s = last_s - (int64_t)7 * BOOK_DAY_S;
	query.step_s = BOOK_HOUR_S;
	sum(&query);
	assert_int_equal(seen.count, 8);
	assert_int_equal(seen.sums[0].at_s % BOOK_DAY_S, 12 * BOOK_HOUR_S);
	query.from_s = last_s - (int64_t)20 * BOOK_DAY_S; // of which there are no hours any more
	sum(&query);
	assert_int_equal(seen.step_s, BOOK_DAY_S);
	assert_int_equal(seen.count, 21);
}

static void test_a_clock_that_goes_back(void **state)
{
	(void)state;
	request(NOON, "alice", "llama", one_device);
	request(NOON - (int64_t)3 * BOOK_HOUR_S, "alice", "llama", one_device);
	sum(&(struct book_query){.by = BOOK_TOKEN, .from_s = NOON, .to_s = NOON + 60});
	assert_int_equal(of("alice")->requests, 2);
}

static void test_bounds(void **state)
{
	(void)state;
	char token[32];
	for (int i = 0; i < LIMIT_USAGE_KEYS + 100; i++) {
		snprintf(token, sizeof token, "token%d", i);
		request(NOON, token, "llama", one_device);
	}
	struct book_query query = {.by = BOOK_TOKEN, .from_s = NOON, .to_s = NOON + 60};
	sum(&query);
	int64_t requests = 0;
	for (size_t i = 0; i < seen.count; i++)
		requests += seen.sums[i].counts.requests;
	assert_int_equal(requests, LIMIT_USAGE_KEYS + 100);
	assert_true(of("others")->requests > 0);
	assert_true(seen.count <= LIMIT_USAGE_KEYS);
	query.by = BOOK_DEVICE;
	sum(&query);
	requests = of("gpu")->requests + of("others")->requests;
	assert_int_equal(requests, LIMIT_USAGE_KEYS + 100);
}

static void test_an_answer_is_bounded(void **state)
{
	(void)state;
	char token[32];
	for (int hour = 0; hour < 24; hour++)
		for (int i = 0; i < 200; i++) {
			snprintf(token, sizeof token, "token%d", i);
			request(NOON + (int64_t)hour * BOOK_HOUR_S, token, "llama", one_device);
		}
	sum(&(struct book_query){
		.by = BOOK_TOKEN, .from_s = NOON, .to_s = NOON + (int64_t)24 * BOOK_HOUR_S, .step_s = BOOK_HOUR_S});
	assert_true(seen.count <= LIMIT_USAGE_ROWS);
	assert_true(seen.step_s > BOOK_HOUR_S);
	int64_t requests = 0;
	for (size_t i = 0; i < seen.count; i++)
		requests += seen.sums[i].counts.requests;
	assert_int_equal(requests, 24 * 200);
}

static size_t put(void)
{
	size_t count;
	struct store_batch *batch = NULL;
	assert_int_equal(store_batch_create(&batch), STATUS_OK);
	assert_int_equal(book_put(book, batch, 100, &count), STATUS_OK);
	store_batch_destroy(&batch);
	return count;
}

static void test_what_is_not_stored_is_put_again(void **state)
{
	(void)state;
	request(NOON, "alice", "llama", one_device);
	request(NOON, "bob", "llama", one_device);
	assert_int_equal(put(), 8); // two requests with a row of their own and one of a device, in the hour and the day
	request(NOON, "alice", "llama", one_device); // while these are being stored
	book_put_ended(book, true);
	assert_int_equal(put(), 4); // and only these
	const int64_t later_s = NOON + (int64_t)3 * BOOK_HOUR_S;
	request(later_s, "bob", "llama", one_device);
	book_put_ended(book, false);
	assert_int_equal(put(), 8); // alice's of noon once more, bob's of the new hour and of the same day
	book_put_ended(book, true);
	assert_int_equal(put(), 0);
	book_put_ended(book, true);
	request(NOON + (int64_t)400 * BOOK_DAY_S, "bob", "llama", one_device);
	assert_int_equal(put(), 6); // in both series what is too old is to go
	book_put_ended(book, false);
	assert_int_equal(put(), 6);
	book_put_ended(book, true);
	assert_int_equal(put(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_a_request_counts_once, setup, teardown),
		cmocka_unit_test_setup_teardown(test_idle_belongs_to_nobody, setup, teardown),
		cmocka_unit_test_setup_teardown(test_steps, setup, teardown),
		cmocka_unit_test_setup_teardown(test_hours_go_and_days_stay, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_clock_that_goes_back, setup, teardown),
		cmocka_unit_test_setup_teardown(test_bounds, setup, teardown),
		cmocka_unit_test_setup_teardown(test_an_answer_is_bounded, setup, teardown),
		cmocka_unit_test_setup_teardown(test_what_is_not_stored_is_put_again, setup, teardown),
	};
	return cmocka_run_group_tests_name("book", tests, NULL, NULL);
}
