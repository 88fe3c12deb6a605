/* Whose requests share prefixes, and the end of a token's. See requests.h. Thread: the loop's. */
#include "server/instances/requests/requests_inside.h"

#include <stdlib.h>

int64_t generation_owner(struct instances *all, const struct token *token)
{
	if (!token)
		return 1;
	for (size_t i = 0; i < all->owner_count; i++)
		if (all->owners[i] == token)
			return (int64_t)i + 2;
	if (all->owner_count == all->owner_capacity) {
		size_t capacity = all->owner_capacity ? 2 * all->owner_capacity : 16;
		const struct token **owners = realloc(all->owners, capacity * sizeof(*owners));
		if (!owners)
			return 0;
		all->owners = owners;
		all->owner_capacity = capacity;
	}
	all->owners[all->owner_count++] = token;
	return (int64_t)all->owner_count + 1;
}

static void end_in(const struct instance *instance, const struct token *token, const struct error *fault)
{
	for (struct generation *generation = instance->generations; generation;) {
		const bool its = generation->token == token && generation->ended;
		if (its)
			generation_cancel_for(generation, fault);
		generation = its ? instance->generations : generation->next; // others may have gone with it
	}
}

static void end_where(struct instances *all, const struct token *token, const char *why)
{
	struct error fault = {0};
	error_set(&fault, STATUS_UNAUTHENTICATED, "%s", why);
	for (struct instance *one = all->first; one; one = one->next)
		end_in(one, token, &fault);
	for (struct instance *one = demand_next(all, NULL); one; one = demand_next(all, one))
		end_in(one, token, &fault);
}

// Also forget its prefixes on instances. The number is free from now on.
static void forget(struct instances *all, size_t owner)
{
	all->owners[owner] = NULL;
	for (struct instance *one = all->first; one; one = one->next)
		one->forgets |= one->state != INSTANCE_RUNNING || !generations_send_forget(one, (int64_t)owner + 2);
}

void generations_end_token(struct instances *all, const struct token *token, const char *why)
{
	end_where(all, token, why);
	for (size_t i = 0; i < all->owner_count; i++)
		if (all->owners[i] == token)
			forget(all, i);
}

void generations_sweep(struct instances *all)
{
	const int64_t now_ms = token_clock_ms();
	for (size_t i = 0; i < all->owner_count; i++)
		if (all->owners[i] && token_usable(all->owners[i], now_ms, NULL))
			generations_end_token(all, all->owners[i], "the token was revoked or has expired");
}
