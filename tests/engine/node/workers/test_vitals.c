/* The reasons that excuse a worker which does not answer, the system's state of processes with and without one, and how
 * soon a worker that hangs is found out. */
#include "engine/node/workers/vitals.h"

#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
// cmocka.h needs the four above it.
#include <cmocka.h>

static void reasons(void **state)
{
	static const struct {
		const char *what;
		struct vitals before, now;
		bool excused;
	} cases[] = {
		{"stopped", {'S', 0, 0, 0, 0, 0}, {'T', 0, 0, 0, 0, 0}, false},
		{"stopped by a debugger", {'S', 0, 0, 0, 0, 0}, {'t', 0, 0, 0, 0, 0}, false},
		{"stopped, while others compute", {'S', 0, 0, 0, 0, 0}, {'T', 'R', 0, 0, 0, 0}, false},
		{"asleep", {'S', 0, 70, 70, 0, 0}, {'S', 0, 70, 70, 0, 0}, false},
		{"asleep, while another waits in the system", {'S', 0, 0, 0, 0, 0}, {'S', 'D', 0, 0, 0, 0}, true},
		{"asleep, while another gets no processor", {'S', 0, 0, 0, 0, 0}, {'S', 'R', 0, 100, 0, 0}, true},
		{"asleep, while another computes without end", {'S', 0, 0, 0, 0, 0}, {'S', 'R', 0, 490, 0, 0}, false},
		{"in the system", {'S', 0, 0, 0, 0, 0}, {'D', 0, 0, 0, 0, 0}, true},
		{"without a processor", {'R', 0, 10, 10, 0, 0}, {'R', 0, 10, 10, 0, 0}, true},
		{"with a tenth of one", {'R', 0, 10, 10, 0, 0}, {'R', 'R', 60, 900, 0, 0}, true},
		{"with one", {'R', 0, 10, 10, 0, 0}, {'R', 0, 500, 500, 0, 0}, false},
		{"with one, in the system", {'R', 0, 10, 10, 0, 0}, {'R', 0, 500, 500, 450, 450}, true},
		{"with one, in the system now and then", {'R', 0, 10, 10, 0, 0}, {'R', 0, 500, 500, 100, 100}, false},
		{"asleep, while another is in the system", {'S', 0, 0, 0, 0, 0}, {'S', 'R', 0, 490, 0, 400}, true},
		{"dead", {'S', 0, 0, 0, 0, 0}, {'Z', 0, 0, 0, 0, 0}, false},
		{"not known before", {0}, {'R', 0, 0, 0, 0, 0}, false},
		{"not known now", {'R', 0, 0, 0, 0, 0}, {0}, true},
	};
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const char *excuse = vitals_excuse(&cases[i].before, &cases[i].now, 500);
		if (!excuse == cases[i].excused)
			fail_msg("%s: %s", cases[i].what, excuse ? excuse : "no reason");
	}
}

static void *spin(void *arg)
{
	for (;;)
		__atomic_add_fetch((int *)arg, 1, __ATOMIC_RELAXED);
	return NULL;
}

enum { SLEEPS, SPINS, ANOTHER_SPINS, IN_SYSTEM };

enum { ROOM = 64 * 1024 * 1024 };

static pid_t child(int what)
{
	static int turns;
	pthread_t thread;
	pid_t pid = fork();
	if (pid)
		return pid;
	if (what == SPINS)
		spin(&turns);
	if (what == ANOTHER_SPINS)
		pthread_create(&thread, NULL, spin, &turns);
	// One call after the other, each of which clears much memory.
	for (void *room = malloc(ROOM); what == IN_SYSTEM && room;) {
		const int zeros = open("/dev/zero", O_RDONLY | O_CLOEXEC);
		if (read(zeros, room, ROOM) < 0)
			_exit(1);
		close(zeros);
	}
	for (;;)
		pause();
}

static bool sees(const struct vitals *now, pid_t pid, char state, char others)
{
	return vitals_read((struct vitals *)now, pid) && now->state == state && now->others == others;
}

