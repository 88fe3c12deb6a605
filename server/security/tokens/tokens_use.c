/* See tokens.h: checks of a single token. */
#include "common/base/clock.h"
#include "server/security/tokens/tokens_inside.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const scope_names[] = {"admin", "observe", "allocate", "compute", "infer", "join"};

uint32_t token_scope_parse(const char *name)
{
	for (unsigned i = 0; i < sizeof scope_names / sizeof *scope_names; i++)
		if (!strcmp(name, scope_names[i]))
			return 1u << i;
	return 0;
}

const char *token_scope_name(unsigned bit)
{
	return bit < sizeof scope_names / sizeof *scope_names ? scope_names[bit] : NULL;
}

char *token_scopes_print(uint32_t scopes, char between, char text[TOKEN_SCOPES_BYTES])
{
	size_t used = 0;
	text[0] = 0;
	for (unsigned bit = 0; token_scope_name(bit); bit++) {
		if (used && scopes & 1u << bit)
			text[used++] = between;
		if (scopes & 1u << bit)
			used += (size_t)snprintf(text + used, TOKEN_SCOPES_BYTES - used, "%s", token_scope_name(bit));
	}
	return text;
}

int64_t token_clock_ms(void)
{
	static int64_t began_wall_ms, began_steady_ms; // at the first call, in tokens_create
	int64_t wall_ms = clock_wall_ms(), steady_ms = clock_steady_ms();
	if (!began_wall_ms) {
		began_wall_ms = wall_ms;
		began_steady_ms = steady_ms;
	}
	int64_t since_ms = began_wall_ms + (steady_ms - began_steady_ms);
	return wall_ms > since_ms ? wall_ms : since_ms;
}

bool token_ended(const struct token *token, int64_t wall_ms)
{
	return token->orphan || token->revoked_ms || (token->expires_ms && token->expires_ms <= wall_ms);
}

bool tokens_live(const struct tokens *tokens, const char *token_id, int64_t wall_ms)
{
	const struct token *token = strlen(token_id) == TOKEN_ID_DIGITS ? tokens_find(tokens, token_id) : NULL;
	return token && !token_ended(token, wall_ms);
}

enum status token_usable(const struct token *token, int64_t wall_ms, struct error *error)
{
	char text[CLOCK_TEXT_BYTES], names[TOKEN_SCOPES_BYTES];
	if (token->revoked_ms) {
		error_set(error, STATUS_UNAUTHENTICATED, "this token was revoked at %s",
			  clock_format(token->revoked_ms, text));
	} else if (token->expires_ms && token->expires_ms <= wall_ms) {
		error_set(error, STATUS_UNAUTHENTICATED, "this token expired at %s",
			  clock_format(token->expires_ms, text));
	} else if (token->orphan) {
		error_set(error, STATUS_UNAUTHENTICATED, "the token that this one was made with is not there");
	} else {
		return STATUS_OK;
	}
	error_hint(error, "ask the machine's owner for a new one: exogpu token create --name NAME --scopes %s",
		   token_scopes_print(token->scopes, ',', names));
	return STATUS_UNAUTHENTICATED;
}

bool token_allows(const struct token *token, uint32_t scope)
{
	return token->scopes & SCOPE_ADMIN || (token->scopes & scope) == scope;
}

static void refill(struct token *token, int64_t steady_ms)
{
	double depth = fmax(1, 2 * token->calls_per_s);
	if (!token->allowance_ms)
		token->allowance = depth;
	else if (steady_ms > token->allowance_ms)
		token->allowance += (double)(steady_ms - token->allowance_ms) / SECOND_MS * token->calls_per_s;
	token->allowance = fmin(token->allowance, depth);
	token->allowance_ms = steady_ms ? steady_ms : 1;
}

enum status token_take_call(struct token *token, int64_t steady_ms, struct error *error)
{
	for (struct token *one = token; one; one = one->parent) {
		if (one->calls_per_s <= 0)
			continue;
		refill(one, steady_ms);
		if (one->allowance >= 1)
			continue;
		double wait_s = (1 - one->allowance) / one->calls_per_s;
		error_set(error, STATUS_RATE_LIMITED, "%s may make %g calls a second",
			  one == token ? "this token" : "the token that this one was made with", one->calls_per_s);
		error_hint(error, "wait %.3f s, or ask for a token with a higher calls_per_s", wait_s);
		return STATUS_RATE_LIMITED;
	}
	for (struct token *one = token; one; one = one->parent)
		if (one->calls_per_s > 0)
			one->allowance -= 1;
	return STATUS_OK;
}

// What it has spent and not won back since.
static double spent(const struct token *token, int64_t per_minute, int64_t steady_ms)
{
	const int64_t since_ms = steady_ms > token->spent_ms ? steady_ms - token->spent_ms : 0;
	return fmax(0, token->spent_tokens - (double)per_minute * (double)since_ms / MINUTE_MS);
}

void token_spend(struct token *token, int64_t tokens, int64_t per_minute, int64_t steady_ms)
{
	if (per_minute <= 0)
		return;
	token->spent_tokens = spent(token, per_minute, steady_ms) + (double)tokens;
	token->spent_ms = steady_ms;
}

int64_t token_wait_s(const struct token *token, int64_t per_minute, int64_t steady_ms)
{
	if (per_minute <= 0 || token->scopes & SCOPE_ADMIN)
		return 0;
	const double over = spent(token, per_minute, steady_ms) - (double)per_minute;
	return over < 0 ? 0 : (int64_t)(over / (double)per_minute * MINUTE_MS / SECOND_MS) + 1;
}
