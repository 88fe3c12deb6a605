/* Prefixes that move between workers: what one computed the other goes on from, and what is wrong with a channel harms
 * nobody. One worker plays both sides, for two owners. */
#include "common/base/bytes.h"
#include "tests/engine/worker/channel_test.h"
#include "tests/engine/worker/instance/instance_bench.h"

enum { GIVER = 1, TAKER = 2, PAGES = 64, HEADER = 16 };

static const char prompt[] = "the rain in spain the rain falls in the plain of spain and the rain in the plain is "
			     "the rain of spain as the plain is in spain for the rain and all that falls there is rain";
static const char greedy[] = ",'max_tokens':40,'ignore_end':true,'sampling':{'temperature':0}";

static unsigned channels;

static uint32_t whole_tokens(void)
{
	uint32_t tokens[TOKENS_MOST];
	return (uint32_t)((tokens_of(prompt, tokens) - 1) / STAGE_PAGE_TOKENS * STAGE_PAGE_TOKENS);
}

// A channel's name, and its two ends as a test has them where it plays one side: the worker has the other.
static const char *next_channel(void)
{
	static char name[32];
	snprintf(name, sizeof name, "ch_%u", ++channels);
	return name;
}

// A call whose answer the test itself waits for (wait_answer).
#define POST(method, ...) waited(post(&worker, worker.server, method, NULL, 0, __VA_ARGS__))
static int waited(int id)
{
	method_of[id % 4096] = NULL;
	return id;
}

static int post_take(const char *channel, int owner)
{
	return POST("prefix.take", "'channel':'%s','owner':%d", channel, owner);
}

// taker_tokens: that need not go.
static void post_give(int number, const char *channel, uint32_t taker_tokens)
{
	talks[number] = (struct talk){.used = true};
	ASK("generate.start", "'request':%d,'owner':%d,'prompt':{'text':'%s'},'give':'%s','taker_tokens':%u%s", number,
	    GIVER, prompt, channel, taker_tokens, greedy);
}

// Pump until the call has its answer; the result is last_result.
static void wait_answer(int id)
{
	for (;;) {
		struct answer answer;
		assert_true(receive_answer(worker.server, &answer));
		const bool its = answer.message.kind != MESSAGE_NOTIFICATION &&
				 json_get_integer(answer.message.head, "id", 0) == id;
		if (answer.message.kind == MESSAGE_NOTIFICATION)
			take_notification(&answer.message);
		else
			take_answer(&answer);
		answer_finish(&answer);
		if (its)
			return;
	}
}

static void forget(int owner)
{
	wait_answer(POST("generate.forget", "'owner':%d", owner));
}

static int64_t taken(int id)
{
	wait_answer(id);
	assert_int_equal(last_error.status, STATUS_OK);
	return json_get_integer(last_result, "tokens", -1);
}

static void begin(void)
{
	start_with(NULL);
	load_well(PAGES, 64, 4);
	ask_text(5 + GIVER, prompt, greedy); // owners of these are number % 5
	wait_for_end(5 + GIVER);
	check_talk(&talks[5 + GIVER], prompt);
}

static void check_taker(int number, uint32_t cached)
{
	ask_text(number, prompt, greedy);
	wait_for_end(number);
	assert_int_equal(talks[number].cached_tokens, cached);
	check_talk(&talks[number], prompt);
}

static int64_t cached_of(int owner)
{
	const int id = POST("generate.start",
			    "'request':200,'owner':%d,'prompt':{'text':'%s'},'counts':true,'cached':true", owner,
			    prompt);
	wait_answer(id);
	assert_int_equal(last_error.status, STATUS_OK);
	assert_true(json_get_integer(last_result, "prompt_tokens", 0) > whole_tokens());
	return json_get_integer(last_result, "cached_tokens", -1);
}

