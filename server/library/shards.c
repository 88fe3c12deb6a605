/* See shards.h. Files and pieces belong to the loop. A piece, or the opening of a file, is lent to a thread from the
 * moment it is queued until it is delivered. An open file lives as long as one of its pieces. */
#include "server/library/shards.h"

#include "common/base/limits.h"
#include "common/base/list.h"
#include "common/work/jobs.h"
#include "server/hub/model_header.h"
#include "server/library/shards_stage.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KEY_BYTES = 65, SHA256_TEXT_BYTES = 65, NEAR_BYTES = 64 * 1024 };

struct range {
	uint64_t from, to;
};

struct needs {
	struct shards_part part;
	struct range *ranges; // (count), in order, with gaps between
	size_t count, capacity;
	struct stage_told stage; // of a browser's
};

struct grant {
	struct grant *next;
	char node_id[STORE_ID_BYTES], key[KEY_BYTES];
};

struct shards_file {
	struct job job;     // first: its opening
	struct error error; // of that
	struct shards_file *next, **link;
	struct shards *shards;
	unsigned references; // of its owner, of its opening, of pieces
	bool closed;
	char model_id[MODEL_ID_BYTES];
	char *path;
	int fd;
	uint64_t bytes;
	int64_t modified_ns;
	struct needs *needs; // (part_count)
	unsigned part_count;
	struct grant *grants;
	void (*done)(void *context, const struct error *error);
	void *context;
};

struct shards_read {
	struct job job; // first
	struct error error;
	struct shards_file *file;
	uint64_t offset;
	struct net_frame *frame;
	char sha256[SHA256_TEXT_BYTES];
	void (*done)(void *context, const struct error *error, struct net_frame *frame, const char *sha256);
	void *context;
};

struct shards {
	struct shards_params params;
	struct jobs *jobs;
	struct shards_file *files;
	struct holders *holders;
};

// ---- what a part needs; on a thread ----

static enum status add(struct needs *needs, uint64_t from, uint64_t to)
{
	if (needs->count == needs->capacity) {
		size_t capacity = needs->capacity ? 2 * needs->capacity : 64;
		struct range *ranges = realloc(needs->ranges, capacity * sizeof(*ranges));
		if (!ranges)
			return STATUS_OUT_OF_MEMORY;
		needs->ranges = ranges;
		needs->capacity = capacity;
	}
	needs->ranges[needs->count++] = (struct range){from, to};
	return STATUS_OK;
}

static int by_place(const void *a, const void *b)
{
	const struct range *one = a, *other = b;
	return one->from < other->from ? -1 : one->from > other->from;
}

// Neighbours become one; what little lies between them is fetched, too, until there are few enough for one message.
static void join(struct needs *needs)
{
	uint64_t near = NEAR_BYTES;
	qsort(needs->ranges, needs->count, sizeof(*needs->ranges), by_place);
	do {
		size_t count = 1;
		for (size_t i = 1; i < needs->count; i++) {
			struct range *last = &needs->ranges[count - 1];
			if (needs->ranges[i].from > last->to && needs->ranges[i].from - last->to > near)
				needs->ranges[count++] = needs->ranges[i];
			else if (needs->ranges[i].to > last->to)
				last->to = needs->ranges[i].to;
		}
		needs->count = count;
		near *= 2;
	} while (needs->count > LIMIT_SHARD_RANGES);
}

struct looking {
	const uint8_t *bytes;
	const struct gguf *gguf;
	const struct model *model;
};

static enum status add_tensor(struct needs *needs, const struct looking *at, enum model_role role, uint32_t layer)
{
	struct model_tensor tensor;
	if (!model_tensor(at->model, role, layer, &tensor))
		return STATUS_OK; // this model has none
	uint64_t from = (uint64_t)(tensor.data - at->bytes);
	return add(needs, from, from + tensor.bytes);
}

