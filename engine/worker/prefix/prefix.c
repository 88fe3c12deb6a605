/* The reader's and the driver's sides of moving prefixes. See prefix.h. */
#include "engine/worker/prefix/prefix.h"

#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "engine/worker/copy_stream.h"
#include "engine/worker/instance/instance_spent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TOKENS_BYTES = STAGE_PAGE_TOKENS * sizeof(uint32_t) }; // of a page

uint32_t prefix_layer_count(const struct instance *instance)
{
	return model_shape(instance->model)->layers;
}

uint64_t prefix_page_bytes(const struct instance *instance)
{
	return stage_page_bytes(model_shape(instance->model));
}

bool prefix_possible(const struct instance *instance)
{
	bool possible = instance->generator && !instance->ring && !model_is_recurrent(model_shape(instance->model));
	for (unsigned i = 0; possible && i < instance->stage_count; i++)
		possible = stage_moves_pages(instance->stages[i]);
	return possible;
}

// ---- channels ----

static void destroy(struct prefix_move *move)
{
	generator_prefix_close(&move->prefix);
	close(move->fd);
	pthread_cond_destroy(&move->changed);
	json_destroy(&move->id);
	json_destroy(&move->spent);
	free(move->tokens);
	free(move->group);
	free(move);
}

// Take a move off the list. The lock is held.
static void leave(struct prefix_move *move)
{
	struct prefixes *all = &move->instance->prefixes;
	struct prefix_move **at = &all->list;
	while (*at != move)
		at = &(*at)->next;
	*at = move->next;
	all->count--;
}

// The lock is held.
static void drop_unused(struct prefixes *all)
{
	for (struct prefix_move *move = all->list, *next; move; move = next) {
		next = move->next;
		if (move->begun || !copy_stream_unused(move->fd, move->opened_ns))
			continue;
		leave(move);
		destroy(move);
	}
}

enum status prefix_channel(struct instance *instance, const struct json *params, int fd, struct error *error)
{
	struct prefixes *all = &instance->prefixes;
	const char *id = json_get_string(params, "channel", "");
	bool known = false;
	struct prefix_move *move = calloc(1, sizeof(*move));
	if (!move)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a channel");
	*move = (struct prefix_move){.instance = instance,
				     .gives = !strcmp(json_get_string(params, "end", ""), "out"),
				     .fd = -1,
				     .opened_ns = clock_steady_ns()};
	pthread_cond_init(&move->changed, NULL);
	snprintf(move->channel, sizeof move->channel, "%s", id);
	pthread_mutex_lock(&all->lock);
	drop_unused(all);
	for (const struct prefix_move *one = all->list; one; one = one->next)
		known |= !strcmp(one->channel, id) && one->gives == move->gives;
	if (known)
		error_set(error, STATUS_CONFLICT, "there is a channel of this id");
	else if (all->count >= LIMIT_WORKER_CHANNELS)
		error_set(error, STATUS_LIMIT_EXCEEDED, "a worker has at most %d channels", LIMIT_WORKER_CHANNELS);
	if (!error->status) {
		move->fd = fd;
		move->next = all->list;
		all->list = move;
		all->count++;
	}
	pthread_mutex_unlock(&all->lock);
	if (!error->status)
		return STATUS_OK;
	pthread_cond_destroy(&move->changed);
	free(move);
	return error->status;
}

// The channel of a call, which begins now.
static struct prefix_move *claim(struct instance *instance, const char *id, bool gives, struct error *error)
{
	struct prefixes *all = &instance->prefixes;
	pthread_mutex_lock(&all->lock);
	struct prefix_move *move = all->list;
	while (move && (strcmp(move->channel, id) != 0 || move->gives != gives || move->begun))
		move = move->next;
	if (move)
		move->begun = true;
	pthread_mutex_unlock(&all->lock);
	if (!move)
		error_set(error, STATUS_NOT_FOUND, "this worker has no such channel");
	return move;
}

static void drop(struct prefix_move *move)
{
	pthread_mutex_lock(&move->instance->prefixes.lock);
	leave(move);
	pthread_mutex_unlock(&move->instance->prefixes.lock);
	destroy(move);
}

