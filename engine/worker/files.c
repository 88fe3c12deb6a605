/* A root of its own in a mount namespace: what reach.h lists, read-only but for the cache of a worker that fills it,
 * and nothing else.
 *
 * Landlock refuses to open other files, but it does not refuse to change their owner, mode, times or attributes, nor to
 * ask whether they exist. In the new root other paths do not exist, and the listed ones cannot be changed. It is a
 * tmpfs with a few folders and mounts in them; it is completed before it becomes the root, so that an error leaves the
 * process in the old one. If the process has a namespace of process ids, a new /proc is mounted, which shows only that
 * namespace.
 *
 * The system calls are given by number, because headers are often older than kernels. */
#include "engine/worker/confine/reach.h"
#include "engine/worker/confine/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

// The numbers are the same on every architecture.
enum {
	NR_OPEN_TREE = 428,
	NR_MOVE_MOUNT = 429,
	NR_SET_ATTRIBUTES = 442,
	CLONE_TREE = 1,
	RECURSIVE = 0x8000,
	FROM_DESCRIPTOR = 4,
	PLACES = 96,
};

struct attributes {
	uint64_t set, clear, propagation, user_namespace;
};
static const uint64_t read_only = 1, no_set_user = 2, no_devices = 4, no_programs = 8;

// Mounts that are attached nowhere yet.
struct places {
	bool own_processes;
	unsigned count;
	struct shown {
		int tree;
		bool folder, filled;
		char path[4096];
	} list[PLACES];
};

static bool is_collected(const struct places *places, const char *path)
{
	for (unsigned i = 0; i < places->count; i++) {
		const size_t length = strlen(places->list[i].path);
		if (places->list[i].folder && !strncmp(places->list[i].path, path, length) &&
		    (!path[length] || path[length] == '/'))
			return true;
	}
	return false;
}

static int collect(void *arg, const char *path, enum reach_use use)
{
	struct places *places = arg;
	struct stat info;
	if (path[0] != '/' || (places->own_processes && !strcmp(path, "/proc")) || is_collected(places, path) ||
	    stat(path, &info))
		return 0;
	if (places->count == PLACES || strlen(path) >= sizeof(places->list[0].path))
		return E2BIG;
	int tree = (int)syscall(NR_OPEN_TREE, AT_FDCWD, path, CLONE_TREE | O_CLOEXEC | RECURSIVE);
	if (tree < 0)
		return errno;
	// NVIDIA's library writes the names of its threads below /proc, whose files say themselves who may write them.
	const struct attributes attributes = {.set = use == REACH_FILL ? no_set_user | no_devices | no_programs
						     : strcmp(path, "/proc") != 0 ? read_only | no_set_user
										  : no_set_user};
	if (syscall(NR_SET_ATTRIBUTES, tree, "", AT_EMPTY_PATH | RECURSIVE, &attributes, sizeof(attributes))) {
		const int number = errno;
		close(tree);
		return number;
	}
	places->list[places->count].tree = tree;
	places->list[places->count].folder = S_ISDIR(info.st_mode);
	places->list[places->count].filled = use == REACH_FILL;
	snprintf(places->list[places->count++].path, sizeof(places->list[0].path), "%s", path);
	return 0;
}

// The folder, or the empty file, on which the mount is put, and the folders above it. EEXIST: a mount shows it already.
static int make_target(int root, char *path, bool folder)
{
	struct stat info;
	if (!fstatat(root, path, &info, 0))
		return EEXIST;
	for (char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = 0;
		int result = mkdirat(root, path, 0755) && errno != EEXIST ? errno : 0;
		*slash = '/';
		if (result)
			return result;
	}
	if (folder)
		return mkdirat(root, path, 0755) && errno != EEXIST ? errno : 0;
	int file = openat(root, path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0444);
	if (file < 0)
		return errno;
	close(file);
	return 0;
}

// A folder before what lies below it, which it then shows.
static int outer_first(const void *one, const void *other)
{
	const size_t of_one = strlen(((const struct shown *)one)->path),
		     of_other = strlen(((const struct shown *)other)->path);
	return (of_one > of_other) - (of_one < of_other);
}

static int attach_all(struct places *places, int root)
{
	for (unsigned i = 0; i < places->count; i++) {
		char *path = places->list[i].path;
		size_t length = strlen(path);
		while (length > 1 && path[length - 1] == '/')
			path[--length] = 0;
		path += strspn(path, "/");
		int result = *path ? make_target(root, path, places->list[i].folder) : EEXIST;
		if (result == EEXIST && places->list[i].filled)
			result = 0; // the mount that shows it is read-only
		if (!result && syscall(NR_MOVE_MOUNT, places->list[i].tree, "", root, path, FROM_DESCRIPTOR))
			result = errno;
		if (result && result != EEXIST)
			return result;
	}
	return 0;
}

// A folder to make the new root on: hidden for a moment, in this namespace alone.
static const char *choose_base(void)
{
	static const char *const folders[] = {"/tmp", "/run", "/mnt", "/usr"};
	struct stat info;
	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++)
		if (!stat(folders[i], &info) && S_ISDIR(info.st_mode))
			return folders[i];
	return NULL;
}

static int mount_processes(const char *base)
{
	char path[64];
	snprintf(path, sizeof(path), "%s/proc", base);
	if (mkdir(path, 0755))
		return errno;
	return mount("proc", path, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) ? errno : 0;
}

static int build(struct places *places, const char *base)
{
	static const unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOEXEC;
	if (mount("exogpu", base, "tmpfs", flags, "size=1m,mode=0755"))
		return errno;
	int root = open(base, O_PATH | O_DIRECTORY | O_CLOEXEC), result = root < 0 ? errno : 0;
	if (!result && places->own_processes)
		result = mount_processes(base);
	if (!result)
		result = attach_all(places, root);
	if (!result && mkdirat(root, "tmp", 0755) && errno != EEXIST)
		result = errno;
	if (!result && (mount(NULL, base, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | flags, NULL) || fchdir(root) ||
			syscall(SYS_pivot_root, ".", ".")))
		result = errno;
	if (root >= 0)
		close(root);
	if (result)
		umount2(base, MNT_DETACH);
	else if (umount2(".", MNT_DETACH) || chdir("/"))
		result = errno;
	return result;
}

int files_enter(const struct sandbox_params *params, bool own_processes)
{
	static struct places places; // half a megabyte; of a process that does this once
	const char *base = choose_base();
	if (!base)
		return ENOENT;
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return errno;
	const mode_t mask = umask(022); // other users than this come into the folders that are made here
	places = (struct places){.own_processes = own_processes};
	int result = reach_each(&(struct reach_visitor){collect, &places, params->cache_directory, params->fills_cache,
							params->narrow, params->only});
	qsort(places.list, places.count, sizeof(places.list[0]), outer_first);
	if (!result)
		result = build(&places, base);
	umask(mask);
	for (unsigned i = 0; i < places.count; i++)
		close(places.list[i].tree);
	return result;
}
