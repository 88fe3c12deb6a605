/* The files that a confined worker reaches, in a root and a /dev made for the test: device nodes of each maker, folders
 * inside each other, links, and the cache of a worker that fills it. As root; each part in a process of its own. */
#include "engine/node/cache.h"
#include "engine/worker/confine/reach.h"
#include "engine/worker/confine/sandbox.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>
// cmocka.h needs the four above it.
#include <cmocka.h>

enum { CANNOT = 77 };

// In a mount namespace of its own. What is wrong is told, and ends it.
#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: %s (%s)\n", __func__, __LINE__, #condition, strerror(errno)); \
			_exit(1); \
		} \
	} while (0)

static void alone(void (*part)(void))
{
	int wait_status = 0;
	const pid_t pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		if (geteuid() || unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
			_exit(CANNOT);
		part();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &wait_status, 0), pid);
	assert_true(WIFEXITED(wait_status));
	if (WEXITSTATUS(wait_status) == CANNOT) {
		print_message("skipped: this system makes no mounts here\n");
		skip();
	}
	assert_int_equal(WEXITSTATUS(wait_status), 0);
}

// A node that behaves as /dev/null, whoever's it seems to be.
static void make_node(const char *path, mode_t mode, gid_t group)
{
	CHECK(!mknod(path, S_IFCHR | mode, makedev(1, 3)) && !chmod(path, mode) && !chown(path, 0, group));
}

static void empty_devices(void)
{
	if (mount("dev", "/dev", "tmpfs", 0, "mode=0755"))
		_exit(CANNOT);
	make_node("/dev/null", 0666, 0);
	make_node("/dev/sda", 0660, 6); // no business of a worker's
}

static char visited[4096];

static int note(void *arg, const char *path, enum reach_use use)
{
	(void)arg;
	if (use == REACH_DEVICE)
		snprintf(visited + strlen(visited), sizeof(visited) - strlen(visited), "%s\n", path);
	return 0;
}

static bool visits(const char *path)
{
	char line[128];
	visited[0] = 0;
	CHECK(!reach_each(&(struct reach_visitor){.take = note}));
	snprintf(line, sizeof(line), "%s\n", path);
	return strstr(visited, line);
}

static bool has_group(gid_t group)
{
	gid_t groups[REACH_GROUPS];
	const int count = reach_groups(groups);
	for (int i = 0; i < count; i++)
		if (groups[i] == group)
			return true;
	return false;
}

static void nodes_of_makers(void)
{
	gid_t groups[REACH_GROUPS];
	empty_devices();
	CHECK(reach_drivers() == 0 && reach_groups(groups) == 0 && !visits("/dev/sda") && visits("/dev/null"));
	make_node("/dev/nvidiactl", 0666, 0);
	make_node("/dev/nvidia0", 0660, 700);
	make_node("/dev/nvidia-uvm", 0666, 0);
	make_node("/dev/nvidia-uvm-tools", 0600, 0); // root's: for managing
	CHECK(reach_drivers() == REACH_NVIDIA && has_group(700) && visits("/dev/nvidia0") && visits("/dev/nvidia-uvm"));
	make_node("/dev/nvmap", 0660, 701);
	make_node("/dev/nvhost-gpu", 0660, 701);
	make_node("/dev/nvhost-dbg-gpu", 0600, 0);
	CHECK(!mkdir("/dev/nvgpu", 0755) && !mkdir("/dev/nvgpu/igpu0", 0755));
	make_node("/dev/nvgpu/igpu0/channel", 0660, 702);
	CHECK(reach_drivers() == (REACH_NVIDIA | REACH_TEGRA) && has_group(701) && has_group(702));
	CHECK(visits("/dev/nvmap") && visits("/dev/nvhost-gpu") && visits("/dev/nvgpu"));
	make_node("/dev/dxg", 0666, 0);
	CHECK(reach_drivers() == (REACH_NVIDIA | REACH_TEGRA | REACH_WINDOWS) && visits("/dev/dxg"));
	make_node("/dev/kfd", 0660, 703);
	CHECK(!mkdir("/dev/dri", 0755));
	make_node("/dev/dri/card0", 0660, 704);
	make_node("/dev/dri/renderD128", 0660, 705);
	CHECK((reach_drivers() & REACH_OTHER) && has_group(703) && has_group(705) && visits("/dev/dri"));
	// One that a driver cannot do without, and root alone can open: then there is no user of its own.
	CHECK(!chmod("/dev/nvidia0", 0600) && reach_groups(groups) < 0);
}

