/* See reading.h. A file is read, never mapped: if it becomes shorter meanwhile or the disk fails, read() returns an
 * error and no signal ends the server. Only the header is in memory, at the beginning of a reserved range as long as
 * the file, so that every offset is inside the range. */
#include "server/library/reading.h"

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "engine/text/chat.h"
#include "server/hub/fetch.h"
#include "server/library/merge.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READ_BYTES = 1024 * 1024, PROGRESS_MS = 250, FIRST_HEADER_BYTES = 16 * 1024 * 1024 };

struct reading_job {
	struct reading_job *next;
	char model_id[READING_ID_BYTES];
	char *path, *place; // place: NULL if the file stays
	char sha256[65];
	struct sampling_words sampling;
	unsigned parts;                     // 0: it is one file
	char (*part_sha256s)[65];           // (parts), of those that were fetched; NULL: they are by their paths
	uint64_t before_bytes, all_bytes;   // of progress; all 0: the file's
	bool hash_only, delete_only, again; // again: it gave way to others, and is done after them
};

struct reading {
	struct reading_params params;
	pthread_t thread;
	bool started;
	atomic_bool stop, forget_current;
	pthread_mutex_t lock;
	pthread_cond_t work;
	// Under lock.
	struct reading_job *first, *last, *current;
};

static void job_destroy(struct reading_job **pointer)
{
	struct reading_job *job = *pointer;
	*pointer = NULL;
	if (!job)
		return;
	free(job->path);
	free(job->place);
	free(job->part_sha256s);
	free(job);
}

// ---- what is told to the loop ----

struct said {
	struct outbox_item item; // first member
	struct reading *reading;
	bool progress;
	uint64_t done, total;
	struct reading_result result;
};

static void deliver(struct outbox_item *item, bool tell)
{
	struct said *said = (struct said *)item;
	const struct reading_params *params = &said->reading->params;
	if (tell && said->progress)
		params->progress(params->context, said->result.model_id, said->done, said->total);
	else if (tell)
		params->done(params->context, &said->result);
	free(said);
}

static struct said *said_create(struct reading *reading, const struct reading_job *job)
{
	struct said *said = calloc(1, sizeof *said);
	if (!said)
		return NULL;
	said->item.deliver = deliver;
	said->reading = reading;
	said->result.hashed_only = job->hash_only;
	snprintf(said->result.model_id, sizeof said->result.model_id, "%s", job->model_id);
	return said;
}

static void tell_progress(struct reading *reading, const struct reading_job *job, uint64_t done, uint64_t total)
{
	struct said *said = said_create(reading, job);
	if (!said)
		return;
	said->progress = true;
	said->done = done;
	said->total = total;
	outbox_post(reading->params.outbox, &said->item);
}

// ---- one file ----

static bool given_up(struct reading *reading)
{
	return atomic_load(&reading->stop) || atomic_load(&reading->forget_current);
}

static enum status read_error(const char *path, ssize_t length, struct error *error)
{
	if (length < 0)
		return error_errno(error, STATUS_UNAVAILABLE, errno, "%s cannot be read", path);
	return error_set(error, STATUS_UNAVAILABLE, "%s has become shorter while it was read", path);
}

// A digest that nobody waits for gives way.
static bool others_wait(struct reading *reading, const struct reading_job *job)
{
	if (!job->hash_only)
		return false;
	pthread_mutex_lock(&reading->lock);
	bool wait = false;
	for (const struct reading_job *one = reading->first; one; one = one->next)
		wait |= !one->hash_only;
	pthread_mutex_unlock(&reading->lock);
	return wait;
}

struct file {
	const char *path;
	int fd;
	uint64_t bytes;
	int64_t modified_ns;
};

