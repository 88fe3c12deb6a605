/* Files: libraries, their settings and device nodes can be read, device nodes also written; nothing else exists.
 *
 * The kernel's interface is declared here, since headers are often older than kernels. Rights that a kernel does not
 * know are left out; what was open before (the two sockets, standard error) stays open. With Landlock a process also
 * reaches no process outside (ptrace, /proc/PID/mem), and where the kernel has it no signal and no abstract socket. */
#include "engine/worker/sandbox.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

// The numbers are the same on every architecture.
enum { CREATE_RULESET = 444, ADD_RULE = 445, RESTRICT_SELF = 446, ASK_VERSION = 1, PATH_BENEATH = 1 };

#define ACCESS_WRITE_FILE (1ull << 1)
#define ACCESS_READ_FILE (1ull << 2)
#define ACCESS_READ_DIR (1ull << 3)
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

static const char *const readable[] = {
	"/usr",
	"/lib",
	"/lib32",
	"/lib64",
	"/opt",
	"/proc",
	"/sys",
	"/nix/store",
	"/run/opengl-driver",
	"/etc/ld.so.cache",
	"/etc/ld.so.conf",
	"/etc/ld.so.conf.d",
	"/etc/vulkan",
	"/etc/glvnd",
	"/etc/drirc",
	"/etc/nvidia",
	"/etc/OpenCL",
	"/etc/localtime",
};
static const char *const devices[] = {"/dev/null", "/dev/zero", "/dev/urandom", "/dev/random", "/dev/dri", "/dev/kfd"};
// Where a person has said that drivers and libraries are: paths separated by colons.
static const char *const variables[] = {"VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_ADD_DRIVER_FILES",
					"LD_LIBRARY_PATH"};

// What is not there needs no rule.
static int allow(int ruleset, const char *path, uint64_t access)
{
	struct stat info;
	int fd = open(path, O_PATH | O_CLOEXEC);
	if (fd < 0)
		return 0;
	int result = fstat(fd, &info) ? errno : 0;
	if (!S_ISDIR(info.st_mode))
		access &= ~ACCESS_READ_DIR;
	struct path_beneath rule = {.allowed = access, .parent = fd};
	if (!result && syscall(ADD_RULE, ruleset, PATH_BENEATH, &rule, 0))
		result = errno;
	close(fd);
	return result;
}

static int allow_listed(int ruleset, const char *list, uint64_t access)
{
	char path[4096];
	int result = 0;
	while (list && *list && !result) {
		size_t length = strcspn(list, ":");
		if (length && length < sizeof(path)) {
			memcpy(path, list, length);
			path[length] = 0;
			result = allow(ruleset, path, access);
		}
		list += length + (list[length] == ':');
	}
	return result;
}

static int allow_nvidia(int ruleset, uint64_t access)
{
	char path[sizeof("/dev/") + sizeof(((struct dirent *)0)->d_name)];
	struct dirent *entry;
	int result = 0;
	DIR *folder = opendir("/dev");
	while (folder && !result && (entry = readdir(folder))) {
		if (strncmp(entry->d_name, "nvidia", 6) != 0)
			continue;
		snprintf(path, sizeof(path), "/dev/%s", entry->d_name);
		result = allow(ruleset, path, access);
	}
	if (folder)
		closedir(folder);
	return result;
}

static int allow_all(int ruleset, uint64_t known, const char *cache_directory)
{
	uint64_t read = ACCESS_READ_FILE | ACCESS_READ_DIR;
	uint64_t use = (read | ACCESS_WRITE_FILE | ACCESS_IOCTL_DEVICE) & known;
	int result = cache_directory ? allow(ruleset, cache_directory, read) : 0;
	for (size_t i = 0; !result && i < sizeof(readable) / sizeof(readable[0]); i++)
		result = allow(ruleset, readable[i], read);
	for (size_t i = 0; !result && i < sizeof(variables) / sizeof(variables[0]); i++)
		result = allow_listed(ruleset, getenv(variables[i]), read);
	for (size_t i = 0; !result && i < sizeof(devices) / sizeof(devices[0]); i++)
		result = allow(ruleset, devices[i], use);
	return result ? result : allow_nvidia(ruleset, use);
}

// Files of this process alone, of which the kernel lets it change nothing that it could not change by other calls. A
// rule lasts as long as the kernel keeps the folder in mind: the descriptor, which stays open, sees to that.
static int allow_thread_names(int ruleset, uint64_t known)
{
	int folder = open("/proc/self/task", O_PATH | O_CLOEXEC);
	struct path_beneath rule = {.allowed = (ACCESS_WRITE_FILE | ACCESS_TRUNCATE) & known, .parent = folder};
	return folder < 0 || syscall(ADD_RULE, ruleset, PATH_BENEATH, &rule, 0) ? errno : 0;
}

int landlock_apply(const char *cache_directory, bool names_threads)
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
	int result = allow_all(ruleset, rules.files, cache_directory);
	if (!result && names_threads)
		result = allow_thread_names(ruleset, rules.files);
	if (!result && syscall(RESTRICT_SELF, ruleset, 0))
		result = errno;
	close(ruleset);
	return result;
}
