/* The refusals of a worker's sandbox: each kind of worker, started as the node starts it, tries each attack of
 * engine/worker/confine/escape.c from inside, and this looks from outside whether anything came of it. */
#include "engine/node/cache.h"
#include "engine/node/workers/refusals.h"
#include "tests/engine/worker/find_vulkan.h"
#include "tests/tools/model_file.h"

#include <ftw.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/xattr.h>

static int model_fd = -1;

#ifdef NDEBUG
static void is_refused_cpu(void **state)
{
	(void)state;
	print_message("skipped: a release build does not attack itself\n");
	skip();
}

static void is_refused_cuda(void **state)
{
	is_refused_cpu(state);
}

static void is_refused_vulkan(void **state)
{
	is_refused_cpu(state);
}
#else

enum { TEXT_BYTES = 65536 };

// A machine with something to attack.
struct scene {
	char folder[64], token[96], cache[80], kernel[96], path[96], abstract[64];
	pid_t victim;
	int key, memory, mail[2];
	struct stat folder_before, token_before;
};

static int open_mail(const struct sockaddr_un *address, socklen_t length)
{
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (const struct sockaddr *)address, length), 0);
	return fd;
}

static void write_file(const char *path, mode_t mode)
{
	FILE *file = fopen(path, "we");
	assert_non_null(file);
	fputs("secret\n", file);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(chmod(path, mode), 0);
}

static void make_scene(struct scene *scene)
{
	struct sockaddr_un path = {.sun_family = AF_UNIX}, abstract = {.sun_family = AF_UNIX};
	*scene = (struct scene){.folder = "/tmp/exogpu-escape-XXXXXX"};
	assert_non_null(mkdtemp(scene->folder));
	// Anybody may come in here: what keeps the worker out is not the folder's mode.
	assert_int_equal(chmod(scene->folder, 0777), 0);
	snprintf(scene->token, sizeof(scene->token), "%s/admin.token", scene->folder);
	snprintf(scene->cache, sizeof(scene->cache), "%s/cache", scene->folder);
	assert_int_equal(mkdir(scene->cache, 0755), 0);
	snprintf(scene->kernel, sizeof(scene->kernel), "%s/cache/kernel", scene->folder);
	snprintf(scene->path, sizeof(scene->path), "%s/socket", scene->folder);
	snprintf(scene->abstract, sizeof(scene->abstract), "exogpu-escape-%d", (int)getpid());
	write_file(scene->token, 0600);
	write_file(scene->kernel, 0644);
	// What was there before workers had users of their own changes hands, too.
	assert_int_equal(cache_prepare(scene->folder, (char[96]){0}, 96, NULL), STATUS_OK);
	snprintf(path.sun_path, sizeof(path.sun_path), "%s", scene->path);
	snprintf(abstract.sun_path + 1, sizeof(abstract.sun_path) - 1, "%s", scene->abstract);
	scene->mail[0] = open_mail(&path, sizeof(path));
	assert_int_equal(chmod(scene->path, 0777), 0);
	scene->mail[1] = open_mail(&abstract,
				   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(scene->abstract)));
	scene->key = 0x45584f00 + (int)(getpid() % 4096);
	scene->memory = shmget(scene->key, 4096, IPC_CREAT | 0666); // ended by end_scene
	assert_true(scene->memory >= 0);
	scene->victim = fork();
	assert_true(scene->victim >= 0);
	if (!scene->victim) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	assert_int_equal(stat(scene->folder, &scene->folder_before), 0);
	assert_int_equal(stat(scene->token, &scene->token_before), 0);
}

static void look_at_file(const char *path, const struct stat *before)
{
	struct stat now;
	assert_int_equal(stat(path, &now), 0);
	assert_int_equal(now.st_mode, before->st_mode);
	assert_int_equal(now.st_uid, before->st_uid);
	assert_int_equal(now.st_size, before->st_size);
	assert_int_equal(now.st_mtim.tv_sec, before->st_mtim.tv_sec);
	assert_int_equal(now.st_ctim.tv_sec, before->st_ctim.tv_sec);
	assert_int_equal(now.st_ctim.tv_nsec, before->st_ctim.tv_nsec);
	assert_true(listxattr(path, NULL, 0) <= 0);
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at)
{
	(void)info, (void)kind, (void)at;
	return remove(path);
}