// The part before the tensors, and tensors that belong to the model's shape.
static enum status add_header(struct needs *needs, const struct looking *at)
{
	uint64_t end = gguf_bytes(at->gguf);
	static const char *const shapes[] = {"rope_freqs.weight", "rope_factors_short.weight",
					     "rope_factors_long.weight"};
	for (size_t i = 0; i < gguf_tensor_count(at->gguf); i++) {
		const struct gguf_tensor *tensor = gguf_tensor(at->gguf, i);
		uint64_t from = tensor->data ? (uint64_t)(tensor->data - at->bytes) : end;
		end = from < end ? from : end;
	}
	enum status status = add(needs, 0, end);
	for (size_t i = 0; !status && i < sizeof(shapes) / sizeof(*shapes); i++) {
		const struct gguf_tensor *factors = gguf_find(at->gguf, shapes[i]);
		if (factors && factors->data)
			status = add(needs, (uint64_t)(factors->data - at->bytes),
				     (uint64_t)(factors->data - at->bytes) + factors->bytes);
	}
	return status;
}

static enum status find_needs(struct needs *needs, const struct looking *at)
{
	const struct shards_part *part = &needs->part;
	enum status status = add_header(needs, at);
	// The output is the token embedding, if it is tied.
	for (int role = ROLE_TOKEN_EMBEDDING; !status && role <= ROLE_OUTPUT; role++)
		if (role < ROLE_OUTPUT_NORM ? part->embeds : part->predicts)
			status = add_tensor(needs, at, (enum model_role)role, 0);
	for (uint32_t layer = part->first_layer; layer < part->first_layer + part->layer_count; layer++)
		for (int role = ROLE_ATTENTION_NORM; !status && role < ROLE_COUNT; role++)
			status = add_tensor(needs, at, (enum model_role)role, layer);
	if (!status)
		join(needs);
	return status;
}

static enum status look(void *context, const uint8_t *bytes, const struct gguf *gguf, struct error *error)
{
	struct shards_file *file = context;
	struct model *model = NULL;
	enum status status = model_open(&model, gguf, error);
	if (status)
		return status;
	const struct looking at = {.bytes = bytes, .gguf = gguf, .model = model};
	for (unsigned i = 0; !status && i < file->part_count; i++) {
		const struct shards_part *part = &file->needs[i].part;
		if (part->layer_count > model_shape(model)->layers ||
		    part->first_layer > model_shape(model)->layers - part->layer_count)
			status = error_set(error, STATUS_CONFLICT, "%s has changed: it has other layers", file->path);
		else if (find_needs(&file->needs[i], &at))
			status = error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
		else if (part->browser)
			status = stage_tell(&file->needs[i].stage, part, model, gguf, bytes, file->fd, error);
	}
	model_destroy(&model);
	return status;
}

static int64_t modified(const struct stat *found)
{
	return (int64_t)found->st_mtim.tv_sec * 1000000000 + found->st_mtim.tv_nsec;
}

static void run_open(struct job *job)
{
	struct stat found;
	struct shards_file *file = (struct shards_file *)job;
	file->fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (file->fd < 0 || fstat(file->fd, &found)) {
		error_errno(&file->error, STATUS_UNAVAILABLE, errno, "%s cannot be opened", file->path);
		return;
	}
	if (!S_ISREG(found.st_mode) || !found.st_size) {
		error_set(&file->error, STATUS_CONFLICT, "%s is no longer a model file", file->path);
		return;
	}
	file->bytes = (uint64_t)found.st_size;
	file->modified_ns = modified(&found);
	const struct model_header look_at = {.path = file->path,
					     .fd = file->fd,
					     .bytes = file->bytes,
					     .there = file->bytes,
					     .look = look,
					     .context = file};
	model_header_read(&look_at, &file->error);
}

// ---- reading; on a thread ----

static enum status read_all(const struct shards_file *file, uint64_t offset, uint8_t *bytes, size_t length,
			    struct error *error)
{
	struct stat found;
	for (size_t at = 0; at < length;) {
		ssize_t got = pread(file->fd, bytes + at, length - at, (off_t)(offset + at));
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return error_errno(error, STATUS_UNAVAILABLE, errno, "%s cannot be read", file->path);
		if (!got)
			break;
		at += (size_t)got;
	}
	if (fstat(file->fd, &found) || (uint64_t)found.st_size != file->bytes ||
	    modified(&found) != file->modified_ns) {
		error_set(error, STATUS_CONFLICT, "the model file has changed since it was inspected: %s", file->path);
		error_hint(error, "add the model again: exogpu model add %s", file->path);
		return STATUS_CONFLICT;
	}
	return STATUS_OK;
}