static enum status hash_file(struct reading *reading, struct reading_job *job, const struct file *file, char sha256[65],
			     struct error *error)
{
	uint64_t at = 0;
	int64_t told_ms = clock_steady_ms();
	unsigned char digest[32];
	enum status status = STATUS_OK;
	uint8_t *bytes = malloc(READ_BYTES);
	EVP_MD_CTX *hash = EVP_MD_CTX_new();
	if (!bytes || !hash || EVP_DigestInit_ex(hash, EVP_sha256(), NULL) != 1)
		status = error_set(error, STATUS_OUT_OF_MEMORY, "no memory to hash %s", file->path);
	while (!status && at < file->bytes) {
		size_t most = file->bytes - at < READ_BYTES ? (size_t)(file->bytes - at) : READ_BYTES;
		ssize_t length = pread(file->fd, bytes, most, (off_t)at);
		if (length < 0 && errno == EINTR)
			continue;
		if (length <= 0)
			status = read_error(file->path, length, error);
		else if (given_up(reading))
			status = error_set(error, STATUS_UNAVAILABLE, "the server stops");
		else if (EVP_DigestUpdate(hash, bytes, (size_t)length) != 1)
			status = error_set(error, STATUS_INTERNAL, "SHA-256 is not available");
		at += length > 0 ? (uint64_t)length : 0;
		if (!status && clock_steady_ms() - told_ms >= PROGRESS_MS) {
			job->again = others_wait(reading, job);
			if (job->again)
				status = error_set(error, STATUS_PENDING, "others are read first");
			tell_progress(reading, job, job->before_bytes + at,
				      job->all_bytes ? job->all_bytes : file->bytes);
			told_ms = clock_steady_ms();
		}
	}
	if (!status && EVP_DigestFinal_ex(hash, digest, NULL) != 1)
		status = error_set(error, STATUS_INTERNAL, "SHA-256 is not available");
	for (size_t i = 0; i < sizeof digest && !status; i++)
		snprintf(sha256 + 2 * i, 3, "%02x", digest[i]);
	EVP_MD_CTX_free(hash);
	free(bytes);
	return status;
}

// The first `length` bytes, to the beginning of `range`.
static enum status fill(const struct file *file, uint8_t *range, size_t from, size_t length, struct error *error)
{
	while (from < length) {
		ssize_t got = pread(file->fd, range + from, length - from, (off_t)from);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return read_error(file->path, got, error);
		from += (size_t)got;
	}
	return STATUS_OK;
}

// A file's own name for what most of it is in: Q4_1, though that is held as F16.
static void name_format(const struct gguf *gguf, char *out, size_t size)
{
	uint64_t formats[FORMAT_COUNT] = {0}, packings[PACKING_COUNT] = {0}, most = 0;
	for (size_t i = 0; i < gguf_tensor_count(gguf); i++) {
		const struct gguf_tensor *tensor = gguf_tensor(gguf, i);
		uint64_t *bytes = tensor->packing ? &packings[tensor->packing] : &formats[tensor->format];
		*bytes += tensor->bytes;
		if (*bytes > most) {
			most = *bytes;
			snprintf(out, size, "%s",
				 tensor->packing ? packing_info(tensor->packing)->name
						 : format_info(tensor->format)->name);
		}
	}
}

static enum status describe(void *context, const uint8_t *bytes, const struct gguf *gguf, struct error *error)
{
	struct reading_result *result = context;
	struct model *model = NULL;
	(void)bytes;
	enum status status = model_open(&model, gguf, error);
	if (status)
		return status;
	result->shape = *model_shape(model);
	model_sizes(model, &result->sizes);
	model_destroy(&model);
	name_format(gguf, result->file_format, sizeof result->file_format);
	struct chat_template template;
	if (!chat_template_of_file(gguf, &template, &(struct error){0}) && template.name)
		snprintf(result->chat_template, sizeof result->chat_template, "%s", template.name);
	chat_template_finish(&template);
	sampling_of_file(gguf, &result->sampling);
	return STATUS_OK;
}