static void each_maker_has_its_nodes(void **state)
{
	(void)state;
	alone(nodes_of_makers);
}

// Of a driver that renders alone: not those of a card that only shows pictures.
static void pictures_only(void)
{
	empty_devices();
	CHECK(!mkdir("/dev/dri", 0755));
	make_node("/dev/dri/card0", 0660, 704);
	CHECK(reach_drivers() == 0);
	make_node("/dev/dri/renderD128", 0666, 0);
	CHECK(reach_drivers() == REACH_OTHER);
}

static void a_card_for_pictures_is_no_gpu(void **state)
{
	(void)state;
	alone(pictures_only);
}

// ---- the root ----

static void write_file(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	CHECK(fd >= 0 && write(fd, "x", 1) == 1 && !close(fd));
}

static bool reads(const char *path)
{
	char byte;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	bool got = fd >= 0 && read(fd, &byte, 1) == 1;
	if (fd >= 0)
		close(fd);
	return got;
}

static int writes(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644), number = errno;
	if (fd >= 0)
		close(fd);
	return fd < 0 ? number : 0;
}

static bool is_cache_filled;

// /tmp is this process's own: nothing of it stays.
static void make_places(void)
{
	if (mount("tmp", "/tmp", "tmpfs", 0, "mode=0777"))
		_exit(CANNOT);
	CHECK(!mkdir("/tmp/a", 0755) && !mkdir("/tmp/a/b", 0755) && !mkdir("/tmp/a/cache", 0755));
	write_file("/tmp/a/b/icd.json");
	write_file("/tmp/a/other");
	write_file("/tmp/a/cache/kernel");
	write_file("/tmp/hidden");
	// The inner one is on the list before the one around it.
	setenv("VK_DRIVER_FILES", "/tmp/a/b/icd.json", 1);
	setenv("LD_LIBRARY_PATH", "/tmp/a/b:/tmp/a", 1);
}

static void places(void)
{
	make_places();
	umask(077); // others come into the folders that are made for the mounts
	const struct sandbox_params params = {.cache_directory = "/tmp/a/cache", .fills_cache = is_cache_filled};
	const int entered = files_enter(&params, false);
	if (entered == EPERM)
		_exit(CANNOT);
	CHECK(!entered);
	CHECK(reads("/tmp/a/b/icd.json") && reads("/tmp/a/other") && reads("/tmp/a/cache/kernel"));
	CHECK(!reads("/tmp/hidden") && writes("/tmp/a/other") == EROFS && writes("/tmp/a/new") == EROFS);
	CHECK(writes("/tmp/new") == EROFS && !reads("/etc/passwd"));
	CHECK(writes("/tmp/a/cache/kernel") == (is_cache_filled ? 0 : EROFS));
	CHECK(writes("/tmp/a/cache/new") == (is_cache_filled ? 0 : EROFS));
	struct stat info;
	CHECK(!stat("/tmp", &info) && (info.st_mode & 07777) == 0755);
}

static void folders_inside_each_other_are_all_there(void **state)
{
	(void)state;
	is_cache_filled = false;
	alone(places);
}

static void a_cache_that_is_filled_is_written_alone(void **state)
{
	(void)state;
	is_cache_filled = true;
	alone(places);
}