// Move the prompt from the giver to the taker, but for the first taker_tokens. Returns the tokens that the taker has
// then; last_result has the bytes.
static int64_t move(int number, uint32_t taker_tokens)
{
	int pair[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	const char *channel = next_channel();
	give_channel(&worker, channel, "out", pair[0], STATUS_OK);
	give_channel(&worker, channel, "in", pair[1], STATUS_OK);
	const int take = post_take(channel, TAKER);
	post_give(number, channel, taker_tokens);
	const int64_t tokens = taken(take);
	wait_for_end(number);
	return tokens;
}

// The other side's answer is the same, and it computes no whole page of the prompt again.
static void what_one_computed_the_other_goes_on_from(void **state)
{
	(void)state;
	start_with(NULL);
	load_well(PAGES, 64, 4);
	assert_true(whole_tokens() > 3 * STAGE_PAGE_TOKENS);
	assert_int_equal(cached_of(TAKER), 0);
	assert_int_equal(move(50, 0), whole_tokens());
	assert_string_equal(talks[50].reason, "length");
	assert_int_equal(talks[50].count, 0);
	assert_int_equal(cached_of(TAKER), whole_tokens());
	assert_int_equal(cached_of(GIVER), whole_tokens());
	check_taker(5 + TAKER, whole_tokens());
	check_taker(10 + 3, 0); // a third one shares nothing
	end_well();
}

static int64_t moved_bytes(uint32_t bare_pages, uint32_t pages)
{
	const struct model_shape *shape = model_shape(file.model);
	const int64_t tokens = (int64_t)(bare_pages + pages) * STAGE_PAGE_TOKENS * 4,
		      groups = (bare_pages > 0) + (pages > 0);
	return HEADER + groups * 4 + tokens + (int64_t)pages * shape->layers * (int64_t)stage_page_bytes(shape) + 4;
}

// Of pages that the taker has the tokens alone go. If it has them no more, it takes nothing and computes all.
static void pages_that_are_there_do_not_go_again(void **state)
{
	(void)state;
	uint32_t tokens[TOKENS_MOST];
	char first[1024];
	begin();
	const uint32_t pages = whole_tokens() / STAGE_PAGE_TOKENS, had = 3;
	tokens_of(prompt, tokens);
	int length = 0;
	for (uint32_t i = 0; i <= had * STAGE_PAGE_TOKENS; i++)
		length += snprintf(first + length, sizeof first - (size_t)length, "%s%u", i ? "," : "", tokens[i]);
	talks[20 + TAKER] = (struct talk){.used = true};
	ASK("generate.start", "'request':%d,'owner':%d,'prompt':{'tokens':[%s]},'max_tokens':1", 20 + TAKER, TAKER,
	    first);
	wait_for_end(20 + TAKER);
	assert_int_equal(cached_of(TAKER), had * STAGE_PAGE_TOKENS);
	assert_int_equal(move(51, had * STAGE_PAGE_TOKENS), whole_tokens());
	assert_int_equal(json_get_integer(last_result, "bytes", 0), moved_bytes(had, pages - had));
	assert_int_equal(talks[51].given_tokens, (pages - had) * STAGE_PAGE_TOKENS);
	check_taker(5 + TAKER, whole_tokens());
	forget(TAKER);
	assert_int_equal(move(52, had * STAGE_PAGE_TOKENS), 0);
	check_taker(10 + TAKER, 0);
	forget(TAKER);
	assert_int_equal(move(53, 0), whole_tokens());
	assert_int_equal(json_get_integer(last_result, "bytes", 0), moved_bytes(0, pages));
	assert_int_equal(move(54, whole_tokens() + 1), whole_tokens()); // it has all of them
	assert_int_equal(json_get_integer(last_result, "bytes", 0), moved_bytes(pages, 0));
	end_well();
}

// Whether the stream has come to its end.
static bool is_whole(const struct buffer *stream)
{
	size_t at = HEADER;
	while (at + 4 <= stream->length) {
		const size_t count = read_u32le(stream->data + at), layers = read_u32le(stream->data + 4),
			     page_bytes = read_u32le(stream->data + 8);
		at += 4 + count * (STAGE_PAGE_TOKENS * sizeof(uint32_t) + layers * page_bytes);
		if (!count)
			return at == stream->length;
	}
	return false;
}

// Read what a giver sends, by a channel whose other end the test has. Returns the bytes of the stream, without heads.
static struct buffer read_given(int number)
{
	int pair[2];
	struct buffer all, raw;
	uint8_t piece[65536];
	ssize_t got;
	buffer_init(&all, 1 << 24);
	buffer_init(&raw, 1 << 24);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	const char *channel = next_channel();
	give_channel(&worker, channel, "out", pair[0], STATUS_OK);
	post_give(number, channel, 0);
	for (bool ended = false; !ended && (got = recv(pair[1], piece, sizeof piece, 0)) > 0;) {
		assert_int_equal(buffer_append(&raw, piece, (size_t)got), STATUS_OK);
		while (raw.length >= 8 && raw.length >= 4 + (size_t)read_u32le(raw.data)) {
			const size_t total = read_u32le(raw.data), head = read_u32le(raw.data + 4);
			buffer_append(&all, raw.data + 8 + head, total - 4 - head);
			buffer_consume(&raw, 4 + total);
		}
		ended = is_whole(&all);
	}
	close(pair[1]);
	wait_for_end(number);
	buffer_finish(&raw);
	return all;
}

// Send a stream in messages of `piece` bytes, from the byte `offset` on, as far as it is read.
static void send_stream(int fd, const uint8_t *bytes, size_t offset, size_t length, size_t piece)
{
	for (size_t now; offset < length; offset += now) {
		struct buffer out;
		char head[128];
		now = length - offset < piece ? length - offset : piece;
		snprintf(head, sizeof head,
			 "{\"jsonrpc\":\"2.0\",\"method\":\"copy.data\",\"params\":{\"offset\":%zu}}", offset);
		buffer_init(&out, 1 << 20);
		assert_int_equal(message_encode_stream(&out, head, strlen(head), bytes + offset, now), STATUS_OK);
		if (send(fd, out.data, out.length, MSG_NOSIGNAL) < 0)
			now = length - offset; // it has closed the channel
		buffer_finish(&out);
	}
}

// A taker's channel: its other end, and the call.
static int begin_take(int *fd)
{
	int pair[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	const char *channel = next_channel();
	give_channel(&worker, channel, "in", pair[1], STATUS_OK);
	*fd = pair[0];
	return post_take(channel, TAKER);
}

// Returns the tokens that a taker took of a stream.
static int64_t send_taken(const uint8_t *bytes, size_t length, size_t piece)
{
	int fd;
	const int take = begin_take(&fd);
	send_stream(fd, bytes, 0, length, piece);
	shutdown(fd, SHUT_WR);
	const int64_t tokens = taken(take);
	close(fd);
	return tokens;
}

// Pages count: with one value altered the answer is another one.
static void an_altered_page_is_another_answer(void **state)
{
	(void)state;
	begin();
	struct buffer stream = read_given(60);
	const uint32_t pages = whole_tokens() / STAGE_PAGE_TOKENS;
	assert_int_equal(read_u32le(stream.data + HEADER), pages);
	assert_int_equal(send_taken(stream.data, stream.length, 1000), whole_tokens());
	check_taker(5 + TAKER, whole_tokens());
	forget(TAKER);
	const size_t data = HEADER + 4 + (size_t)whole_tokens() * 4;
	for (size_t at = data; at < stream.length - 4; at += 2) // another sign for each number
		stream.data[at + 1] ^= 0x80;
	assert_int_equal(send_taken(stream.data, stream.length, 100000), whole_tokens());
	ask_text(10 + TAKER, prompt, greedy);
	wait_for_end(10 + TAKER);
	assert_int_equal(talks[10 + TAKER].cached_tokens, whole_tokens());
	assert_memory_not_equal(talks[10 + TAKER].tokens, talks[5 + TAKER].tokens, 40 * sizeof(uint32_t));
	buffer_finish(&stream);
	end_well();
}

// What is wrong is not taken, and ends its channel alone. What came before it stays.
static void hostile_streams_harm_nobody(void **state)
{
	(void)state;
	begin();
	struct buffer stream = read_given(60);
	const size_t length = stream.length;
	uint8_t *copy = malloc(length + 64);
	assert_non_null(copy);
#define HOSTILE(at, value, tokens) \
	do { \
		memcpy(copy, stream.data, length); \
		put_u32le(copy + (at), (value)); \
		assert_int_equal(send_taken(copy, length, 60000), tokens); \
	} while (0)
	for (size_t at = 0; at < HEADER; at += 4)
		HOSTILE(at, read_u32le(stream.data + at) + 1, 0);
	HOSTILE(HEADER, 0, 0);
	HOSTILE(HEADER, 17, 0);
	HOSTILE(HEADER, UINT32_MAX, 0);
	HOSTILE(HEADER + 4, UINT32_MAX, 0); // a token that the model does not have
	HOSTILE(HEADER + 4, model_shape(file.model)->vocabulary, 0);
	for (size_t cut = 0; cut < length - 4; cut += length / 9)
		assert_int_equal(send_taken(stream.data, cut, 60000), 0);
	assert_int_equal(cached_of(TAKER), 0);
	memcpy(copy, stream.data, length); // two groups, of which the second is wrong
	put_u32le(copy + length - 4, 9999);
	assert_int_equal(send_taken(copy, length, 60000), whole_tokens());
	check_taker(5 + TAKER, whole_tokens());
	free(copy);
	buffer_finish(&stream);
	end_well();
}

// What its requests left is erased when a token is revoked: of pages that come later nothing stays.
static void what_comes_for_a_forgotten_owner_is_dropped(void **state)
{
	(void)state;
	int fd;
	start_with(NULL);
	load_well(CONTEXT / STAGE_PAGE_TOKENS, 64, 4);
	struct buffer stream = read_given(60);
	forget(GIVER);
	const int take = begin_take(&fd);
	send_stream(fd, stream.data, 0, HEADER, 60000);
	forget(TAKER);
	send_stream(fd, stream.data, HEADER, stream.length, 60000);
	assert_int_equal(taken(take), 0);
	assert_int_equal(cached_of(TAKER), 0);
	close(fd);
	check_taker(5 + TAKER, 0); // with all of the memory
	buffer_finish(&stream);
	end_well();
}

// A prefix that does not come to its end holds its pages. Who needs them waits, does not fail, and runs afterwards.
static void a_slow_prefix_delays_others_only(void **state)
{
	(void)state;
	int fd;
	start_with(NULL);
	load_well(CONTEXT / STAGE_PAGE_TOKENS, 64, 4);
	struct buffer stream = read_given(60);
	forget(GIVER);
	const int take = begin_take(&fd);
	send_stream(fd, stream.data, 0, stream.length - 4, 60000); // all but the end
	while (cached_of(TAKER) < whole_tokens())
		;
	ask_text(10 + 3, prompt, greedy);
	for (int i = 0; i < 50; i++)
		assert_int_equal(cached_of(TAKER), whole_tokens());
	assert_true(talks[10 + 3].answered && !talks[10 + 3].ended);
	assert_int_equal(talks[10 + 3].count, 0);
	shutdown(fd, SHUT_WR);
	assert_int_equal(taken(take), whole_tokens());
	close(fd);
	wait_for_end(10 + 3);
	check_talk(&talks[10 + 3], prompt);
	buffer_finish(&stream);
	end_well();
}

// Calls that do not fit, and ends that are gone.
static void wrong_calls_are_refused(void **state)
{
	(void)state;
	int pair[2];
	begin();
	wait_answer(post_take("ch_none", TAKER));
	assert_int_equal(last_error.status, STATUS_NOT_FOUND);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	give_channel(&worker, "ch_once", "in", pair[1], STATUS_OK);
	give_channel(&worker, "ch_once", "in", dup(pair[0]), STATUS_CONFLICT);
	const int first = post_take("ch_once", TAKER);
	wait_answer(post_take("ch_once", TAKER));
	assert_int_equal(last_error.status, STATUS_NOT_FOUND);
	close(pair[0]);
	assert_int_equal(taken(first), 0);
	// Nobody reads what is given: a cancelled request ends at once.
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	give_channel(&worker, "ch_deaf", "out", pair[0], STATUS_OK);
	post_give(61, "ch_deaf", 0);
	while (!talks[61].answered)
		assert_true(pump());
	ASK("generate.cancel", "'request':61");
	wait_for_end(61);
	assert_string_equal(talks[61].reason, "cancelled");
	close(pair[1]);
	// The taker is gone before anything was given.
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	give_channel(&worker, "ch_gone", "out", pair[0], STATUS_OK);
	post_give(62, "ch_gone", 0);
	close(pair[1]);
	wait_for_end(62);
	check_taker(5 + TAKER, 0);
	end_well();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_one_computed_the_other_goes_on_from),
		cmocka_unit_test(pages_that_are_there_do_not_go_again),
		cmocka_unit_test(an_altered_page_is_another_answer),
		cmocka_unit_test(hostile_streams_harm_nobody),
		cmocka_unit_test(what_comes_for_a_forgotten_owner_is_dropped),
		cmocka_unit_test(a_slow_prefix_delays_others_only),
		cmocka_unit_test(wrong_calls_are_refused),
	};
	return cmocka_run_group_tests(tests, make_file, remove_file);
}