// With more of the file in memory if less was not enough: how long a header is stands nowhere.
enum status reading_look_into(const struct reading_look *look, struct error *error)
{
	enum status status = STATUS_PENDING;
	struct error fault = {0};
	const struct file file = {.path = look->path, .fd = look->fd, .bytes = look->bytes};
	const size_t bytes = (size_t)look->bytes,
		     most = look->there < LIMIT_MODEL_HEADER_BYTES ? (size_t)look->there : LIMIT_MODEL_HEADER_BYTES;
	size_t filled = 0;
	uint8_t *range = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (range == MAP_FAILED)
		return error_errno(error, STATUS_OUT_OF_MEMORY, errno, "no room to look into %s", look->path);
	while (status == STATUS_PENDING && filled < most) {
		struct gguf *gguf = NULL;
		const size_t wanted = !filled && most > FIRST_HEADER_BYTES ? FIRST_HEADER_BYTES : most;
		fault = (struct error){0};
		status = fill(&file, range, filled, wanted, &fault);
		filled = wanted;
		if (!status)
			status = gguf_parse_beginning(&gguf, range, filled, bytes, &fault);
		if (!status)
			status = look->look(look->context, range, gguf, &fault);
		gguf_destroy(&gguf);
	}
	munmap(range, bytes);
	if (status == STATUS_PENDING && filled == LIMIT_MODEL_HEADER_BYTES)
		status = error_set(&fault, STATUS_LIMIT_EXCEEDED, "the header of the model file has more than %d bytes",
				   LIMIT_MODEL_HEADER_BYTES);
	if (status && error)
		*error = fault;
	return status;
}

static enum status judge(void *context, const uint8_t *bytes, const struct gguf *gguf, struct error *error)
{
	struct model *model = NULL;
	enum status status = model_open(&model, gguf, error);
	(void)context, (void)bytes;
	model_destroy(&model);
	return status;
}

enum status reading_judge(const char *path, int fd, uint64_t bytes, uint64_t there, struct error *error)
{
	const struct reading_look look = {.path = path, .fd = fd, .bytes = bytes, .there = there, .look = judge};
	return reading_look_into(&look, error);
}

// Folders that systemd units with ProtectHome cannot see, whatever their permissions.
static bool is_home(const char *path)
{
	return !strncmp(path, "/home/", 6) || !strncmp(path, "/run/user/", 10);
}

static enum status cannot_open(const char *path, int number, struct error *error)
{
	error_errno(error, number == ENOENT ? STATUS_NOT_FOUND : STATUS_UNAVAILABLE, number, "%s cannot be opened",
		    path);
	if (number != EACCES && number != ENOENT)
		return error->status;
	if (is_home(path))
		error_hint(error,
			   "the path is on the server's machine; as a service it cannot see /home and "
			   "/run/user (ProtectHome in exogpu.service): put the file elsewhere, in /srv say, or let "
			   "`systemctl edit exogpu` set ProtectHome=read-only");
	else
		error_hint(error, "the path is one of the server's machine, and the server's user must be able to "
				  "read it");
	return error->status;
}

static enum status open_file(const char *path, struct file *file, struct error *error)
{
	struct stat found;
	*file = (struct file){.path = path};
	// Without waiting: it may be a pipe.
	file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (file->fd < 0)
		return cannot_open(path, errno, error);
	if (fstat(file->fd, &found))
		return error_errno(error, STATUS_UNAVAILABLE, errno, "%s cannot be read", path);
	if (!S_ISREG(found.st_mode))
		return error_set(error, STATUS_INVALID_PARAMS, "%s is not a file", path);
	if (!found.st_size)
		return error_set(error, STATUS_INVALID_PARAMS, "%s is empty", path);
	file->bytes = (uint64_t)found.st_size;
	file->modified_ns = (int64_t)found.st_mtim.tv_sec * 1000000000 + found.st_mtim.tv_nsec;
	return STATUS_OK;
}

// On disk for good, under its own name.
static enum status move_to(const struct file *file, const char *place, struct error *error)
{
	char directory[READING_PATH_BYTES];
	snprintf(directory, sizeof directory, "%.*s", (int)(strrchr(place, '/') - place), place);
	if (fsync(file->fd) || rename(file->path, place))
		return error_errno(error, STATUS_UNAVAILABLE, errno, "%s cannot be put in its place", file->path);
	int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	bool synced = fd >= 0 && !fsync(fd);
	if (fd >= 0)
		close(fd);
	return synced ? STATUS_OK : error_errno(error, STATUS_UNAVAILABLE, errno, "%s cannot be written", directory);
}

static enum status compare(const char *promised, const char *sha256, struct error *error)
{
	if (!promised[0] || !strcmp(promised, sha256))
		return STATUS_OK;
	error_set(error, STATUS_UNAVAILABLE, "the downloaded file is wrong: its SHA-256 is %.16s..., not %.16s...",
		  sha256, promised);
	error_hint(error, "add it again; if that does not help, something on the way changes it");
	return STATUS_UNAVAILABLE;
}