// Debian's packages of NVIDIA's driver reach their libraries so.
static void links(void)
{
	char target[4096];
	if (mount("alternatives", "/etc/alternatives", "tmpfs", 0, "mode=0755"))
		_exit(CANNOT);
	CHECK(!symlink("/usr/lib/os-release", "/etc/alternatives/exogpu-test"));
	CHECK(!files_enter(&(struct sandbox_params){.cache_directory = NULL}, false));
	CHECK(readlink("/etc/alternatives/exogpu-test", target, sizeof(target)) > 0);
	CHECK(reads("/etc/alternatives/exogpu-test"));
}

static void alternatives_are_followed(void **state)
{
	(void)state;
	if (access("/etc/alternatives", R_OK) || access("/usr/lib/os-release", R_OK)) {
		print_message("skipped: no /etc/alternatives here\n");
		skip();
	}
	alone(links);
}

// ---- the cache's owner ----

static uid_t owner(const char *path)
{
	struct stat info;
	CHECK(!lstat(path, &info));
	return info.st_uid;
}

static void given(void)
{
	char path[128];
	struct stat info;
	if (mount("tmp", "/tmp", "tmpfs", 0, "mode=0777"))
		_exit(CANNOT);
	umask(077);
	CHECK(!mkdir("/tmp/d", 0700) && !mkdir("/tmp/d/cache", 0700) && !mkdir("/tmp/d/cache/in", 0755));
	write_file("/tmp/d/cache/in/kernel");
	write_file("/tmp/d/secret");
	// What a worker that was taken over may have left there.
	CHECK(!symlink("/tmp/d/secret", "/tmp/d/cache/link") && !link("/tmp/d/secret", "/tmp/d/cache/again"));
	CHECK(!symlink("/tmp/d", "/tmp/d/cache/mesa"));
	CHECK(!cache_prepare("/tmp/d", path, sizeof(path), NULL));
	const uid_t user = owner("/tmp/d/cache");
	CHECK(user && owner("/tmp/d/cache/in") == user && owner("/tmp/d/cache/in/kernel") == user);
	CHECK(owner("/tmp/d/cache/cuda") == user && owner("/tmp/d/cache/mesa") == user);
	CHECK(!owner("/tmp/d") && !owner("/tmp/d/secret") && !owner("/tmp/d/cache/again"));
	CHECK(!lstat("/tmp/d/cache/mesa", &info) && S_ISDIR(info.st_mode) && (info.st_mode & 0777) == 0755);
	CHECK(!stat("/tmp/d", &info) && (info.st_mode & 0777) == 0700);
	CHECK(!stat("/tmp/d/cache", &info) && (info.st_mode & 0777) == 0755);
	CHECK(!cache_prepare("/tmp/d", path, sizeof(path), NULL)); // again, of another's folders
	// Where workers stay root it is root's again: without capabilities it cannot write another's.
	CHECK(!chmod("/tmp/d/secret", 0600) && !setenv("VK_DRIVER_FILES", "/tmp/d/secret", 1));
	CHECK(!cache_prepare("/tmp/d", path, sizeof(path), NULL));
	CHECK(!owner("/tmp/d/cache") && !owner("/tmp/d/cache/in/kernel") && !owner("/tmp/d/cache/mesa"));
}

static void the_cache_changes_hands_and_nothing_else(void **state)
{
	(void)state;
	alone(given);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_maker_has_its_nodes),
		cmocka_unit_test(a_card_for_pictures_is_no_gpu),
		cmocka_unit_test(folders_inside_each_other_are_all_there),
		cmocka_unit_test(a_cache_that_is_filled_is_written_alone),
		cmocka_unit_test(alternatives_are_followed),
		cmocka_unit_test(the_cache_changes_hands_and_nothing_else),
	};
	return cmocka_run_group_tests_name("worker/reach", tests, NULL, NULL);
}
