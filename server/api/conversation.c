/* conversation.*: what the holder of a token keeps here of the Playground, for itself alone. Whoever asks for it is
 * told which one was changed (conversation.changed), by its id and version; no text. Thread: the loop's. */
#include "common/base/clock.h"
#include "server/api/call.h"
#include "server/conversations/conversations.h"

#include <string.h>

// The caller's token. NULL: the machine's owner, by the Unix socket, has none, and an error.
static const struct token *own_token(const struct api_call *call, struct error *error)
{
	const struct token *token = call->client->session->token;
	if (token)
		return token;
	error_set(error, STATUS_FORBIDDEN, "a conversation belongs to a token, and this connection has none");
	error_hint(error, "give the server's address and the token whose they are: --url ADDRESS, with EXOGPU_TOKEN");
	return NULL;
}

static struct json *conversation_json(const struct conversation *one)
{
	char at[CLOCK_TEXT_BYTES];
	struct json *json = json_new_object();
	json_set_string(json, "conversation_id", one->conversation_id);
	json_set_integer(json, "version", one->version);
	json_set_string(json, "updated_at", clock_format(one->updated_ms, at));
	json_set_string(json, "expires_at", clock_format(one->expires_ms, at));
	json_set_integer(json, "bytes", (int64_t)one->bytes);
	json_set_bool(json, "deleted", one->deleted);
	return json;
}

static void push(void *context, const struct conversation *one)
{
	json_push(context, conversation_json(one));
}

// ---- those that watch ----

// A newer message of this key replaces one that still waits: whoever gets it lists all of them.
enum { CHANGED_KEY = 0x636f6e76 };

static bool watches(const struct api_client *client, const void *token_id)
{
	const struct token *token = client->session ? client->session->token : NULL;
	return client->watches_conversations && token && !strcmp(token->token_id, token_id);
}

static void changed(void *context, const char *token_id, const struct conversation *one)
{
	struct json *told = json_new_object();
	json_set_string(told, "conversation_id", one->conversation_id);
	json_set_integer(told, "version", one->version);
	api_notify(context, &(struct api_notice){.method = "conversation.changed",
						 .params = told,
						 .key = CHANGED_KEY,
						 .watches = watches,
						 .context = token_id});
}

void api_conversations_begin(struct api *api)
{
	conversations_listen(api->params.conversations, changed, api);
}

void api_conversations_end(struct api *api)
{
	conversations_listen(api->params.conversations, NULL, NULL);
}

// ---- the calls ----

static enum status list(struct api_call *call, const struct json *params, struct json **result, struct error *error)
{
	const struct token *token = own_token(call, error);
	if (!token)
		return STATUS_FORBIDDEN;
	if (json_get(params, "watch"))
		call->client->watches_conversations = json_get_bool(params, "watch", false);
	struct json *all = json_new_array();
	conversations_each(call->api->params.conversations, token, push, all);
	*result = json_new_object();
	json_set(*result, "conversations", all);
	return STATUS_OK;
}

static uint8_t *room(void *context, size_t bytes)
{
	struct net_frame **frame = context;
	*frame = net_frame_alloc(bytes);
	return *frame ? net_frame_data(*frame) : NULL;
}

static enum status read(struct api_call *call, const struct json *params, struct json **result, struct error *error)
{
	const struct token *token = own_token(call, error);
	struct net_frame *frame = NULL;
	struct conversation one;
	(void)result;
	if (!token)
		return STATUS_FORBIDDEN;
	enum status status = conversations_read(call->api->params.conversations, token,
						json_get_string(params, "conversation_id", ""), &one, room, &frame,
						error);
	if (!status)
		api_finish_body(call, conversation_json(&one), frame);
	net_frame_unref(&frame);
	return status ? status : STATUS_PENDING;
}

static void written(void *context, enum status status, const struct conversation *one, size_t count,
		    const struct error *error)
{
	(void)count;
	api_finish(context, status, one ? conversation_json(one) : NULL, error);
}

static enum status write(struct api_call *call, const struct json *params, struct json **result, struct error *error)
{
	const struct conversation_write write = {.token = own_token(call, error),
						 .conversation_id = json_get_string(params, "conversation_id", ""),
						 .version = json_get_integer(params, "version", 0),
						 .bytes = call->body,
						 .length = call->body_bytes,
						 .done = written,
						 .context = call};
	(void)result;
	if (!write.token)
		return STATUS_FORBIDDEN;
	if (!write.length)
		return error_set(error, STATUS_INVALID_PARAMS, "a conversation has at least one byte");
	enum status status = conversations_write(call->api->params.conversations, &write, error);
	return status ? status : STATUS_PENDING;
}

static void deleted(void *context, enum status status, const struct conversation *one, size_t count,
		    const struct error *error)
{
	struct json *result = NULL;
	(void)one;
	if (!status) {
		result = json_new_object();
		json_set_integer(result, "deleted", (int64_t)count);
	}
	api_finish(context, status, result, error);
}

static enum status take_away(struct api_call *call, const struct json *params, struct json **result,
			     struct error *error)
{
	const struct token *token = own_token(call, error);
	const char *id = json_get_string(params, "conversation_id", NULL);
	(void)result;
	if (!token)
		return STATUS_FORBIDDEN;
	if (!id == !json_get_bool(params, "all", false)) {
		error_hint(error, "give conversation_id for one, or all: true");
		return error_set(error, STATUS_INVALID_PARAMS, "say which conversation, or that all are meant");
	}
	enum status status = conversations_delete(call->api->params.conversations, token, id, deleted, call, error);
	return status ? status : STATUS_PENDING;
}

const struct api_handler conversation_handlers[] = {
	{"conversation.list", .run = list},
	{"conversation.read", .run = read},
	{"conversation.write", .run = write},
	{"conversation.delete", .run = take_away},
	{0},
};