// ---- a model in parts ----

struct putting {
	struct reading *reading;
	struct reading_job *job;
	int64_t told_ms;
	bool read; // the part that is looked into could be read
};

static enum status part_path(const struct reading_job *job, unsigned number, char path[READING_PATH_BYTES + 8],
			     struct error *error)
{
	bool fits = job->part_sha256s ? fetch_part_file(job->place, number, path, READING_PATH_BYTES)
				      : source_part_path(job->path, number, path, READING_PATH_BYTES);
	if (fits && job->part_sha256s)
		memcpy(path + strlen(path), ".part", sizeof ".part");
	return fits ? STATUS_OK : error_set(error, STATUS_INVALID_PARAMS, "the path of a part is too long");
}

static enum status open_part(void *context, unsigned number, int *fd, struct error *error)
{
	struct file file;
	char path[READING_PATH_BYTES + 8];
	const struct putting *putting = context;
	enum status status = part_path(putting->job, number, path, error);
	if (!status)
		status = open_file(path, &file, error);
	if (!status)
		*fd = file.fd;
	return status;
}

static bool part_copied(void *context, uint64_t done_bytes)
{
	struct putting *putting = context;
	if (clock_steady_ms() - putting->told_ms >= PROGRESS_MS) {
		putting->told_ms = clock_steady_ms();
		tell_progress(putting->reading, putting->job, putting->job->before_bytes + done_bytes,
			      putting->job->all_bytes);
	}
	return !given_up(putting->reading);
}

// Hash it, compare that with what is promised, and look into it.
static enum status read_part(struct putting *putting, struct merge *merge, unsigned number, struct error *error)
{
	struct file file = {.fd = -1};
	char path[READING_PATH_BYTES + 8], sha256[65];
	struct reading_job *job = putting->job;
	enum status status = part_path(job, number, path, error);
	putting->read = false;
	if (!status)
		status = open_file(path, &file, error);
	if (!status && job->part_sha256s)
		status = hash_file(putting->reading, job, &file, sha256, error);
	putting->read = !status;
	if (!status && job->part_sha256s)
		status = compare(job->part_sha256s[number - 1], sha256, error);
	if (!status)
		status = reading_look_into(&(struct reading_look){.path = path,
								  .fd = file.fd,
								  .bytes = file.bytes,
								  .there = file.bytes,
								  .look = merge_look,
								  .context = merge},
					   error);
	if (file.fd >= 0)
		close(file.fd);
	job->before_bytes += job->part_sha256s ? file.bytes : 0;
	return status;
}

static enum status say_part(unsigned number, unsigned count, struct error *error)
{
	const struct error why = *error;
	*error = (struct error){0};
	error_set(error, why.status, "part %u of %u: %s", number, count, why.message);
	if (why.hint[0])
		error_hint(error, "%s", why.hint);
	return why.status;
}