static enum status begin(struct prefix_move *move, uint64_t owner, struct error *error)
{
	const struct instance *instance = move->instance;
	if (!prefix_possible(instance) || !owner)
		return error_set(error, STATUS_UNAVAILABLE,
				 owner ? "this model's keys and values do not leave its worker"
				       : "a prompt that is shared with nobody stays where it is");
	const uint64_t page_bytes = TOKENS_BYTES + prefix_layer_count(instance) * prefix_page_bytes(instance);
	move->group_most = PREFIX_GROUP_BYTES / page_bytes < PREFIX_GROUP_PAGES
				   ? (uint32_t)(PREFIX_GROUP_BYTES / page_bytes)
				   : PREFIX_GROUP_PAGES;
	move->group_most = move->group_most ? move->group_most : 1;
	move->group = malloc(move->group_most * page_bytes);
	move->owner = owner;
	enum status status = move->group ? generator_prefix_open(instance->generator, &move->prefix, owner, error)
					 : error_set(error, STATUS_OUT_OF_MEMORY, "no memory for pages that move");
	if (!status && !prefix_start(move))
		status = error_set(error, STATUS_OUT_OF_MEMORY, "no thread for pages that move");
	return status;
}

// A bench measures the gain of overlapping by doing without it: EXOGPU_TEST_PREFIX_ALONE, in builds with assertions.
static void await_turn(struct prefix_move *move)
{
#ifndef NDEBUG
	struct prefixes *all = &move->instance->prefixes;
	if (!getenv("EXOGPU_TEST_PREFIX_ALONE") || !move->gives)
		return;
	pthread_mutex_lock(&all->lock);
	while (move->turn == TURN_THREAD && !move->over && !move->stopped && move->group_count) {
		pthread_mutex_unlock(&all->lock);
		usleep(200);
		pthread_mutex_lock(&all->lock);
	}
	pthread_mutex_unlock(&all->lock);
#else
	(void)move;
#endif
}

static void hand_over(struct prefix_move *move)
{
	pthread_mutex_lock(&move->instance->prefixes.lock);
	move->turn = TURN_THREAD;
	pthread_cond_signal(&move->changed);
	pthread_mutex_unlock(&move->instance->prefixes.lock);
	await_turn(move);
}

static void stop(struct prefix_move *move)
{
	pthread_mutex_lock(&move->instance->prefixes.lock);
	move->stopped = true;
	shutdown(move->fd, SHUT_RDWR);
	pthread_cond_signal(&move->changed);
	pthread_mutex_unlock(&move->instance->prefixes.lock);
}

// ---- pages ----

struct group {
	struct prefix_move *move;
	uint32_t count;
};

// Keys and values of a layer in the group: (count) pages.
static uint8_t *layer_of(const struct prefix_move *move, uint32_t count, uint32_t layer)
{
	return move->group + (size_t)count * TOKENS_BYTES + (size_t)layer * count * prefix_page_bytes(move->instance);
}

static enum status read_group(struct prefix_move *move, const uint32_t *pages, uint32_t count, struct error *error)
{
	const struct instance *instance = move->instance;
	enum status status = STATUS_OK;
	for (unsigned s = 0; s < instance->stage_count; s++)
		for (uint32_t layer = 0; layer < prefix_layer_count(instance) && !status; layer++)
			if (stage_has_layer(instance->stages[s], layer))
				status = stage_read_pages(instance->stages[s], layer, pages, count,
							  layer_of(move, count, layer), error);
	return status;
}

static enum status write_group(void *context, const uint32_t *pages, uint32_t first, uint32_t count,
			       struct error *error)
{
	const struct group *group = context;
	const struct instance *instance = group->move->instance;
	enum status status = STATUS_OK;
	for (unsigned s = 0; s < instance->stage_count; s++)
		for (uint32_t layer = 0; layer < prefix_layer_count(instance) && !status; layer++)
			if (stage_has_layer(instance->stages[s], layer))
				status = stage_write_pages(instance->stages[s], layer, pages, count,
							   layer_of(group->move, group->count, layer) +
								   first * prefix_page_bytes(instance),
							   error);
	return status;
}

// A device that fails here has failed: the process ends, as after a step.
static bool is_well(struct instance *instance, enum status status, const struct error *error)
{
	if (status == STATUS_DEVICE_LOST || status == STATUS_TIMEOUT)
		instance_fail(instance, error);
	return !status;
}

// ---- giving ----

void prefix_count(struct instance *instance, const struct order *order)
{
	struct error error = {0};
	struct generator_prefix *prefix = NULL;
	const uint64_t owner = (uint64_t)json_get_integer(order->message.params, "owner", 0);
	uint32_t pages = 0;
	struct json *result = json_new_object();
	if (owner && prefix_possible(instance) && !generator_prefix_open(instance->generator, &prefix, owner, &error))
		pages = generator_prefix_find(prefix, order->prompt.tokens,
					      (uint32_t)(order->prompt.count / STAGE_PAGE_TOKENS));
	generator_prefix_close(&prefix);
	json_set_integer(result, "prompt_tokens", (int64_t)order->prompt_count);
	json_set_integer(result, "cached_tokens", (int64_t)pages * STAGE_PAGE_TOKENS);
	instance_answer(instance, order->message.id, &error, result);
}

static bool first_token(void *context, const struct token_choice *choice)
{
	(void)context, (void)choice;
	return true;
}

