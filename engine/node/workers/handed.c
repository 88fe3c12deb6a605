/* See handed.h. */
#include "engine/node/workers/handed.h"

#include "common/base/limits.h"
#include "common/wire/message.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

void handed_close(const struct handed *handed)
{
	const int fds[] = {handed->stream, handed->model, handed->ring_in, handed->ring_out, handed->draft};
	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

enum status handed_connect(const struct sockaddr_un *stream, const struct json *given, int *out, struct error *error)
{
	struct buffer head, hello;
	struct json *params = json_new_object();
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	buffer_init(&head, LIMIT_HEAD_BYTES);
	buffer_init(&hello, LIMIT_WORKER_MESSAGE_BYTES);
	json_set_string(params, "worker_id", json_get_string(given, "worker_id", ""));
	json_set_string(params, "key", json_get_string(given, "key", ""));
	enum status status = message_print_call(&head, NULL, "link.hello", params);
	if (!status)
		status = message_encode_stream(&hello, (const char *)head.data, head.length, NULL, 0);
	if (status)
		error_set(error, status, "no memory to greet the server");
	else if (fd < 0 || connect(fd, (const struct sockaddr *)stream, sizeof(*stream)))
		status = error_errno(error, STATUS_UNAVAILABLE, errno, "connecting a worker to the server");
	else if (send(fd, hello.data, hello.length, MSG_NOSIGNAL) != (ssize_t)hello.length || fcntl(fd, F_SETFL, 0) < 0)
		status = error_errno(error, STATUS_UNAVAILABLE, errno, "greeting the server for a worker");
	if (status && fd >= 0)
		close(fd);
	buffer_finish(&head);
	buffer_finish(&hello);
	*out = status ? -1 : fd;
	return status;
}

static enum status open_model(const struct handed_from *from, const char *path, const char *model_id, int *out,
			      struct error *error)
{
	struct stat info;
	*out = -1;
	if (path && model_id)
		return error_set(error, STATUS_INVALID_PARAMS,
				 "a model is given by its path or by its id, not by both");
	if (model_id)
		return node_models_open(from->models, model_id, out, error);
	if (!path)
		return STATUS_OK;
	if (from->elsewhere) {
		error_hint(error, "have it fetched first (model.fetch), and give its model_id");
		return error_set(error, STATUS_UNAVAILABLE,
				 "a file of this machine is not given by its path to a server on another");
	}
	int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return error_errno(error, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_UNAVAILABLE, errno,
				   "opening the model's file");
	if (fstat(fd, &info) || !S_ISREG(info.st_mode)) {
		close(fd);
		return error_set(error, STATUS_INVALID_PARAMS, "the model's file is not a regular file");
	}
	*out = fd;
	return STATUS_OK;
}

enum status handed_open_models(const struct handed_from *from, const struct json *given, struct handed *out,
			       struct error *error)
{
	enum status status = open_model(from, json_get_string(given, "model_path", NULL),
					json_get_string(given, "model_id", NULL), &out->model, error);
	out->draft = -1;
	if (!status && out->model >= 0)
		status = open_model(from, json_get_string(given, "draft_path", NULL),
				    json_get_string(given, "draft_id", NULL), &out->draft, error);
	return status;
}
