/* Here one file is made of a model in several: each is looked into, and hashed if it was fetched, and then all are
 * written as one file. A directory of safetensors is converted. See reading.h, merge.h and server/convert/convert.h. */
#include "common/base/clock.h"
#include "engine/text/tokenizer.h"
#include "server/convert/convert.h"
#include "server/hub/fetch.h"
#include "server/library/merge.h"
#include "server/library/reading_inside.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct putting {
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
	struct reading_file file;
	char path[READING_PATH_BYTES + 8];
	const struct putting *putting = context;
	enum status status = part_path(putting->job, number, path, error);
	if (!status)
		status = reading_open(path, &file, error);
	if (!status)
		*fd = file.fd;
	return status;
}

static bool part_copied(void *context, uint64_t done_bytes)
{
	struct putting *putting = context;
	if (clock_steady_ms() - putting->told_ms >= READING_PROGRESS_MS) {
		putting->told_ms = clock_steady_ms();
		reading_tell(putting->job, putting->job->before_bytes + done_bytes, putting->job->all_bytes);
	}
	return !reading_given_up(putting->job);
}

// Hash it, compare that with what is promised, and look into it.
static enum status read_part(struct putting *putting, struct merge *merge, unsigned number, struct error *error)
{
	struct reading_file file = {.fd = -1};
	char path[READING_PATH_BYTES + 8], sha256[65];
	struct reading_job *job = putting->job;
	enum status status = part_path(job, number, path, error);
	putting->read = false;
	if (!status)
		status = reading_open(path, &file, error);
	if (!status && job->part_sha256s)
		status = reading_hash(job, &file, sha256, error);
	putting->read = !status;
	if (!status && job->part_sha256s)
		status = reading_compare(job->part_sha256s[number - 1], sha256, error);
	if (!status)
		status = model_header_read(&(struct model_header){.path = path,
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
static enum status put_together(struct reading_job *job, const char *to, bool *mismatch, struct error *error)
{
	struct stat found;
	char path[READING_PATH_BYTES + 8];
	struct merge *merge = NULL;
	struct putting putting = {.job = job};
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

static bool tensors_written(void *context, uint64_t done_bytes, uint64_t all_bytes)
{
	struct putting *putting = context;
	putting->job->all_bytes = all_bytes;
	return part_copied(context, done_bytes);
}

static enum status convert(struct reading_job *job, const char *to, bool *mismatch, struct error *error)
{
	struct putting putting = {.job = job};
	enum status status = job->fetched ? reading_settle_folder(job, error) : STATUS_OK;
	if (status)
		return status;
	const int fd = open(to, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return error_errno(error, STATUS_UNAVAILABLE, errno, "%s cannot be made", to);
	job->before_bytes = job->all_bytes = 0;
	job->converting = true;
	const struct convert_params params = {.directory = job->path,
					      .name = job->fetched ? job->title : NULL,
					      .to = fd,
					      .progress = tensors_written,
					      .context = &putting};
	status = convert_directory(&params, error);
	*mismatch = status == STATUS_INVALID_PARAMS;
	close(fd);
	if (status)
		unlink(to);
	job->all_bytes = 0;
	job->converting = false;
	return status;
}

// As reading_describe; what is converted must have a usable tokenizer, too.
static enum status describe_converted(void *context, const uint8_t *bytes, const struct gguf *gguf, struct error *error)
{
	struct tokenizer *tokenizer = NULL;
	enum status status = reading_describe(context, bytes, gguf, error);
	if (!status)
		status = tokenizer_create(&tokenizer, gguf, error);
	tokenizer_destroy(&tokenizer);
	return status;
}

static void add_sampling(const struct reading_job *job, struct sampling_words *words)
{
	char within[READING_PATH_BYTES + 16];
	snprintf(within, sizeof within, "%s%s", job->path, job->folder ? "/config.json" : "");
	sampling_add_beside(within, words);
}

void reading_put_together(struct reading_job *job, struct reading_result *result)
{
	struct reading_file file = {.fd = -1};
	char to[READING_PATH_BYTES + 8];
	bool mismatch = false;
	struct error *error = &result->error;
	snprintf(to, sizeof to, "%s.whole", job->place);
	enum status status = job->folder ? convert(job, to, &mismatch, error) : put_together(job, to, &mismatch, error);
	const bool there = !status;
	if (!status)
		status = reading_open(to, &file, error);
	if (!status)
		status = model_header_read(
			&(struct model_header){.path = to,
					       .fd = file.fd,
					       .bytes = file.bytes,
					       .there = file.bytes,
					       .look = job->folder ? describe_converted : reading_describe,
					       .context = result},
			error);
	result->unusable = status && (there || mismatch);
	if (!status && !job->part_sha256s)
		add_sampling(job, &result->sampling);
	sampling_add(&job->sampling, &result->sampling);
	if (!status)
		status = reading_move(&file, job->place, error);
	if (status && there)
		unlink(to);
	if (file.fd >= 0)
		close(file.fd);
	result->status = status;
	result->bytes = file.bytes;
	result->modified_ns = file.modified_ns;
}