static void computed(void *context, enum generator_reason reason, const struct generator_figures *figures,
		     const struct error *error)
{
	struct request *request = context;
	struct prefix_move *move = request->gives;
	(void)error;
	move->spent = instance_spent_json(move->instance, request);
	request->job = NULL;
	move->computed = true;
	move->reason = reason;
	move->figures = *figures;
	instance_wake(move->instance);
}

enum status prefix_give(struct request *request, const struct order *order, struct error *error)
{
	struct instance *instance = request->instance;
	const struct json *params = order->message.params;
	const uint64_t owner = (uint64_t)json_get_integer(params, "owner", 0);
	struct prefix_move *move = claim(instance, json_get_string(params, "give", ""), true, error);
	if (!move)
		return error->status;
	enum status status = STATUS_OK;
	move->wanted = order->prompt.count ? (uint32_t)((order->prompt.count - 1) / STAGE_PAGE_TOKENS) : 0;
	const uint64_t taker_pages = (uint64_t)json_get_integer(params, "taker_tokens", 0) / STAGE_PAGE_TOKENS;
	move->bare = taker_pages < move->wanted ? (uint32_t)taker_pages : move->wanted;
	const size_t count = (size_t)move->wanted * STAGE_PAGE_TOKENS;
	move->tokens = malloc((count ? count : 1) * sizeof(*move->tokens));
	if (!move->tokens)
		status = error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a prompt");
	else
		memcpy(move->tokens, order->prompt.tokens, count * sizeof(*move->tokens));
	if (!status)
		status = begin(move, owner, error);
	if (status) {
		drop(move);
		return status;
	}
	move->request = request;
	request->gives = move;
	const struct generator_request wanted = {.owner = owner,
						 .tokens = move->tokens,
						 .token_count = count,
						 .prompt_count = count,
						 .piece_rows = PREFIX_PIECE_ROWS,
						 .max_tokens = 1,
						 .token = first_token,
						 .ended = computed,
						 .context = request};
	if (generator_prefix_find(move->prefix, move->tokens, move->wanted) == move->wanted)
		computed(
			request, GENERATOR_LENGTH,
			&(struct generator_figures){.prompt_tokens = (uint32_t)count, .cached_tokens = (uint32_t)count},
			NULL);
	else
		status = generator_add(instance->generator, &request->job, &wanted, error);
	if (!status)
		return STATUS_OK;
	request->gives = NULL;
	move->request = NULL;
	stop(move); // prefixes_tend drops it
	return status;
}

// Its job, if it still has one; `computed` is called.
static void remove_job(const struct prefix_move *move)
{
	struct generator_job *job = move->request->job;
	if (job)
		generator_remove(&job);
}

void prefix_cancel(struct request *request)
{
	remove_job(request->gives);
	request->gives->reason = GENERATOR_REMOVED;
	stop(request->gives);
}

static void tell_given(struct prefix_move *move)
{
	struct request *request = move->request;
	const struct generator_figures *figures = &move->figures;
	const bool cancelled = move->reason == GENERATOR_REMOVED;
	struct json *params = json_new_object();
	json_set_integer(params, "request", (int64_t)request->number);
	json_set_string(params, "reason",
			cancelled                          ? "cancelled"
			: move->reason <= GENERATOR_LENGTH ? "length"
							   : "failed");
	json_set_integer(params, "prompt_tokens", request->prompt_tokens);
	json_set_integer(params, "cached_tokens", figures->cached_tokens);
	json_set_integer(params, "generated_tokens", 0);
	const uint32_t given = move->moved > move->bare ? move->moved - move->bare : 0;
	json_set_integer(params, "given_tokens", (int64_t)given * STAGE_PAGE_TOKENS);
	json_set_integer(params, "read_tokens", figures->read_tokens);
	json_set_number(params, "queued_ms", (double)figures->queued_ns * 1e-6);
	json_set_number(params, "prompt_ms", (double)figures->prompt_ns * 1e-6);
	json_set_number(params, "generate_ms", 0);
	json_set(params, "spent", move->spent);
	move->spent = NULL;
	if (move->reason > GENERATOR_REMOVED)
		json_set_string(params, "error", request_broken);
	instance_tell(move->instance, "generate.end", params);
	request_free(request);
}

