/* A directory of safetensors, all of it hostile: if it is converted, what comes of it is read as a model file, and its
 * tokenizer too. The input is config.json, tokenizer.json and the header of model.safetensors, with a byte 0xFF between
 * them, which no JSON has; the tensors' bytes are zeros. Before that config.json is read as the index of files, too,
 * and what the texts alone tell is asked for, as for a repository that is fetched. */
#include "common/base/limits.h"
#include "engine/model/model.h"
#include "engine/text/tokenizer.h"
#include "server/convert/convert.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

enum { DATA_BYTES = 65536, PATH_BYTES = 64 };

static char directory[] = "/dev/shm/fuzz-safetensors-XXXXXX";

static void path_of(const char *name, char path[PATH_BYTES])
{
	snprintf(path, PATH_BYTES, "%s/%s", directory, name);
}

static void leave(void)
{
	static const char *const names[] = {"config.json", "tokenizer.json", "model.safetensors",
					    "model.safetensors.index.json"};
	char path[PATH_BYTES];
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		path_of(names[i], path);
		unlink(path);
	}
	rmdir(directory);
}

static int create(const char *name)
{
	char path[PATH_BYTES];
	path_of(name, path);
	const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		abort();
	return fd;
}

static void put(int fd, const void *bytes, size_t length)
{
	if (write(fd, bytes, length) != (ssize_t)length)
		abort();
}

// Returns what is behind it.
static const uint8_t *put_file(const char *name, const uint8_t *bytes, const uint8_t *end)
{
	const uint8_t *mark = bytes < end ? memchr(bytes, 0xFF, (size_t)(end - bytes)) : NULL;
	const int fd = create(name);
	put(fd, bytes, (size_t)((mark ? mark : end) - bytes));
	close(fd);
	return mark ? mark + 1 : end;
}

// What the bytes name as files must be names in the folder.
static void read_index(const uint8_t *bytes, const uint8_t *end)
{
	static char names[LIMIT_MODEL_PARTS][CONVERT_NAME_BYTES];
	unsigned count = 0;
	char path[PATH_BYTES];
	struct error error = {0};
	put_file("model.safetensors.index.json", bytes, end);
	const enum status status = convert_tensor_files(directory, names, &count, &error);
	if (status && !error.message[0])
		abort();
	for (unsigned i = 0; i < count && !status; i++)
		if (!*names[i] || *names[i] == '.' || strchr(names[i], '/'))
			abort();
	path_of("model.safetensors.index.json", path);
	unlink(path);
}

static void put_tensors(const uint8_t *bytes, size_t length)
{
	const uint64_t header = length; // on a little-endian machine
	const int fd = create("model.safetensors");
	put(fd, &header, sizeof header);
	put(fd, bytes, length);
	if (ftruncate(fd, (off_t)(sizeof header + length + DATA_BYTES)))
		abort();
	close(fd);
}

static bool progress(void *context, uint64_t done_bytes, uint64_t all_bytes)
{
	(void)context;
	if (done_bytes > all_bytes)
		abort();
	return true;
}

static void look(int fd)
{
	struct gguf *gguf = NULL;
	struct model *model = NULL;
	struct tokenizer *tokenizer = NULL;
	// It may not be a model all the same: two tensors may have become one of a name, sizes may contradict each
	// other.
	if (!gguf_open(&gguf, fd, NULL) && !model_open(&model, gguf, NULL))
		tokenizer_create(&tokenizer, gguf, NULL);
	tokenizer_destroy(&tokenizer);
	model_destroy(&model);
	gguf_destroy(&gguf);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	static bool made;
	struct error error = {0};
	const uint8_t *end = bytes + length;
	if (!made && (!mkdtemp(directory) || atexit(leave)))
		abort();
	made = true;
	read_index(bytes, end);
	bytes = put_file("config.json", bytes, end);
	bytes = put_file("tokenizer.json", bytes, end);
	if (convert_check(directory, &error) && !error.message[0])
		abort();
	error = (struct error){0};
	put_tensors(bytes, (size_t)(end - bytes));
	const int fd = memfd_create("model", MFD_CLOEXEC);
	if (fd < 0)
		return 0;
	const struct convert_params params = {.directory = directory, .to = fd, .progress = progress};
	if (!convert_directory(&params, &error))
		look(fd);
	else if (!error.message[0])
		abort();
	close(fd);
	return 0;
}