// On a busy machine it takes its time.
static void becomes(struct vitals *now, pid_t pid, char state, char others)
{
	for (int tries = 0; tries < 3000 && !sees(now, pid, state, others); tries++)
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	if (now->state != state || now->others != others)
		fail_msg("it is %c with %c, not %c with %c", now->state, now->others ? now->others : '-', state,
			 others ? others : '-');
}

static void processes(void **state)
{
	struct vitals now, later;
	(void)state;
	pid_t pid = child(SLEEPS);
	becomes(&now, pid, 'S', 0);
	assert_null(vitals_excuse(&now, &now, 500));
	kill(pid, SIGSTOP);
	becomes(&later, pid, 'T', 0);
	assert_null(vitals_excuse(&now, &later, 500));
	kill(pid, SIGKILL);
	becomes(&later, pid, 'Z', 0);
	waitpid(pid, NULL, 0);
	assert_false(vitals_read(&later, pid));
	assert_int_equal(later.state, 0);

	pid = child(SPINS);
	becomes(&now, pid, 'R', 0);
	do // it computes all the while, however little of a processor it gets
		assert_true(vitals_read(&later, pid));
	while (later.cpu_ms < now.cpu_ms + 200);
	assert_null(vitals_excuse(&now, &later, 200));
	assert_non_null(vitals_excuse(&now, &later, later.cpu_ms * 3)); // in so long it was hardly let
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);

	pid = child(IN_SYSTEM);
	becomes(&now, pid, 'R', 0);
	do // a busy kernel counts by samples, and what a sanitizer adds is not the system's
		assert_true(vitals_read(&later, pid));
	while (later.cpu_ms < now.cpu_ms + 300 || later.system_ms < now.system_ms + 200 || later.state != 'R');
	assert_string_equal(vitals_excuse(&now, &later, 300), "the system computes for it");
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);

	pid = child(ANOTHER_SPINS);
	becomes(&now, pid, 'S', 'R');
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

// Where others' folders of /proc are hidden.
static void hidden(void **state)
{
	struct vitals now = {0}, seen = {'S', 0, 0, 0, 0, 0};
	int wait_status = 0;
	(void)state;
	if (geteuid()) {
		print_message("skipped: only root mounts /proc\n");
		skip();
	}
	const pid_t asleep = child(SLEEPS), pid = fork();
	if (!pid) {
		if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
		    mount("proc", "/proc", "proc", 0, "hidepid=2"))
			_exit(2);
		const bool root_sees = vitals_read(&now, asleep) && now.state; // as a node that is root
		if (setgroups(0, NULL) || setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
			_exit(3);
		now = seen;
		const bool found = vitals_read(&now, asleep);
		const char *excuse = vitals_excuse(&seen, &now, 500);
		_exit(root_sees && !found && !now.state && excuse && strstr(excuse, "does not tell") ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &wait_status, 0), pid);
	kill(asleep, SIGKILL);
	waitpid(asleep, NULL, 0);
	assert_true(WIFEXITED(wait_status));
	if (WEXITSTATUS(wait_status) == 2) {
		print_message("skipped: this system mounts no /proc anew\n");
		skip();
	}
	assert_int_equal(WEXITSTATUS(wait_status), 0);
}

// ---- how soon one that hangs is found out, on a clock that the test moves ----

enum hang { STOPPED, ASLEEP, COMPUTES, NO_PROCESSOR, HANGS };

static struct vitals seen_of(enum hang how, int64_t now_ms)
{
	switch (how) {
	case STOPPED:
		return (struct vitals){.state = 'T'};
	case COMPUTES:
		return (struct vitals){.state = 'R', .cpu_ms = now_ms, .all_cpu_ms = now_ms};
	case NO_PROCESSOR:
		return (struct vitals){.state = 'R'};
	case ASLEEP:
	default:
		return (struct vitals){.state = 'S'};
	}
}