static void run_read(struct job *job)
{
	unsigned char digest[32];
	struct shards_read *read = (struct shards_read *)job;
	uint8_t *bytes = net_frame_data(read->frame);
	const size_t length = net_frame_bytes(read->frame);
	if (read_all(read->file, read->offset, bytes, length, &read->error))
		return;
	if (EVP_Digest(bytes, length, digest, NULL, EVP_sha256(), NULL) != 1) {
		error_set(&read->error, STATUS_INTERNAL, "SHA-256 is not available");
		return;
	}
	for (size_t i = 0; i < sizeof digest; i++)
		snprintf(read->sha256 + 2 * i, 3, "%02x", digest[i]);
}

// ---- files ----

static void file_release(struct shards_file *file)
{
	if (--file->references)
		return;
	for (struct grant *grant = file->grants, *next; grant; grant = next) {
		next = grant->next;
		OPENSSL_cleanse(grant->key, sizeof grant->key);
		free(grant);
	}
	LIST_REMOVE(file, link);
	for (unsigned i = 0; i < file->part_count; i++) {
		free(file->needs[i].ranges);
		stage_told_finish(&file->needs[i].stage);
	}
	free(file->needs);
	free(file->path);
	if (file->fd >= 0)
		close(file->fd);
	free(file);
}

static void opened(struct outbox_item *item, bool tell)
{
	struct shards_file *file = (struct shards_file *)item;
	if (tell && !file->closed)
		file->done(file->context, file->error.status ? &file->error : NULL);
	file_release(file);
}

enum status shards_open(struct shards_file **out, struct shards *shards, const struct shards_open_params *params,
			struct error *error)
{
	struct shards_file *file = calloc(1, sizeof(*file));
	struct needs *needs = calloc(params->part_count, sizeof(*needs));
	char *path = strdup(params->path);
	*out = NULL;
	if (!file || !needs || !path) {
		free(file);
		free(needs);
		free(path);
		return error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	}
	*file = (struct shards_file){.job = {.item = {.deliver = opened}, .run = run_open},
				     .shards = shards,
				     .references = 2,
				     .path = path,
				     .fd = -1,
				     .needs = needs,
				     .part_count = params->part_count,
				     .done = params->done,
				     .context = params->context};
	snprintf(file->model_id, sizeof file->model_id, "%s", params->model_id);
	for (unsigned i = 0; i < params->part_count; i++)
		needs[i].part = params->parts[i];
	LIST_PUSH(&shards->files, file, link);
	jobs_put(shards->jobs, &file->job);
	*out = file;
	return STATUS_OK;
}

void shards_close(struct shards_file **pointer)
{
	struct shards_file *file = *pointer;
	if (!file)
		return;
	*pointer = NULL;
	file->closed = true;
	file_release(file);
}

uint64_t shards_file_bytes(const struct shards_file *file)
{
	return file->bytes;
}

uint64_t shards_part_bytes(const struct shards_file *file, unsigned part)
{
	uint64_t bytes = 0;
	for (size_t i = 0; i < file->needs[part].count; i++)
		bytes += file->needs[part].ranges[i].to - file->needs[part].ranges[i].from;
	return bytes;
}

struct json *shards_ranges_json(const struct shards_file *file, unsigned part)
{
	struct json *ranges = json_new_array();
	for (size_t i = 0; i < file->needs[part].count; i++) {
		const struct range *range = &file->needs[part].ranges[i];
		struct json *one = json_new_array();
		json_push(one, json_new_integer((int64_t)range->from));
		json_push(one, json_new_integer((int64_t)(range->to - range->from)));
		json_push(ranges, one);
	}
	return ranges;
}

struct json *shards_stage_json(const struct shards_file *file, unsigned part)
{
	return json_copy(file->needs[part].stage.json);
}