// What came of it.
static void end_scene(struct scene *scene)
{
	struct shmid_ds info;
	cpu_set_t affinity, mine;
	char byte;
	look_at_file(scene->folder, &scene->folder_before);
	look_at_file(scene->token, &scene->token_before);
	assert_int_equal(sched_getscheduler(scene->victim), SCHED_OTHER);
	assert_int_equal(getpriority(PRIO_PROCESS, (id_t)scene->victim), getpriority(PRIO_PROCESS, 0));
	assert_int_equal(sched_getaffinity(scene->victim, sizeof(affinity), &affinity), 0);
	assert_int_equal(sched_getaffinity(0, sizeof(mine), &mine), 0);
	assert_true(CPU_EQUAL(&affinity, &mine));
	assert_int_equal(waitpid(scene->victim, NULL, WNOHANG), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(recv(scene->mail[i], &byte, 1, 0), -1);
		close(scene->mail[i]);
	}
	assert_int_equal(shmctl(scene->memory, IPC_STAT, &info), 0);
	assert_int_equal(info.shm_nattch, 0);
	shmctl(scene->memory, IPC_RMID, NULL);
	kill(scene->victim, SIGKILL);
	waitpid(scene->victim, NULL, 0);
	nftw(scene->cache, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	assert_true(!unlink(scene->token) && !unlink(scene->path) && !rmdir(scene->folder));
}

// Whether the worker's namespace of this kind is another than this process's.
static bool is_apart(pid_t pid, const char *kind)
{
	char path[64], theirs[64] = "", ours[64] = "";
	snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)pid, kind);
	assert_true(readlink(path, theirs, sizeof(theirs) - 1) > 0);
	snprintf(path, sizeof(path), "/proc/self/ns/%s", kind);
	assert_true(readlink(path, ours, sizeof(ours) - 1) > 0);
	return strcmp(theirs, ours) != 0;
}

// As tests/CMakeLists.txt says it, where this runs as in a container that has none.
static bool without_namespaces(void)
{
	return getenv("EXOGPU_TEST_CONTAINER") != NULL;
}

static unsigned user_of(pid_t pid)
{
	char path[64], line[256];
	unsigned user = 0;
	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	FILE *file = fopen(path, "re");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		sscanf(line, "Uid: %u", &user);
	fclose(file);
	return user;
}

// Of what this process was started with the worker has what a driver reads, and no secret.
static void look_at_environment(pid_t pid)
{
	char path[64], text[16384] = "";
	snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
	FILE *file = fopen(path, "re");
	if (!file)
		return; // another's, and the test is not root
	const size_t length = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	for (size_t at = 0; at < length; at += strlen(text + at) + 1)
		if (strstr(text + at, "secret"))
			fail_msg("the worker knows %s", text + at);
}

// As root nothing may be missing but what the kernel itself lacks.
static void look_at_worker(const struct worker *worker)
{
	static const char *const kinds[] = {"ipc", "mnt", "net", "pid"};
	if (geteuid())
		return;
	for (size_t i = 0; !without_namespaces() && i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!is_apart(worker->pid, kinds[i]))
			fail_msg("the worker shares its namespace %s with others", kinds[i]);
	assert_int_not_equal(user_of(worker->pid), 0);
}

// A kind of worker, by its first call.
struct kind {
	const char *name, *method, *params;
	bool stays, has_cache, fills_cache;
};
static const struct kind worker_kinds[] = {
	{"session", "worker.open", "", true, true, false},
	{"model", "worker.instance", "", true, true, false},
	{"list", "worker.enumerate", "", false, false, false},
	{"verify", "worker.verify", ",'measure':false", false, true, true},
	{"measure", "worker.peers", ",'peer_key':'no such'", false, false, false},
	{"compile", "worker.compile", "", false, true, true},
};

// What a driver needs. Sockets and names of threads are for CUDA's library alone.
static bool is_needed(const char *line, const struct kind *kind, const char *backend)
{
	static const char *const all[] = {"kill itself", "read /etc/ld.so.cache", "read the cache"};
	static const char *const cuda[] = {"socket AF_UNIX:", "write /proc/thread-self/comm", "name a thread"};
	static const char *const fills[] = {"change the cache", "add to the cache", "take from the cache"};
	for (size_t i = 0; i < 3; i++)
		if (strstr(line, all[i]) || (!strcmp(backend, "cuda") && strstr(line, cuda[i])) ||
		    (kind->fills_cache && strstr(line, fills[i])))
			return true;
	return false;
}