// All parts as one file, at `to`. *mismatch: they are not what they should be.
static enum status put_together(struct reading *reading, struct reading_job *job, const char *to, bool *mismatch,
				struct error *error)
{
	struct stat found;
	char path[READING_PATH_BYTES + 8];
	struct merge *merge = NULL;
	struct putting putting = {.reading = reading, .job = job};
	enum status status = merge_create(&merge, job->parts, error);
	job->before_bytes = job->all_bytes = 0;
	for (unsigned i = 1; i <= job->parts && !status; i++)
		if (!(status = part_path(job, i, path, error)) && !stat(path, &found))
			job->all_bytes += (uint64_t)found.st_size * (job->part_sha256s ? 2 : 1);
	for (unsigned i = 1; i <= job->parts && !status; i++) {
		status = read_part(&putting, merge, i, error);
		if (status)
			say_part(i, job->parts, error);
	}
	*mismatch = status && putting.read;
	const int fd = status ? -1 : open(to, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (!status && fd < 0)
		status = error_errno(error, STATUS_UNAVAILABLE, errno, "%s cannot be made", to);
	if (!status) {
		const struct merge_write write = {
			.to = fd, .open = open_part, .progress = part_copied, .context = &putting};
		status = merge_write(merge, &write, error);
		*mismatch = status == STATUS_INVALID_PARAMS;
	}
	if (fd >= 0)
		close(fd);
	if (status && fd >= 0)
		unlink(to);
	merge_destroy(&merge);
	job->before_bytes = job->all_bytes = 0;
	return status;
}

static void read_parts(struct reading *reading, struct reading_job *job, struct reading_result *result)
{
	struct file file = {.fd = -1};
	char to[READING_PATH_BYTES + 8];
	bool mismatch = false;
	struct error *error = &result->error;
	snprintf(to, sizeof to, "%s.whole", job->place);
	enum status status = put_together(reading, job, to, &mismatch, error);
	const bool there = !status;
	if (!status)
		status = open_file(to, &file, error);
	if (!status)
		status = reading_look_into(&(struct reading_look){.path = to,
								  .fd = file.fd,
								  .bytes = file.bytes,
								  .there = file.bytes,
								  .look = describe,
								  .context = result},
					   error);
	result->unusable = status && (there || mismatch);
	if (!status && !job->part_sha256s)
		sampling_add_beside(job->path, &result->sampling);
	sampling_add(&job->sampling, &result->sampling);
	if (!status)
		status = move_to(&file, job->place, error);
	if (status && there)
		unlink(to);
	if (file.fd >= 0)
		close(file.fd);
	result->status = status;
	result->bytes = file.bytes;
	result->modified_ns = file.modified_ns;
}

static void read_file(struct reading *reading, struct reading_job *job, struct reading_result *result)
{
	struct file file = {.fd = -1};
	struct error *error = &result->error;
	if (job->parts) {
		read_parts(reading, job, result);
		return;
	}
	enum status status = open_file(job->path, &file, error);
	if (!status && (job->hash_only || job->place))
		status = hash_file(reading, job, &file, result->sha256, error);
	const bool read = !status;
	if (!status && job->place)
		status = compare(job->sha256, result->sha256, error);
	if (!status && !job->hash_only)
		status = reading_look_into(&(struct reading_look){.path = file.path,
								  .fd = file.fd,
								  .bytes = file.bytes,
								  .there = file.bytes,
								  .look = describe,
								  .context = result},
					   error);
	if (!status && !job->hash_only && !job->place)
		sampling_add_beside(job->path, &result->sampling);
	sampling_add(&job->sampling, &result->sampling);
	result->unusable = read && status;
	if (!status && job->place)
		status = move_to(&file, job->place, error);
	if (file.fd >= 0)
		close(file.fd);
	result->status = status;
	result->bytes = file.bytes;
	result->modified_ns = file.modified_ns;
}

static void run(struct reading *reading, struct reading_job *job)
{
	job->again = false;
	struct said *said = said_create(reading, job);
	if (job->delete_only && unlink(job->path) && errno != ENOENT)
		log_warning("models", "%s cannot be deleted: %s", job->path, strerror(errno));
	if (!said || job->delete_only) {
		free(said);
		return;
	}
	read_file(reading, job, &said->result);
	// What a stop cut off is done again at the next start.
	if (given_up(reading) || job->again)
		free(said);
	else
		outbox_post(reading->params.outbox, &said->item);
}

static void push(struct reading *reading, struct reading_job *job)
{
	job->next = NULL;
	if (reading->last)
		reading->last->next = job;
	else
		reading->first = job;
	reading->last = job;
	pthread_cond_signal(&reading->work);
}

static void *thread_main(void *argument)
{
	struct reading *reading = argument;
	pthread_mutex_lock(&reading->lock);
	while (!atomic_load(&reading->stop)) {
		struct reading_job *job = reading->first;
		if (!job) {
			pthread_cond_wait(&reading->work, &reading->lock);
			continue;
		}
		reading->first = job->next;
		if (!reading->first)
			reading->last = NULL;
		reading->current = job;
		atomic_store(&reading->forget_current, false);
		pthread_mutex_unlock(&reading->lock);
		run(reading, job);
		pthread_mutex_lock(&reading->lock);
		reading->current = NULL;
		if (job->again && !atomic_load(&reading->forget_current))
			push(reading, job);
		else
			job_destroy(&job);
	}
	pthread_mutex_unlock(&reading->lock);
	return NULL;
}

// ---- the loop's side ----

enum status reading_create(struct reading **out, const struct reading_params *params, struct error *error)
{
	struct reading *reading = calloc(1, sizeof *reading);
	*out = NULL;
	if (!reading)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the models");
	reading->params = *params;
	pthread_mutex_init(&reading->lock, NULL);
	pthread_cond_init(&reading->work, NULL);
	enum status status = outbox_start_thread(&reading->thread, thread_main, reading, error);
	reading->started = !status;
	if (status)
		reading_destroy(&reading);
	*out = reading;
	return status;
}

void reading_stop(struct reading *reading)
{
	pthread_mutex_lock(&reading->lock);
	atomic_store(&reading->stop, true);
	pthread_cond_signal(&reading->work);
	pthread_mutex_unlock(&reading->lock);
}

void reading_destroy(struct reading **pointer)
{
	struct reading *reading = *pointer;
	if (!reading)
		return;
	*pointer = NULL;
	reading_stop(reading);
	if (reading->started)
		pthread_join(reading->thread, NULL);
	for (struct reading_job *job = reading->first, *next; job; job = next) {
		next = job->next;
		if (job->delete_only)
			unlink(job->path);
		job_destroy(&job);
	}
	pthread_cond_destroy(&reading->work);
	pthread_mutex_destroy(&reading->lock);
	free(reading);
}

static struct reading_job *job_create(const char *model_id, const char *path)
{
	struct reading_job *job = calloc(1, sizeof *job);
	if (job)
		job->path = strdup(path);
	if (job && !job->path)
		job_destroy(&job);
	if (!job)
		return NULL;
	snprintf(job->model_id, sizeof job->model_id, "%s", model_id);
	sampling_say_nothing(&job->sampling);
	return job;
}

enum status reading_ask(struct reading *reading, const struct reading_request *request, struct error *error)
{
	struct reading_job *job = job_create(request->model_id, request->path);
	if (job && request->place)
		job->place = strdup(request->place);
	if (job && request->part_sha256s)
		job->part_sha256s = calloc(request->parts, sizeof *job->part_sha256s);
	if (!job || (request->place && !job->place) || (request->part_sha256s && !job->part_sha256s)) {
		job_destroy(&job);
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory to read a model's file");
	}
	snprintf(job->sha256, sizeof job->sha256, "%s", request->sha256 ? request->sha256 : "");
	job->hash_only = request->hash;
	job->parts = request->parts;
	if (request->part_sha256s)
		memcpy(job->part_sha256s, request->part_sha256s, request->parts * sizeof *job->part_sha256s);
	if (request->sampling)
		job->sampling = *request->sampling;
	pthread_mutex_lock(&reading->lock);
	push(reading, job);
	pthread_mutex_unlock(&reading->lock);
	return STATUS_OK;
}

void reading_forget(struct reading *reading, const char *model_id, const char *path)
{
	struct reading_job *removal = path ? job_create(model_id, path) : NULL;
	pthread_mutex_lock(&reading->lock);
	if (reading->current && !reading->current->delete_only && !strcmp(reading->current->model_id, model_id))
		atomic_store(&reading->forget_current, true);
	struct reading_job *all = reading->first;
	reading->first = reading->last = NULL;
	for (struct reading_job *job = all, *next; job; job = next) {
		next = job->next;
		job->next = NULL;
		if (job->delete_only || strcmp(job->model_id, model_id) != 0)
			push(reading, job);
		else
			job_destroy(&job);
	}
	if (removal) {
		removal->delete_only = true;
		push(reading, removal);
	}
	pthread_mutex_unlock(&reading->lock);
	if (path && !removal)
		log_warning("models", "%s cannot be deleted: no memory", path);
}

bool reading_look(const char *path, uint64_t *bytes, int64_t *modified_ns)
{
	struct stat found;
	if (stat(path, &found) || !S_ISREG(found.st_mode))
		return false;
	*bytes = (uint64_t)found.st_size;
	*modified_ns = (int64_t)found.st_mtim.tv_sec * 1000000000 + found.st_mtim.tv_nsec;
	return true;
}