bool shards_stage_tensor(const struct shards_file *file, unsigned part, size_t index, uint64_t *offset, uint64_t *bytes)
{
	const struct stage_told *stage = &file->needs[part].stage;
	if (index >= stage->count)
		return false;
	*offset = stage->places[index].offset;
	*bytes = stage->places[index].bytes;
	return true;
}

enum status shards_allow(struct shards_file *file, const char *node_id, const char *key)
{
	struct grant *grant = calloc(1, sizeof(*grant));
	if (!grant)
		return STATUS_OUT_OF_MEMORY;
	grant->next = file->grants;
	snprintf(grant->node_id, sizeof grant->node_id, "%s", node_id);
	snprintf(grant->key, sizeof grant->key, "%s", key);
	file->grants = grant;
	return STATUS_OK;
}

// ---- pieces ----

static struct shards_file *allowed(const struct shards *shards, const struct shards_read_params *params)
{
	for (struct shards_file *file = shards->files; file; file = file->next)
		for (const struct grant *grant = file->grants; grant && !file->closed; grant = grant->next)
			if (!strcmp(file->model_id, params->model_id) &&
			    (!params->node_id[0] || !strcmp(grant->node_id, params->node_id)) &&
			    strlen(params->key) == strlen(grant->key) &&
			    !CRYPTO_memcmp(params->key, grant->key, strlen(grant->key)))
				return file;
	return NULL;
}

static void piece_read(struct outbox_item *item, bool tell)
{
	struct shards_read *read = (struct shards_read *)item;
	const bool failed = read->error.status != STATUS_OK;
	if (tell && read->done)
		read->done(read->context, failed ? &read->error : NULL, read->frame, read->sha256);
	net_frame_unref(&read->frame);
	file_release(read->file);
	free(read);
}

enum status shards_read_start(struct shards_read **out, struct shards *shards, const struct shards_read_params *params,
			      struct error *error)
{
	struct shards_file *file = allowed(shards, params);
	*out = NULL;
	if (!file) {
		error_set(error, STATUS_FORBIDDEN, "nothing of the model %.64s is to be read with this key",
			  params->model_id);
		error_hint(error, "the server says what is to be fetched (model.fetch), and when it is over");
		return STATUS_FORBIDDEN;
	}
	if (params->offset > file->bytes || params->bytes > file->bytes - params->offset)
		return error_set(error, STATUS_INVALID_PARAMS, "the file ends before");
	struct shards_read *read = calloc(1, sizeof(*read));
	struct net_frame *frame = read ? net_frame_alloc(params->bytes) : NULL;
	if (!frame) {
		free(read);
		return error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	}
	*read = (struct shards_read){.job = {.item = {.deliver = piece_read}, .run = run_read},
				     .file = file,
				     .offset = params->offset,
				     .frame = frame,
				     .done = params->done,
				     .context = params->context};
	file->references++;
	jobs_put(shards->jobs, &read->job);
	*out = read;
	return STATUS_OK;
}

void shards_read_cancel(struct shards_read **pointer)
{
	if (*pointer)
		(*pointer)->done = NULL;
	*pointer = NULL;
}

// ---- all of it ----

struct holders *shards_holders(struct shards *shards)
{
	return shards->holders;
}

const struct contract *shards_contract(const struct shards *shards)
{
	return shards->params.contract;
}

enum status shards_create(struct shards **out, const struct shards_params *params, struct error *error)
{
	struct shards *shards = *out = calloc(1, sizeof(*shards));
	if (!shards)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	shards->params = *params;
	shards->holders = holders_create();
	enum status status = shards->holders ? jobs_create(&shards->jobs, params->loop, LIMIT_SHARD_THREADS, error)
					     : error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	if (status)
		shards_destroy(out);
	return status;
}

void shards_destroy(struct shards **pointer)
{
	struct shards *shards = *pointer;
	if (!shards)
		return;
	*pointer = NULL;
	jobs_destroy(&shards->jobs);
	holders_destroy(&shards->holders);
	free(shards);
}
