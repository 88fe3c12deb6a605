/* `exogpu model upload`: sends a file of this machine to the server, in pieces, and goes on where an earlier one ended.
 * The file is hashed as it is read, so that the server compares all of it at the end. */
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/net/ws/ws.h"
#include "server/cli/commands/commands.h"
#include "server/cli/commands/model/model_progress.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	PIECE_BYTES = 1024 * 1024,
	WINDOW = 3, // pieces under way
	PIECE_MS = 120000,
	BEGIN_MS = 60000, // the server makes room on its disk
};

struct sending {
	struct client *client;
	const char *path;
	int fd;
	int64_t bytes, offset; // offset: of the next piece
	char model_id[80];
	EVP_MD_CTX *hash; // of all before offset
	struct {
		int64_t id;
		struct net_frame *frame;
		size_t length;
	} pieces[WINDOW]; // under way, oldest first
	size_t piece_count;
	int64_t came_bytes, began_bytes, began_ns; // came: what the server has
	struct model_progress shown;
};

static enum status cannot_read(const struct sending *sending, ssize_t length, struct error *error)
{
	if (length < 0)
		return error_errno(error, STATUS_UNAVAILABLE, errno, "%.200s cannot be read", sending->path);
	return error_set(error, STATUS_UNAVAILABLE, "%.200s has become shorter", sending->path);
}

// The next bytes of the file, which are hashed.
static enum status read_bytes(struct sending *sending, uint8_t *bytes, size_t length, struct error *error)
{
	for (size_t at = 0; at < length;) {
		const ssize_t got = pread(sending->fd, bytes + at, length - at, (off_t)sending->offset + (off_t)at);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return cannot_read(sending, got, error);
		at += (size_t)got;
	}
	if (EVP_DigestUpdate(sending->hash, bytes, length) != 1)
		return error_set(error, STATUS_INTERNAL, "SHA-256 is not available");
	sending->offset += (int64_t)length;
	return STATUS_OK;
}

static size_t next_length(const struct sending *sending, int64_t until)
{
	const int64_t left = until - sending->offset;
	return left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
}

// The bytes that the server has already.
static enum status skip(struct sending *sending, int64_t until, struct error *error)
{
	enum status status = STATUS_OK;
	uint8_t *bytes = malloc(PIECE_BYTES);
	if (!bytes)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	while (!status && sending->offset < until)
		status = read_bytes(sending, bytes, next_length(sending, until), error);
	free(bytes);
	return status;
}

static void show(struct sending *sending)
{
	const double passed_s = (double)(clock_steady_ns() - sending->began_ns) * 1e-9;
	const double came = (double)(sending->came_bytes - sending->began_bytes);
	struct json *progress = json_new_object();
	json_set_string(progress, "step", "uploading");
	json_set_integer(progress, "done_bytes", sending->came_bytes);
	json_set_integer(progress, "total_bytes", sending->bytes);
	if (passed_s > 1 && came > 0)
		json_set_number(progress, "bytes_per_s", came / passed_s);
	model_progress_show(&sending->shown, progress);
	json_destroy(&progress);
}

static enum status send_piece(struct sending *sending, struct error *error)
{
	const int64_t offset = sending->offset;
	const size_t length = next_length(sending, sending->bytes), place = sending->piece_count;
	struct net_frame *frame = net_frame_alloc(length);
	if (!frame)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	sending->pieces[place].frame = frame;
	sending->pieces[place].length = length;
	enum status status = read_bytes(sending, net_frame_data(frame), length, error);
	if (!status) {
		struct json *params = json_new_object();
		json_set_string(params, "model_id", sending->model_id);
		json_set_integer(params, "offset", offset);
		const struct client_call call = {.method = "model.upload_write", .params = params, .body = frame};
		status = client_send(sending->client, &call, &sending->pieces[place].id, error);
	}
	if (status)
		net_frame_unref(&sending->pieces[place].frame);
	else
		sending->piece_count++;
	return status;
}

static enum status await_piece(struct sending *sending, struct error *error)
{
	const struct client_wait wait = {.id = sending->pieces[0].id, .timeout_ms = PIECE_MS};
	const enum status status = client_wait(sending->client, &wait, error);
	sending->came_bytes += (int64_t)sending->pieces[0].length;
	net_frame_unref(&sending->pieces[0].frame);
	sending->piece_count--;
	memmove(&sending->pieces[0], &sending->pieces[1], sending->piece_count * sizeof sending->pieces[0]);
	if (!status)
		show(sending);
	return status;
}

static enum status send_all(struct sending *sending, struct error *error)
{
	enum status status = STATUS_OK;
	sending->began_ns = clock_steady_ns();
	sending->began_bytes = sending->came_bytes = sending->offset;
	while (!status && (sending->offset < sending->bytes || sending->piece_count)) {
		if (sending->offset < sending->bytes && sending->piece_count < WINDOW)
			status = send_piece(sending, error);
		else
			status = await_piece(sending, error);
	}
	while (sending->piece_count)
		net_frame_unref(&sending->pieces[--sending->piece_count].frame);
	model_progress_clear(&sending->shown);
	if (status == STATUS_UNAVAILABLE || status == STATUS_TIMEOUT)
		error_hint(error, "the same command goes on where this one ended");
	return status;
}