// Without namespaces others' folders below /proc can be seen, as everybody on the machine sees them, and whether a file
// is there in a folder that is open to everybody.
static bool is_look(const char *line)
{
	static const char *const looks[] = {"see the admin token", ": open its fd", ": open its status",
					    ": open its maps"};
	for (size_t i = 0; i < sizeof(looks) / sizeof(looks[0]); i++)
		if (strstr(line, looks[i]))
			return true;
	return false;
}

static unsigned check_lines(const char *text, const struct kind *kind, const char *backend, bool whole)
{
	unsigned needed = 0, bad = 0;
	for (const char *at = strstr(text, "escape: "); at; at = strstr(at + 1, "\nescape: "), at += at != NULL) {
		char line[200];
		snprintf(line, sizeof(line), "%.*s", (int)strcspn(at, "\n"), at);
		if (!strstr(line, ": allowed"))
			continue;
		const bool fine = is_needed(line, kind, backend);
		needed += fine;
		if (fine || (!whole && is_look(line)))
			continue;
		bad++;
		print_error("%s worker: %s\n", kind->name, line);
	}
	assert_int_equal(bad, 0);
	return needed;
}

static bool was_told[1024];

static void *refuse_all(void *arg)
{
	const int *listener = arg;
	int number;
	while (*listener >= 0 && (number = refusals_answer(*listener)) != REFUSALS_ENDED)
		if (number >= 0 && number < (int)(sizeof(was_told) / sizeof(was_told[0])))
			was_told[number] = true;
	return NULL;
}

static void wait_for_answer(int fd, int id)
{
	struct answer answer;
	for (bool found = false; !found; answer_finish(&answer)) {
		assert_true(receive_answer(fd, &answer));
		found = json_get_integer(answer.message.head, "id", 0) == id;
		if (found)
			print_message("its device: %s\n", answer.status ? status_word(answer.status) : "open");
	}
}

// Whether there is such a device does not matter: the attacks come after its driver was asked.
static void load_driver(struct worker *worker, const struct kind *kind, const char *key)
{
	if (strcmp(kind->name, "session") == 0)
		wait_for_answer(worker->node, post(worker, worker->node, "worker.device", NULL, 0,
						   "'device':0,'hardware_key':'%s'", key));
	if (strcmp(kind->name, "model") == 0)
		wait_for_answer(worker->server,
				post(worker, worker->server, "instance.load", NULL, 0,
				     "'stages':[{'hardware_key':'%s','first_layer':0,'layer_count':2,'host_layers':0}],"
				     "'context_tokens':64,'page_count':8,'batch_rows':8,'sequences':2",
				     key));
}

static void start_worker(struct worker *worker, const struct scene *scene, const char *backend)
{
	char words[512];
	snprintf(words, sizeof(words), "escape:%s", backend);
	setenv("EXOGPU_FAULT", words, 1);
	snprintf(words, sizeof(words), "data=%s,node=%d,victim=%d,key=%d,path=%s,abstract=%s", scene->folder,
		 (int)getpid(), (int)scene->victim, scene->key, scene->path, scene->abstract);
	setenv("EXOGPU_ESCAPE", words, 1);
	setenv("HF_TOKEN", "hf_secret", 1);
	setenv("https_proxy", "http://user:secret@proxy", 1);
	setenv("CUDA_ACCESS_TOKEN", "secret", 1);
	worker_start_alone(worker);
	unsetenv("EXOGPU_FAULT");
	unsetenv("EXOGPU_ESCAPE");
	unsetenv("HF_TOKEN");
	unsetenv("https_proxy");
	unsetenv("CUDA_ACCESS_TOKEN");
}

static int post_first(struct worker *worker, const struct kind *kind, const struct scene *scene, const char *backend,
		      const char *key)
{
	char which[300] = "", cache[128] = "";
	if (!kind->stays && strcmp(kind->name, "list") != 0)
		snprintf(which, sizeof(which), ",'hardware_key':'%.256s'", key);
	if (kind->has_cache)
		snprintf(cache, sizeof(cache), ",'cache_directory':'%s'", scene->cache);
	return post(worker, worker->node, kind->method, NULL, 0, "'backend':'%s'%s%s%s", backend, which, kind->params,
		    cache);
}