// The thread has nothing to do: give it the pages that are new, or the end. Those that the taker has need not be here.
static void tend_giving(struct prefix_move *move)
{
	struct error error = {0};
	const uint32_t found = generator_prefix_find(move->prefix, move->tokens, move->wanted);
	const bool bare = move->moved < move->bare;
	const uint32_t until = bare ? move->bare : found, left = until > move->moved ? until - move->moved : 0;
	const uint32_t count = left < move->group_most ? left : move->group_most;
	if (!count && !move->computed)
		return;
	for (size_t i = 0; i < (size_t)count * STAGE_PAGE_TOKENS; i++)
		put_u32le(move->group + 4 * i, move->tokens[(size_t)move->moved * STAGE_PAGE_TOKENS + i]);
	if (count && !bare &&
	    !is_well(move->instance,
		     read_group(move, generator_prefix_pages(move->prefix) + move->moved, count, &error), &error)) {
		log_warning("worker", "pages of a prompt could not be read: %s", error.message);
		stop(move);
		return;
	}
	move->group_count = count; // the thread waits for its turn
	move->group_bare = bare;
	move->moved += count;
	hand_over(move);
}

// ---- taking ----

void prefix_take(struct instance *instance, const struct order *order)
{
	struct error error = {0};
	const struct json *params = order->message.params;
	struct prefix_move *move = claim(instance, json_get_string(params, "channel", ""), false, &error);
	if (move && !begin(move, (uint64_t)json_get_integer(params, "owner", 0), &error))
		move->id = json_copy(order->message.id);
	else if (move)
		drop(move);
	if (error.status)
		instance_answer(instance, order->message.id, &error, NULL);
}

static void tend_taking(struct prefix_move *move)
{
	struct error error = {0};
	uint32_t tokens[PREFIX_GROUP_PAGES * STAGE_PAGE_TOKENS], added = 0;
	const uint32_t count = move->group_count, vocabulary = model_shape(move->instance->model)->vocabulary;
	bool valid = true;
	for (size_t i = 0; i < (size_t)count * STAGE_PAGE_TOKENS; i++) {
		tokens[i] = read_u32le(move->group + 4 * i);
		valid &= tokens[i] < vocabulary;
	}
	struct group group = {.move = move, .count = count};
	const struct generator_pages given = {
		.tokens = tokens, .count = count, .write = move->group_bare ? NULL : write_group, .context = &group};
	if (valid)
		is_well(move->instance, generator_prefix_add(move->prefix, &given, &added, &error), &error);
	move->moved += added;
	if (added == count)
		hand_over(move);
	else
		stop(move); // there is no room, it is wrong, or pages are not here any more
}

static void tell_taken(struct prefix_move *move)
{
	struct json *result = json_new_object();
	json_set_integer(result, "tokens", (int64_t)move->moved * STAGE_PAGE_TOKENS);
	json_set_integer(result, "bytes", (int64_t)move->bytes);
	instance_answer(move->instance, move->id, NULL, result);
}

// ---- all of them ----

// Its thread is over, and nothing is left to be written.
static void finish(struct prefix_move *move)
{
	pthread_join(move->thread, NULL);
	if (move->request) {
		remove_job(move);
		tell_given(move);
	}
	if (move->id)
		tell_taken(move);
	drop(move);
}

static void tend(struct prefix_move *move)
{
	pthread_mutex_lock(&move->instance->prefixes.lock);
	const bool over = move->over, due = move->turn == TURN_DRIVER && !move->stopped;
	pthread_mutex_unlock(&move->instance->prefixes.lock);
	if (over)
		finish(move);
	else if (due && move->gives)
		tend_giving(move);
	else if (due)
		tend_taking(move);
}

// Moves that have begun; the driver alone takes them off the list.
static unsigned list_begun(struct instance *instance, struct prefix_move *begun[LIMIT_WORKER_CHANNELS])
{
	struct prefixes *all = &instance->prefixes;
	unsigned count = 0;
	pthread_mutex_lock(&all->lock);
	for (struct prefix_move *move = all->list; move; move = move->next)
		if (move->begun)
			begun[count++] = move;
	pthread_mutex_unlock(&all->lock);
	return count;
}

void prefixes_tend(struct instance *instance)
{
	struct prefix_move *begun[LIMIT_WORKER_CHANNELS];
	const unsigned count = list_begun(instance, begun);
	for (unsigned i = 0; i < count; i++)
		tend(begun[i]);
}

void prefixes_forget(struct instance *instance, uint64_t owner)
{
	struct prefix_move *begun[LIMIT_WORKER_CHANNELS];
	const unsigned count = list_begun(instance, begun);
	for (unsigned i = 0; i < count; i++) {
		if (owner && begun[i]->owner != owner)
			continue;
		stop(begun[i]);
		generator_prefix_close(&begun[i]->prefix);
	}
}

void prefixes_drop(struct instance *instance)
{
	struct prefixes *all = &instance->prefixes;
	while (all->list) {
		struct prefix_move *move = all->list;
		if (move->begun) {
			stop(move);
			pthread_join(move->thread, NULL);
		}
		if (move->request)
			remove_job(move);
		if (move->request)
			request_free(move->request);
		drop(move);
	}
}