static enum status begin(struct sending *sending, const struct cli_arguments *arguments, int64_t modified_ms,
			 int64_t *next_offset, struct error *error)
{
	char at[CLOCK_TEXT_BYTES];
	struct json *params = json_new_object(), *answer = NULL;
	const char *slash = strrchr(sending->path, '/');
	struct client_wait wait = {.timeout_ms = BEGIN_MS, .result = &answer};
	json_set_string(params, "file", slash ? slash + 1 : sending->path);
	json_set_integer(params, "bytes", sending->bytes);
	json_set_string(params, "modified_at", clock_format(modified_ms, at));
	if (arguments->name)
		json_set_string(params, "name", arguments->name);
	enum status status = client_send(sending->client,
					 &(struct client_call){.method = "model.upload_begin", .params = params},
					 &wait.id, error);
	if (!status)
		status = client_wait(sending->client, &wait, error);
	*next_offset = json_get_integer(answer, "next_offset", -1);
	snprintf(sending->model_id, sizeof sending->model_id, "%.64s",
		 json_get_string(json_get(answer, "model"), "model_id", ""));
	json_destroy(&answer);
	if (!status && (*next_offset < 0 || *next_offset > sending->bytes))
		return error_set(error, STATUS_INTERNAL, "the server answered what it cannot mean");
	return status;
}

static enum status end(struct sending *sending, const char *promised, struct json **model, struct error *error)
{
	unsigned char digest[32];
	char sha256[65];
	if (EVP_DigestFinal_ex(sending->hash, digest, NULL) != 1)
		return error_set(error, STATUS_INTERNAL, "SHA-256 is not available");
	for (size_t i = 0; i < sizeof digest; i++)
		snprintf(sha256 + 2 * i, 3, "%02x", digest[i]);
	if (promised && strcasecmp(promised, sha256) != 0) {
		error_set(error, STATUS_INVALID_PARAMS, "the SHA-256 of %.150s is %s", sending->path, sha256);
		error_hint(error, "it is another file than --sha256 says; exogpu model remove %s deletes what was sent",
			   sending->model_id);
		return STATUS_INVALID_PARAMS;
	}
	struct json *params = json_new_object();
	json_set_string(params, "model_id", sending->model_id);
	json_set_string(params, "sha256", sha256);
	return client_ask(sending->client, &(struct client_call){.method = "model.upload_end", .params = params}, model,
			  error);
}

static enum status upload(struct sending *sending, const struct cli_arguments *arguments, struct json **model,
			  struct error *error)
{
	struct stat found;
	int64_t next_offset = 0;
	sending->fd = open(sending->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (sending->fd < 0 || fstat(sending->fd, &found))
		return error_errno(error, STATUS_NOT_FOUND, errno, "%.200s cannot be read", sending->path);
	if (!S_ISREG(found.st_mode) || !found.st_size)
		return error_set(error, STATUS_INVALID_PARAMS, "%.200s is %s", sending->path,
				 S_ISREG(found.st_mode) ? "empty" : "not a file");
	sending->bytes = found.st_size;
	sending->hash = EVP_MD_CTX_new();
	if (!sending->hash || EVP_DigestInit_ex(sending->hash, EVP_sha256(), NULL) != 1)
		return error_set(error, STATUS_INTERNAL, "SHA-256 is not available");
	const int64_t modified_ms = (int64_t)found.st_mtim.tv_sec * 1000 + found.st_mtim.tv_nsec / 1000000;
	enum status status = begin(sending, arguments, modified_ms, &next_offset, error);
	if (!status)
		status = skip(sending, next_offset, error);
	if (!status)
		status = send_all(sending, error);
	return status ? status : end(sending, arguments->sha256, model, error);
}

static int run_upload(const struct cli_arguments *arguments, struct error *error)
{
	bool left = false;
	struct target target;
	struct json *model = NULL;
	struct sending sending = {.path = arguments->operand, .fd = -1};
	model_progress_init(&sending.shown);
	int result = command_open(arguments, &target, &sending.client, error);
	if (!result)
		result = upload(&sending, arguments, &model, error) ? 1 : 0;
	if (!result && !arguments->no_wait)
		result = model_progress_follow(sending.client, &model, &left, error) ? 1 : 0;
	if (!result && arguments->json)
		result = command_print_json(model, error) ? 1 : 0;
	else if (!result)
		model_progress_print(model, left);
	json_destroy(&model);
	EVP_MD_CTX_free(sending.hash);
	if (sending.fd >= 0)
		close(sending.fd);
	client_close(&sending.client);
	return result;
}

static const struct flag upload_flags[] = {
	{"name", "NAME", "its name (default: from the file's)", offsetof(struct cli_arguments, name)},
	{"sha256", "DIGEST", "the SHA-256 that the file must have, in hexadecimal digits",
	 offsetof(struct cli_arguments, sha256)},
	{"no-wait", NULL, "return once all of it was sent, before the server has checked it",
	 offsetof(struct cli_arguments, no_wait)},
	{0},
};

const struct cli_command model_upload_command = {
	.name = "model upload",
	.operand = "FILE",
	.summary = "send a model's file from this machine to the server",
	.more = "FILE is a GGUF file of this machine. After Ctrl-C or a lost connection the same command goes on "
		"where\n"
		"it ended. exogpu model remove NAME cancels the upload.\n",
	.flags = upload_flags,
	.run = run_upload,
};
