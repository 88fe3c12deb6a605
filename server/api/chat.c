/* chat.*: what somebody sees who may only use models. Whoever asks for it is told what changes (chat.status): a change
 * of a model or an instance, which the topic placement tells, starts a timer, so that several make one message, and
 * what is as it was told is not told again. Thread: the loop's. */
#include "server/api/call.h"

enum { TOGETHER_MS = 100, CHAT_KEY = 0x63686174 }; // CHAT_KEY: a newer message replaces one that still waits

static struct json *status_json(const struct api *api)
{
	struct json *status = json_new_object();
	json_set_bool(status, "load_on_demand", api->params.load_on_demand);
	json_set(status, "models", instances_chat_json(api->params.instances));
	return status;
}

static bool is_watched(const struct api *api)
{
	for (const struct api_client *client = api->clients; client; client = client->next)
		if (client->watches_chat && client->conn)
			return true;
	return false;
}

void api_notify(struct api *api, const struct api_notice *notice)
{
	struct net_frame *frame = NULL;
	buffer_clear(&api->text);
	if (!message_print_call(&api->text, NULL, notice->method, notice->params))
		frame = net_frame_create(api->text.data, api->text.length, true);
	for (struct api_client *client = api->clients, *next; frame && client; client = next) {
		next = client->next;
		if (client->conn && notice->watches(client, notice->context))
			net_conn_send(client->conn, frame, notice->key);
	}
	net_frame_unref(&frame);
}

static bool watches(const struct api_client *client, const void *context)
{
	(void)context;
	return client->watches_chat;
}

static void tell(void *context)
{
	struct api *api = context;
	api->chat.due = false;
	if (!is_watched(api))
		return;
	struct json *status = status_json(api);
	if (api->chat.last && json_equal(api->chat.last, status)) {
		json_destroy(&status);
		return;
	}
	api_notify(api,
		   &(struct api_notice){
			   .method = "chat.status", .params = json_copy(status), .key = CHAT_KEY, .watches = watches});
	json_destroy(&api->chat.last);
	api->chat.last = status;
}

static void heard(void *context)
{
	struct api *api = context;
	if (api->chat.due || !is_watched(api))
		return;
	api->chat.due = true;
	net_timer_start(api->params.loop, &api->chat.timer, TOGETHER_MS, tell, api);
}

void api_chat_begin(struct api *api)
{
	// A drain is told as a change of its devices.
	events_listen(api->params.events, TOPIC_PLACEMENT | TOPIC_INVENTORY, heard, api);
}

void api_chat_end(struct api *api)
{
	events_listen(api->params.events, 0, NULL, NULL);
	net_timer_stop(api->params.loop, &api->chat.timer);
	json_destroy(&api->chat.last);
}

static enum status chat_models(struct api_call *call, const struct json *params, struct json **result,
			       struct error *error)
{
	struct api *api = call->api;
	const struct json *watch = json_get(params, "watch");
	(void)error;
	*result = status_json(api);
	if (!watch)
		return STATUS_OK;
	call->client->watches_chat = json_get_bool(params, "watch", false);
	// What the others were told last may be older than this answer: the next change is told to all.
	json_destroy(&api->chat.last);
	return STATUS_OK;
}

const struct api_handler chat_handlers[] = {{"chat.models", .run = chat_models}, {0}};
