/* node.ticket and ticket.*: what lets nodes join without asking. Thread: the loop's. */
#include "common/base/clock.h"
#include "server/api/call.h"

#include <openssl/crypto.h>

static void set_time(struct json *object, const char *name, int64_t at_ms)
{
	char at[CLOCK_TEXT_BYTES];
	json_set_string(object, name, at_ms ? clock_format(at_ms, at) : NULL);
}

// The text waits in call->kept until the ticket is on disk; nobody may hold one that a crash could undo.
static void ticket_made(void *context, enum status status, const struct ticket *ticket, const struct error *error)
{
	struct api_call *call = context;
	struct json *result = NULL;
	if (!status) {
		result = call->kept;
		call->kept = NULL;
		json_set_string(result, "ticket_id", ticket->ticket_id);
		json_set_integer(result, "uses", ticket->uses);
		set_time(result, "expires_at", ticket->expires_ms);
		json_set_string(result, "address", call->api->address[0] ? call->api->address : NULL);
	}
	struct buffer *printed = &call->api->text;
	api_finish(call, status, result, error);
	if (printed->data) // the answer was printed here, the secret in it
		OPENSSL_cleanse(printed->data, printed->length);
}

static enum status node_ticket(struct api_call *call, const struct json *params, struct json **result,
			       struct error *error)
{
	char text[TICKET_TEXT_BYTES];
	const struct ticket_params ticket = {.expires_in_s = json_get_integer(params, "expires_in_s", 0),
					     .uses = json_get_integer(params, "uses", 0),
					     .by = &call->client->actor};
	(void)result;
	call->kept = json_new_object();
	enum status status = tickets_make(call->api->params.tickets, &ticket, text, ticket_made, call, error);
	if (status)
		return status;
	json_set_string(call->kept, "ticket", text);
	OPENSSL_cleanse(text, sizeof text);
	return STATUS_PENDING;
}

static enum status ticket_list(struct api_call *call, const struct json *params, struct json **result,
			       struct error *error)
{
	const struct ticket *ticket;
	struct json *list = json_new_array();
	(void)params, (void)error;
	for (size_t i = 0; (ticket = tickets_at(call->api->params.tickets, i)); i++) {
		struct json *one = json_new_object();
		json_set_string(one, "ticket_id", ticket->ticket_id);
		json_set_string(one, "made_by", ticket->made_by);
		json_set_integer(one, "uses", ticket->uses);
		json_set_integer(one, "used", ticket->used);
		set_time(one, "created_at", ticket->created_ms);
		set_time(one, "expires_at", ticket->expires_ms);
		set_time(one, "revoked_at", ticket->revoked_ms);
		json_push(list, one);
	}
	*result = json_new_object();
	json_set(*result, "tickets", list);
	return STATUS_OK;
}

static void ticket_revoked(void *context, enum status status, const struct ticket *ticket, const struct error *error)
{
	struct api_call *call = context;
	struct json *result = NULL;
	if (!status) {
		result = json_new_object();
		json_set_string(result, "ticket_id", ticket->ticket_id);
	}
	api_finish(call, status, result, error);
}

static enum status ticket_revoke(struct api_call *call, const struct json *params, struct json **result,
				 struct error *error)
{
	(void)result;
	enum status status = tickets_revoke(call->api->params.tickets, json_get_string(params, "ticket_id", ""),
					    &call->client->actor, ticket_revoked, call, error);
	return status ? status : STATUS_PENDING;
}

const struct api_handler ticket_handlers[] = {
	{"node.ticket", .run = node_ticket},
	{"ticket.list", .run = ticket_list},
	{"ticket.revoke", .run = ticket_revoke},
	{0},
};