enum lateness { ON_TIME, SOMEWHAT_LATE, ONE_STANDS_STILL, LATENESSES };

static int64_t late_ms(enum lateness late, int number)
{
	if (late == SOMEWHAT_LATE)
		return number * 37 % (VITALS_STOOD_STILL_MS + 1);
	return late == ONE_STANDS_STILL && number == 2 ? 4000 : 0;
}

struct found {
	int64_t after_hang_ms, after_question_ms, late_ms; // late_ms: of the looks since the hang, together
	int excused;
};

// A worker answers each question at once, as tenants_watch.c asks, until it hangs at a moment after the first look.
static struct found found_out(enum hang how, int64_t hang_ms, enum lateness late)
{
	struct silence silence = {0};
	struct found found = {0};
	int64_t looked_ms = 0;
	for (int number = 0;; number++) {
		const int64_t now_ms = looked_ms + VITALS_LOOK_MS + late_ms(late, number);
		const char *excuse;
		silence.due_ms += silence_stood_still(looked_ms, now_ms);
		found.late_ms += now_ms > hang_ms ? late_ms(late, number) : 0;
		looked_ms = now_ms;
		silence.asked = silence.asked && silence.asked_ms >= hang_ms;
		if (!silence.asked) {
			silence_begin(&silence, now_ms, 0);
			continue;
		}
		const struct vitals now = seen_of(how, now_ms);
		const enum silence_verdict verdict = silence_look(&silence, &now, now_ms, &excuse);
		found.excused += verdict == SILENCE_EXCUSED;
		if (verdict == SILENCE_HANGS) {
			found.after_hang_ms = now_ms - hang_ms;
			found.after_question_ms = now_ms - silence.asked_ms;
			return found;
		}
		assert_true(now_ms < hang_ms + 60000); // it is found out at all
	}
}

static void within_two_seconds(void **state)
{
	(void)state;
	assert_true(VITALS_HANG_MS <= 2000); // a second of the three is left for another worker
	for (enum lateness late = ON_TIME; late < LATENESSES; late++)
		for (enum hang how = STOPPED; how < HANGS; how++)
			for (int64_t hang_ms = VITALS_LOOK_MS + 1; hang_ms <= 3 * VITALS_LOOK_MS; hang_ms++) {
				const struct found found = found_out(how, hang_ms, late);
				const bool excused = how == NO_PROCESSOR;
				const int64_t most_ms = excused ? VITALS_LOOK_MS + VITALS_LATE_MS : VITALS_HANG_MS;
				assert_true(found.after_hang_ms <= most_ms + found.late_ms);
				assert_true(found.after_question_ms >= (excused ? VITALS_LATE_MS : VITALS_ANSWER_MS));
				assert_int_equal(found.excused, excused);
			}
}

// What it said of itself counts from when it is asked, and who stood still had that much longer.
static void busy_ones(void **state)
{
	struct silence silence;
	const struct vitals asleep = {.state = 'S'};
	const char *excuse;
	(void)state;
	silence_begin(&silence, 1000, 3000);
	for (int64_t now_ms = 1500; now_ms < 5500; now_ms += VITALS_LOOK_MS)
		assert_int_equal(silence_look(&silence, &asleep, now_ms, &excuse), SILENCE_WAIT);
	assert_int_equal(silence_look(&silence, &asleep, 5500, &excuse), SILENCE_HANGS);
	assert_null(excuse);
	assert_int_equal(silence_stood_still(1000, 1000 + VITALS_LOOK_MS + VITALS_STOOD_STILL_MS), 0);
	assert_int_equal(silence_stood_still(1000, 1000 + VITALS_LOOK_MS + 4000), 4000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(reasons), cmocka_unit_test(processes),
					   cmocka_unit_test(hidden), cmocka_unit_test(within_two_seconds),
					   cmocka_unit_test(busy_ones)};
	return cmocka_run_group_tests_name("node/vitals", tests, NULL, NULL);
}
