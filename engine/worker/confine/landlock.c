/* Files: libraries, their settings and device nodes can be read, device nodes also written, and the cache of compiled
 * kernels by a worker that fills it; nothing else exists.
 *
 * The kernel's interface is declared here, since headers are often older than kernels. Rights that a kernel does not
 * know are left out; descriptors that were open before (the two sockets, standard error) stay open. Landlock also keeps
 * a process from reaching processes outside (ptrace, /proc/PID/mem) and, on newer kernels, from sending them signals
 * and from using abstract sockets. */
#include "engine/worker/confine/reach.h"
#include "engine/worker/confine/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

// The numbers are the same on every architecture.
enum { CREATE_RULESET = 444, ADD_RULE = 445, RESTRICT_SELF = 446, ASK_VERSION = 1, PATH_BENEATH = 1 };

#define ACCESS_WRITE_FILE (1ull << 1)
#define ACCESS_READ_FILE (1ull << 2)
#define ACCESS_READ_DIR (1ull << 3)
#define ACCESS_CHANGE_FOLDER \
	(1ull << 4 /* remove a folder */ | 1ull << 5 /* and a file */ | 1ull << 7 /* make a folder */ | \
	 1ull << 8 /* and a file */ | 1ull << 13 /* and move one to another folder */)
#define ACCESS_TRUNCATE (1ull << 14)
#define ACCESS_IOCTL_DEVICE (1ull << 15)
#define ACCESS_FIRST ((1ull << 13) - 1) // all of version 1: run, write, read, list, remove and make of each kind
#define SCOPE_ABSTRACT_SOCKETS (1ull << 0)
#define SCOPE_SIGNALS (1ull << 1)
#define NET_BIND_CONNECT_TCP 3ull

struct ruleset {
	uint64_t files, net, scoped;
};

struct path_beneath {
	uint64_t allowed;
	int32_t parent;
} __attribute__((packed));

struct rules {
	int ruleset;
	uint64_t access[REACH_FILL + 1];
};

// Paths that do not exist need no rule.
static int allow(void *arg, const char *path, enum reach_use use)
{
	const struct rules *rules = arg;
	uint64_t access = rules->access[use];
	struct stat info;
	int fd = open(path, O_PATH | O_CLOEXEC);
	if (fd < 0)
		return 0;
	int result = fstat(fd, &info) ? errno : 0;
	if (!S_ISDIR(info.st_mode))
		access &= ~(ACCESS_READ_DIR | ACCESS_CHANGE_FOLDER);
	struct path_beneath rule = {.allowed = access, .parent = fd};
	if (!result && syscall(ADD_RULE, rules->ruleset, PATH_BENEATH, &rule, 0))
		result = errno;
	close(fd);
	return result;
}

static int allow_all(int ruleset, uint64_t known, const struct sandbox_params *params)
{
	const uint64_t read = ACCESS_READ_FILE | ACCESS_READ_DIR, write = read | ACCESS_WRITE_FILE;
	struct rules rules = {.ruleset = ruleset,
			      .access = {[REACH_READ] = read & known,
					 [REACH_DEVICE] = (write | ACCESS_IOCTL_DEVICE) & known,
					 [REACH_FILL] = (write | ACCESS_CHANGE_FOLDER | ACCESS_TRUNCATE) & known}};
	return reach_each(&(struct reach_visitor){allow, &rules, params->cache_directory, params->fills_cache,
						  params->narrow, params->only});
}

// Allow to name the threads of this process. Through these files the kernel allows no change that other calls would not
// allow. A rule lasts as long as the kernel keeps the folder's inode, so the descriptor stays open.
static int allow_thread_names(int ruleset, uint64_t known)
{
	int folder = open("/proc/self/task", O_PATH | O_CLOEXEC);
	struct path_beneath rule = {.allowed = (ACCESS_WRITE_FILE | ACCESS_TRUNCATE) & known, .parent = folder};
	return folder < 0 || syscall(ADD_RULE, ruleset, PATH_BENEATH, &rule, 0) ? errno : 0;
}

int landlock_apply(const struct sandbox_params *params, bool names_threads)
{
	long version = syscall(CREATE_RULESET, NULL, 0, ASK_VERSION);
	if (version < 1)
		return version < 0 ? errno : ENOSYS;
	struct ruleset rules = {.files = ACCESS_FIRST};
	size_t size = sizeof(rules.files);
	if (version >= 2)
		rules.files |= 1ull << 13; // link and rename between folders
	if (version >= 3)
		rules.files |= ACCESS_TRUNCATE;
	if (version >= 5)
		rules.files |= ACCESS_IOCTL_DEVICE;
	if (version >= 4) {
		rules.net = NET_BIND_CONNECT_TCP;
		size = offsetof(struct ruleset, scoped);
	}
	if (version >= 6) {
		rules.scoped = SCOPE_ABSTRACT_SOCKETS | SCOPE_SIGNALS;
		size = sizeof(rules);
	}
	int ruleset = (int)syscall(CREATE_RULESET, &rules, size, 0);
	if (ruleset < 0)
		return errno;
	int result = allow_all(ruleset, rules.files, params);
	if (!result && names_threads)
		result = allow_thread_names(ruleset, rules.files);
	if (!result && syscall(RESTRICT_SELF, ruleset, 0))
		result = errno;
	close(ruleset);
	return result;
}
