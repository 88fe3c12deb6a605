/* See browse.h. */
#include "server/library/browse.h"

#include "common/base/limits.h"
#include "common/base/list.h"
#include "common/work/jobs.h"
#include "server/hub/source.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

struct browse {
	struct jobs *jobs;
	const char *const *directories;
	struct look *looks; // under way
	unsigned count;
};

struct entry {
	char *name;
	bool folder;
	unsigned parts; // of a model in several files, of which this is the first; 0: it is one file
	int64_t bytes;  // of all parts that are there
};

struct look {
	struct job job; // first member
	struct look *next, **link;
	struct browse *browse;
	char dir[SOURCE_TEXT_BYTES]; // "": the allowed folders
	struct entry *entries;
	size_t count;
	bool more;
	browse_found *done; // NULL: nobody waits
	void *context;
	struct json *result;
	struct error error;
};

// ---- beneath a folder ----

static int open_beneath(int root, const char *path, uint64_t flags)
{
	const struct open_how how = {.flags = flags | O_CLOEXEC, .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
	return (int)syscall(SYS_openat2, root, path, &how, sizeof how);
}

// What follows an allowed folder's path in `dir`: "" for the folder itself; NULL: it does not lie there.
static const char *beneath(const char *root, const char *dir)
{
	size_t length = strlen(root);
	while (length && root[length - 1] == '/')
		length--;
	if (strncmp(dir, root, length) != 0 || (dir[length] && dir[length] != '/'))
		return NULL;
	const char *rest = dir + length;
	if (!*rest || !rest[1])
		return "";
	for (const char *part = rest; *part;) { // as this program writes paths, and in no other way
		const size_t letters = strcspn(++part, "/");
		if (!letters || (letters <= 2 && !strncmp(part, "..", letters)))
			return NULL;
		part += letters;
	}
	return rest + 1;
}

static bool is_shown(const char *name)
{
	if (*name == '.' || !json_utf8(name, strlen(name)))
		return false;
	for (; *name; name++)
		if ((unsigned char)*name < 0x20 || *name == 0x7f)
			return false;
	return true;
}

static bool is_model(const char *name)
{
	const size_t length = strlen(name);
	return length > 5 && !strcasecmp(name + length - 5, ".gguf");
}

// A folder, or a model's file, also by a link that stays beneath the root.
static bool describe(int root, const char *path, struct entry *entry)
{
	struct stat found;
	const int fd = open_beneath(root, path, O_PATH);
	const bool good = fd >= 0 && !fstat(fd, &found);
	if (fd >= 0)
		close(fd);
	if (!good || (!S_ISDIR(found.st_mode) && !(S_ISREG(found.st_mode) && is_model(entry->name))))
		return false;
	entry->folder = S_ISDIR(found.st_mode);
	entry->bytes = found.st_size;
	return true;
}

static int compare(const void *a, const void *b)
{
	const struct entry *one = a, *other = b;
	return strcmp(one->name, other->name);
}

static void read_entries(struct look *look, DIR *directory, int root, const char *rest)
{
	for (struct dirent *found; (found = readdir(directory));) {
		char path[SOURCE_TEXT_BYTES + sizeof found->d_name];
		if (!is_shown(found->d_name) || strlen(look->dir) + strlen(found->d_name) + 2 > SOURCE_TEXT_BYTES)
			continue;
		if (look->count == LIMIT_BROWSE_SCAN) {
			look->more = true;
			return;
		}
		struct entry *entry = &look->entries[look->count];
		*entry = (struct entry){.name = found->d_name};
		snprintf(path, sizeof path, "%s%s%s", rest, *rest ? "/" : "", found->d_name);
		if (!describe(root, path, entry))
			continue;
		entry->name = strdup(found->d_name);
		look->count += entry->name != NULL;
	}
}

// The other files of a model in several count with the first one.
static void join_parts(struct look *look)
{
	size_t kept = 0, at;
	for (size_t i = 0; i < look->count; i++) {
		struct entry *entry = &look->entries[i], *before = kept ? &look->entries[kept - 1] : NULL;
		const unsigned parts = entry->folder ? 0 : source_parts(entry->name, &at);
		const bool first = parts && !strncmp(entry->name + at, "00001", 5);
		if (parts && !first) {
			if (before && before->parts == parts && !strncmp(before->name, entry->name, at))
				before->bytes += entry->bytes;
			free(entry->name);
			continue;
		}
		entry->parts = parts;
		look->entries[kept++] = *entry;
	}
	look->count = kept;
}

// ---- the answer ----

static void push(struct json *list, const char *name, const char *path, const struct entry *file)
{
	struct json *one = json_new_object();
	json_set_string(one, "name", name);
	json_set_string(one, "path", path);
	if (file) {
		json_set_integer(one, "bytes", file->bytes);
		json_set_integer(one, "parts", file->parts ? file->parts : 1);
	}
	json_push(list, one);
}

static void print(struct look *look)
{
	struct json *dirs = json_new_array(), *files = json_new_array();
	char path[SOURCE_TEXT_BYTES + 256];
	size_t shown = look->count;
	if (shown > LIMIT_BROWSE_ENTRIES) {
		shown = LIMIT_BROWSE_ENTRIES;
		look->more = true;
	}
	for (size_t i = 0; i < shown; i++) {
		const struct entry *entry = &look->entries[i];
		const size_t length = strlen(look->dir);
		snprintf(path, sizeof path, "%s%s%s", look->dir, length && look->dir[length - 1] == '/' ? "" : "/",
			 entry->name);
		push(entry->folder ? dirs : files, entry->name, path, entry->folder ? NULL : entry);
	}
	for (size_t i = 0; !look->dir[0] && look->browse->directories && look->browse->directories[i]; i++)
		push(dirs, look->browse->directories[i], look->browse->directories[i], NULL);
	look->result = json_new_object();
	json_set_string(look->result, "dir", look->dir[0] ? look->dir : NULL);
	json_set(look->result, "dirs", dirs);
	json_set(look->result, "files", files);
	json_set_bool(look->result, "more", look->more);
}

// Look beneath this folder. False: it is not there, or not allowed.
static bool look_beneath(struct look *look, const char *allowed)
{
	const char *rest = beneath(allowed, look->dir);
	const int root = rest ? open(allowed, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
	const int fd = root < 0 ? -1 : open_beneath(root, *rest ? rest : ".", O_RDONLY | O_DIRECTORY);
	DIR *directory = fd < 0 ? NULL : fdopendir(fd);
	if (directory) {
		read_entries(look, directory, root, rest);
		closedir(directory);
	} else if (fd >= 0) {
		close(fd);
	}
	if (root >= 0)
		close(root);
	return directory;
}

static void run(struct job *job)
{
	struct look *look = (struct look *)job;
	const char *const *allowed = look->browse->directories;
	bool there = !look->dir[0];
	if (!there)
		look->entries = calloc(LIMIT_BROWSE_SCAN, sizeof *look->entries);
	if (!there && !look->entries) {
		error_set(&look->error, STATUS_OUT_OF_MEMORY, "no memory to look into a folder");
		return;
	}
	for (; !there && allowed && *allowed; allowed++)
		there = look_beneath(look, *allowed);
	if (!there) {
		error_set(&look->error, STATUS_NOT_FOUND, "there is no such folder among those that may be browsed");
		error_hint(&look->error,
			   "exogpu serve --model-dir DIR allows a folder, which the server's user must be "
			   "able to read");
		return;
	}
	if (look->count)
		qsort(look->entries, look->count, sizeof *look->entries, compare);
	join_parts(look);
	print(look);
}

// ---- the loop's side ----

static void answer(struct look *look, struct json *result, const struct error *error)
{
	browse_found *done = look->done;
	look->done = NULL;
	if (done)
		done(look->context, result, error);
	else
		json_destroy(&result);
}

static void deliver(struct outbox_item *item, bool tell)
{
	struct look *look = (struct look *)item;
	(void)tell;
	LIST_REMOVE(look, link);
	look->browse->count--;
	answer(look, look->result, &look->error);
	for (size_t i = 0; i < look->count; i++)
		free(look->entries[i].name);
	free(look->entries);
	free(look);
}

enum status browse_ask(struct browse *browse, const char *dir, browse_found *done, void *context, struct error *error)
{
	if (browse->count >= LIMIT_BROWSES) {
		error_set(error, STATUS_RATE_LIMITED, "%d folders are being read", LIMIT_BROWSES);
		error_hint(error, "try again in a few seconds");
		return STATUS_RATE_LIMITED;
	}
	struct look *look = calloc(1, sizeof *look);
	if (!look)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory to look into a folder");
	look->job = (struct job){.item.deliver = deliver, .run = run};
	look->browse = browse;
	look->done = done;
	look->context = context;
	snprintf(look->dir, sizeof look->dir, "%s", dir ? dir : "");
	LIST_PUSH(&browse->looks, look, link);
	browse->count++;
	jobs_put(browse->jobs, &look->job);
	return STATUS_OK;
}

enum status browse_create(struct browse **out, struct net_loop *loop, const char *const *directories,
			  struct error *error)
{
	struct browse *browse = *out = calloc(1, sizeof *browse);
	if (!browse)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory to look into folders");
	browse->directories = directories;
	const enum status status = jobs_create(&browse->jobs, loop, 1, error);
	if (status)
		browse_destroy(out);
	return status;
}

void browse_stop(struct browse *browse)
{
	struct error error = {0};
	error_set(&error, STATUS_UNAVAILABLE, "the server stops");
	for (struct look *look = browse->looks; look; look = look->next)
		answer(look, NULL, &error);
}

void browse_destroy(struct browse **pointer)
{
	struct browse *browse = *pointer;
	if (!browse)
		return;
	*pointer = NULL;
	browse_stop(browse);
	jobs_destroy(&browse->jobs);
	free(browse);
}