static void is_refused_to(const struct kind *kind, const char *backend, const char *key)
{
	struct scene scene;
	struct worker worker;
	struct answer answer;
	pthread_t refusing;
	int listener = -1;
	char *text = malloc(TEXT_BYTES);
	assert_non_null(text);
	print_message("%s worker of %s\n", kind->name, backend);
	memset(was_told, 0, sizeof(was_told));
	make_scene(&scene);
	worker_model = strcmp(kind->name, "model") == 0 ? model_fd : -1;
	start_worker(&worker, &scene, backend);
	int id = post_first(&worker, kind, &scene, backend, key);
	// What the node does: it gets the filter's other end with the first message.
	assert_int_equal(refusals_receive(worker.node, (uint8_t[1]){0}, 0, &listener), 0);
	if (listener >= 0) // until its calls are answered it does not end
		look_at_worker(&worker);
	look_at_environment(worker.pid);
	assert_int_equal(pthread_create(&refusing, NULL, refuse_all, &listener), 0);
	bool whole = true;
	if (kind->stays) {
		expect(worker.node, &answer, id, kind->method, STATUS_OK);
		const struct json *missing = json_get(json_get(answer.message.result, "sandbox"), "missing");
		whole = !json_count(missing);
		for (const struct json *one = json_first(missing); one; one = json_next(one))
			print_message("missing here: %s\n", json_string(one, ""));
		answer_finish(&answer);
		look_at_worker(&worker);
		load_driver(&worker, kind, key);
	} else {
		wait_for_answer(worker.node, id);
		whole = !without_namespaces() && !geteuid();
	}
	worker_end(&worker, text, TEXT_BYTES);
	pthread_join(refusing, NULL);
	// What is not on the list is told, where the kernel has a way.
	if (listener >= 0)
		assert_true(was_told[SYS_fchmodat] && was_told[SYS_shmget] && was_told[SYS_inotify_init1]);
	close(listener);
	if (!strstr(text, "escape: end"))
		print_error("%s\n", text);
	assert_non_null(strstr(text, "escape: end"));
	const unsigned needed = check_lines(text, kind, backend, whole);
	free(text);
	end_scene(&scene);
	assert_int_equal(needed, 2 + kind->has_cache + 3 * kind->fills_cache + 3 * !strcmp(backend, "cuda"));
	assert_true(whole || geteuid() || without_namespaces()); // root lacks nothing, on a kernel of these years
}

static void is_refused(const char *backend, const char *key)
{
	for (size_t i = 0; i < sizeof(worker_kinds) / sizeof(worker_kinds[0]); i++)
		is_refused_to(&worker_kinds[i], backend, key);
}

static void is_refused_cpu(void **state)
{
	(void)state;
	is_refused("cpu", "cpu");
}

static void is_refused_cuda(void **state)
{
	struct worker worker;
	struct answer answer;
	char key[257] = "";
	(void)state;
	worker_start(&worker, NULL);
	post(&worker, worker.node, "worker.enumerate", NULL, 0, "'backend':'cuda'");
	assert_true(receive_answer(worker.node, &answer));
	snprintf(key, sizeof(key), "%s",
		 json_get_string(json_first(json_get(answer.message.result, "devices")), "hardware_key", "none"));
	answer_finish(&answer);
	worker_end(&worker, NULL, 0);
	print_message("CUDA's device: %s\n", key);
	is_refused("cuda", key);
}

static void is_refused_vulkan(void **state)
{
	(void)state;
	is_refused("vulkan", vulkan_key[0] ? vulkan_key : "none");
}
#endif

static int prepare(void **state)
{
	struct model_file small = model_file_small();
	char path[] = "/tmp/exogpu-model-XXXXXX";
	const int made = mkstemp(path);
	if (made < 0 || !model_file_save(&small, path))
		return 1;
	close(made);
	model_fd = open(path, O_RDONLY | O_CLOEXEC);
	unlink(path);
	return find_vulkan(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(is_refused_cpu),
		cmocka_unit_test(is_refused_cuda),
		cmocka_unit_test(is_refused_vulkan),
	};
	return cmocka_run_group_tests_name("worker/escape", tests, prepare, drop_contract);
}
