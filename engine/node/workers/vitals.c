/* See vitals.h. A thread that waits for a processor is in state R and does not compute. The system reports the time
 * that it has waited only after it got a processor, so the computed time is compared here. */
#include "engine/node/workers/vitals.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// State and processor time of /proc/.../stat. False: it is not there.
static bool read_stat(const char *path, char *state, int64_t *cpu_ms, int64_t *system_ms)
{
	char text[1024];
	unsigned long long user = 0, system = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
	if (fd >= 0)
		close(fd);
	if (got <= 0)
		return false;
	text[got] = 0;
	const char *rest = strrchr(text, ')'); // the name before it may hold anything
	if (!rest || sscanf(rest, ") %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", state, &user, &system) != 3)
		return false;
	const long ticks = sysconf(_SC_CLK_TCK);
	*cpu_ms = ticks > 0 ? (int64_t)((user + system) * 1000 / (unsigned long long)ticks) : 0;
	*system_ms = ticks > 0 ? (int64_t)(system * 1000 / (unsigned long long)ticks) : 0;
	return true;
}

bool vitals_read(struct vitals *vitals, pid_t pid)
{
	char path[64], state = 0;
	int64_t cpu_ms = 0, system_ms = 0;
	*vitals = (struct vitals){0};
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (!read_stat(path, &state, &vitals->all_cpu_ms, &vitals->all_system_ms))
		return false;
	snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", (int)pid, (int)pid);
	if (!read_stat(path, &vitals->state, &vitals->cpu_ms, &vitals->system_ms)) {
		*vitals = (struct vitals){0};
		return false;
	}
	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	DIR *tasks = opendir(path);
	for (struct dirent *one; tasks && (one = readdir(tasks));) {
		const int thread = (int)strtol(one->d_name, NULL, 10); // 0: "." and ".."
		snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", (int)pid, thread);
		if (thread <= 0 || thread == pid || !read_stat(path, &state, &cpu_ms, &system_ms))
			continue;
		if (state == 'D' || (state == 'R' && !vitals->others))
			vitals->others = state;
	}
	if (tasks)
		closedir(tasks);
	return true;
}

const char *vitals_excuse(const struct vitals *before, const struct vitals *now, int64_t ms)
{
	const bool computes = now->cpu_ms - before->cpu_ms >= ms / 2,
		   any_computes = now->all_cpu_ms - before->all_cpu_ms >= ms / 2,
		   in_system = now->system_ms - before->system_ms >= ms / 2,
		   any_in_system = now->all_system_ms - before->all_system_ms >= ms / 2;
	if (!now->state)
		return "the system does not tell what it does"; // /proc with hidepid
	if (!before->state)
		return NULL;
	if (now->state == 'D')
		return "it waits inside the system, for a disk or for memory";
	if (now->state == 'R' && !computes)
		return "it gets no time of a processor";
	if (now->state == 'R' && in_system)
		return "the system computes for it";
	// It may wait for another thread, which is delayed itself.
	if (now->state == 'S' && now->others == 'D')
		return "one of its threads waits inside the system, for a disk, for memory or for the driver";
	if (now->state == 'S' && now->others == 'R' && !any_computes)
		return "its threads get no time of a processor";
	if (now->state == 'S' && now->others == 'R' && any_in_system)
		return "the system computes for one of its threads";
	return NULL;
}

void silence_begin(struct silence *silence, int64_t now_ms, int64_t busy_ms)
{
	*silence = (struct silence){.asked = true, .asked_ms = now_ms, .due_ms = now_ms + busy_ms + VITALS_ANSWER_MS};
}

// It is looked at each time, so that at the deadline its progress since the last look is known.
enum silence_verdict silence_look(struct silence *silence, const struct vitals *now, int64_t now_ms,
				  const char **excuse)
{
	*excuse = vitals_excuse(&silence->seen, now, now_ms - silence->seen_ms);
	silence->seen = *now;
	silence->seen_ms = now_ms;
	if (silence->due_ms > now_ms)
		return SILENCE_WAIT;
	if (!*excuse || silence->due_ms + VITALS_LATE_MS - VITALS_ANSWER_MS <= now_ms)
		return SILENCE_HANGS;
	if (silence->excused)
		return SILENCE_WAIT;
	silence->excused = true;
	return SILENCE_EXCUSED;
}

int64_t silence_stood_still(int64_t looked_ms, int64_t now_ms)
{
	const int64_t late_ms = now_ms - looked_ms - VITALS_LOOK_MS;
	return late_ms > VITALS_STOOD_STILL_MS ? late_ms : 0;
}
