/* Parts in browsers: their weights. See parts.h.
 *
 * A browser reads no model file: it is told shape and tensors of its layers (stage.open), gets their bytes piece by
 * piece (stage.write), and is then loaded as any part (instance.load). Pieces are read and hashed by the threads that
 * read for other nodes, so that a file that has changed is noticed; one is read while the one before is on its way. A
 * browser that keeps weights of before is asked first, by the hash of each piece, whether it has that one
 * (stage.offer). */
#include "server/instances/parts/parts_inside.h"

#include <openssl/crypto.h>
#include <stdio.h>

enum { PIECE_BYTES = 2 * 1024 * 1024, LOOK_MS = 5000 };

static const char sending[] = "sending its weights";

static void piece_over(struct part_piece *piece)
{
	net_frame_unref(&piece->frame);
	*piece = (struct part_piece){0};
}

void parts_tab_stop(struct part *part)
{
	shards_read_cancel(&part->reading);
	for (unsigned i = 0; i < PART_PIECES; i++)
		piece_over(&part->pieces[i]);
	OPENSSL_cleanse(part->key, sizeof part->key);
}

static void send_on(struct part *part);
static void send_piece(struct part *part, unsigned which, bool offer);

// The piece that was asked about; NULL: nobody waits for the answer any more, or it says that the part has failed.
static struct part_piece *answered_piece(struct parts_ask *ask, struct part **part, enum status status,
					 const struct error *error)
{
	unsigned which;
	struct parts *parts;
	const unsigned piece = ask->piece;
	if (!parts_ask_answered(ask, &parts, &which) || parts->failed || status == STATUS_DEVICE_LOST)
		return NULL;
	if (status) {
		parts_fail_at(parts, which, sending, error);
		return NULL;
	}
	*part = &parts->part[which];
	parts_limit_step(parts);
	return &(*part)->pieces[piece];
}

static void piece_there(struct part *part, struct part_piece *piece)
{
	part->loaded_bytes += piece->bytes;
	piece_over(piece);
	recover_moved(part->parts->instance);
	instance_parts_moved(part->parts->instance);
	send_on(part);
}

static void written(void *context, enum status status, const struct json *result, const struct error *error)
{
	struct part *part;
	struct part_piece *piece = answered_piece(context, &part, status, error);
	(void)result;
	if (piece)
		piece_there(part, piece);
}

static void offered(void *context, enum status status, const struct json *result, const struct error *error)
{
	struct part *part;
	struct part_piece *piece = answered_piece(context, &part, status, error);
	if (piece && json_get_bool(result, "kept", false))
		piece_there(part, piece);
	else if (piece)
		send_piece(part, (unsigned)(piece - part->pieces), false);
}

// Its bytes, or only their hash.
static void send_piece(struct part *part, unsigned which, bool offer)
{
	struct error error = {0};
	struct part_piece *piece = &part->pieces[which];
	struct parts_ask *ask = parts_ask_create(part->parts, part->index, NULL);
	enum status status = STATUS_OUT_OF_MEMORY;
	if (ask) {
		struct json *params = json_new_object();
		json_set_integer(params, "tensor", (int64_t)piece->tensor);
		json_set_integer(params, "offset", (int64_t)piece->offset);
		json_set_string(params, "sha256", piece->sha256);
		ask->piece = which;
		if (offer) {
			json_set_integer(params, "bytes", (int64_t)piece->bytes);
			status = instance_worker_call(part->worker, "stage.offer", params, offered, ask, &error);
		} else {
			status = instance_worker_write(part->worker, "stage.write", params, piece->frame,
						       (size_t)piece->bytes, written, ask, &error);
		}
	} else {
		error_set(&error, status, "the server is out of memory");
	}
	if (!status)
		return;
	if (ask)
		parts_ask_answered(ask, &(struct parts *){NULL}, &(unsigned){0});
	parts_fail_at(part->parts, part->index, sending, &error);
}

static void read_piece(void *context, const struct error *error, struct net_frame *frame, const char *sha256)
{
	struct part *part = context;
	struct parts *parts = part->parts;
	struct part_piece *piece = &part->pieces[part->reading_piece];
	part->reading = NULL;
	if (parts->failed)
		return;
	if (error) {
		parts_fail_at(parts, part->index, sending, error);
		return;
	}
	piece->frame = net_frame_ref(frame);
	snprintf(piece->sha256, sizeof piece->sha256, "%s", sha256);
	send_piece(part, part->reading_piece, part->keeps);
	if (!parts->failed)
		send_on(part);
}

// A place for one more piece; PART_PIECES: all are under way. Sets `any`: some are.
static unsigned free_piece(const struct part *part, bool *any)
{
	unsigned found = PART_PIECES;
	*any = false;
	for (unsigned i = 0; i < PART_PIECES; i++) {
		*any |= part->pieces[i].used;
		found = part->pieces[i].used ? found : i;
	}
	return found;
}

// Read the next piece, or load if all are there.
static void send_on(struct part *part)
{
	struct error error = {0};
	struct parts *parts = part->parts;
	uint64_t offset, bytes;
	bool any;
	const unsigned which = free_piece(part, &any);
	if (part->reading || which == PART_PIECES)
		return;
	while (shards_stage_tensor(parts->file, part->index, part->tensor, &offset, &bytes) &&
	       part->tensor_at == bytes) {
		part->tensor++;
		part->tensor_at = 0;
	}
	if (!shards_stage_tensor(parts->file, part->index, part->tensor, &offset, &bytes)) {
		if (!any)
			parts_load(part);
		return;
	}
	const uint64_t left = bytes - part->tensor_at;
	struct part_piece *piece = &part->pieces[which];
	*piece = (struct part_piece){.used = true,
				     .tensor = part->tensor,
				     .offset = part->tensor_at,
				     .bytes = left < PIECE_BYTES ? left : PIECE_BYTES};
	part->reading_piece = which;
	part->tensor_at += piece->bytes;
	const struct shards_read_params params = {.node_id = part->node_id,
						  .model_id = parts->instance->model_id,
						  .key = part->key,
						  .offset = offset + piece->offset,
						  .bytes = (size_t)piece->bytes,
						  .done = read_piece,
						  .context = part};
	if (shards_read_start(&part->reading, parts->instance->all->shards, &params, &error))
		parts_fail_at(parts, part->index, sending, &error);
}

static void opened(void *context, enum status status, const struct json *result, const struct error *error)
{
	unsigned which;
	struct parts *parts;
	if (!parts_ask_answered(context, &parts, &which) || parts->failed || status == STATUS_DEVICE_LOST)
		return;
	if (status) {
		parts_fail_at(parts, which, "making room for its layers", error);
		return;
	}
	parts->part[which].keeps = json_get_bool(result, "keeps", false);
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
