/* Parts in browsers: their weights. See parts.h.
 *
 * A browser reads no model file: it is told shape and tensors of its layers (stage.open), gets their bytes piece by
 * piece (stage.write), and is then loaded as any part (instance.load). Pieces are read and hashed by the threads that
 * read for other nodes, so that a file that has changed is noticed; one is read while the one before is on its way. */
#include "server/instances/parts/parts_inside.h"

#include <openssl/crypto.h>
#include <string.h>

enum { PIECE_BYTES = 2 * 1024 * 1024, UNANSWERED_MOST = 2, LOOK_MS = 5000 };

static const char sending[] = "sending its weights";

void parts_tab_stop(struct part *part)
{
	shards_read_cancel(&part->reading);
	OPENSSL_cleanse(part->key, sizeof part->key);
}

static void send_on(struct part *part);

static void written(void *context, enum status status, const struct json *result, const struct error *error)
{
	unsigned which;
	struct parts *parts;
	(void)result;
	if (!parts_ask_answered(context, &parts, &which) || parts->failed || status == STATUS_DEVICE_LOST)
		return;
	struct part *part = &parts->part[which];
	if (status) {
		parts_fail_at(parts, which, sending, error);
		return;
	}
	part->unanswered--;
	parts_limit_step(parts);
	recover_moved(parts->instance);
	instance_parts_moved(parts->instance);
	send_on(part);
}

static void read_piece(void *context, const struct error *error, struct net_frame *frame, const char *sha256)
{
	struct part *part = context;
	struct parts *parts = part->parts;
	struct error fault = error ? *error : (struct error){0};
	struct parts_ask *ask = NULL;
	(void)sha256;
	part->reading = NULL;
	if (parts->failed)
		return;
	if (!error && !(ask = parts_ask_create(parts, part->index, NULL)))
		error_set(&fault, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	if (ask) {
		struct json *params = json_new_object();
		json_set_integer(params, "tensor", (int64_t)part->piece_tensor);
		json_set_integer(params, "offset", (int64_t)part->piece_offset);
		if (instance_worker_write(part->worker, "stage.write", params, frame, (size_t)part->piece_bytes,
					  written, ask, &fault))
			parts_ask_answered(ask, &(struct parts *){NULL}, &(unsigned){0});
	}
	if (fault.status) {
		parts_fail_at(parts, part->index, sending, &fault);
		return;
	}
	part->unanswered++;
	part->loaded_bytes += part->piece_bytes;
	send_on(part);
}

// Read the next piece, or load if all are there.
static void send_on(struct part *part)
{
	struct error error = {0};
	struct parts *parts = part->parts;
	uint64_t offset, bytes;
	if (part->reading || part->unanswered >= UNANSWERED_MOST)
		return;
	while (shards_stage_tensor(parts->file, part->index, part->tensor, &offset, &bytes) &&
	       part->tensor_at == bytes) {
		part->tensor++;
		part->tensor_at = 0;
	}
	if (!shards_stage_tensor(parts->file, part->index, part->tensor, &offset, &bytes)) {
		if (!part->unanswered)
			parts_load(part);
		return;
	}
	const uint64_t left = bytes - part->tensor_at;
	part->piece_tensor = part->tensor;
	part->piece_offset = part->tensor_at;
	part->piece_bytes = left < PIECE_BYTES ? left : PIECE_BYTES;
	part->tensor_at += part->piece_bytes;
	const struct shards_read_params params = {.node_id = part->node_id,
						  .model_id = parts->instance->model_id,
						  .key = part->key,
						  .offset = offset + part->piece_offset,
						  .bytes = (size_t)part->piece_bytes,
						  .done = read_piece,
						  .context = part};
	if (shards_read_start(&part->reading, parts->instance->all->shards, &params, &error))
		parts_fail_at(parts, part->index, sending, &error);
}

static void opened(void *context, enum status status, const struct json *result, const struct error *error)
{
	unsigned which;
	struct parts *parts;
	(void)result;
	if (!parts_ask_answered(context, &parts, &which) || parts->failed || status == STATUS_DEVICE_LOST)
		return;
	if (status) {
		parts_fail_at(parts, which, "making room for its layers", error);
		return;
	}
	parts_limit_step(parts);
	send_on(&parts->part[which]);
}

// What a tab does inside nobody sees; but each message of its ring goes on as one message.
static void look(void *arg)
{
	struct parts *parts = arg;
	struct part *stalled = NULL;
	for (unsigned i = 0; i < parts->count && !stalled; i++) {
		struct part *part = &parts->part[i];
		const struct part *before = &parts->part[(i + parts->count - 1) % parts->count];
		if (part->tab && part->worker && part->hop && before->hop &&
		    silence_keeps(&part->passing, hop_relay_passed(before->hop), hop_relay_passed(part->hop),
				  instances_now(parts->instance->all)))
			stalled = part;
	}
	net_timer_start(parts->loop, &parts->watch, LOOK_MS, look, parts);
	if (stalled)
		instance_worker_fail(stalled->worker, "its tab passes nothing on"); // parts may be gone now
}

void parts_tab_watch(struct parts *parts)
{
	bool any = false;
	for (unsigned i = 0; i < parts->count; i++) {
		parts->part[i].passing = (struct silence_passing){.since_ms = instances_now(parts->instance->all)};
		any |= parts->part[i].tab;
	}
	if (any)
		net_timer_start(parts->loop, &parts->watch, LOOK_MS, look, parts);
}

void parts_tab_send(struct part *part)
{
	struct error error = {0};
	struct parts *parts = part->parts;
	struct parts_ask *ask = parts_ask_create(parts, part->index, NULL);
	uint64_t offset, bytes;
	part->load_bytes = 0;
	for (size_t i = 0; shards_stage_tensor(parts->file, part->index, i, &offset, &bytes); i++)
		part->load_bytes += bytes;
	enum status status = ask ? parts_make_key(part->key) : STATUS_OUT_OF_MEMORY;
	if (!status)
		status = shards_allow(parts->file, part->node_id, part->key);
	if (status) {
		error_set(&error, status, "the server has no memory or no random numbers for it");
	} else {
		struct json *params = shards_stage_json(parts->file, part->index);
		json_set_string(params, "name", parts->instance->model_name);
		json_set_string(params, "version", EXOGPU_VERSION);
		status = instance_worker_call(part->worker, "stage.open", params, opened, ask, &error);
	}
	if (!status)
		return;
	if (ask)
		parts_ask_answered(ask, &(struct parts *){NULL}, &(unsigned){0});
	parts_fail_at(parts, part->index, sending, &error);
}
