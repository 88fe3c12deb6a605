/* A wall clock that is off: preloaded into a program, by EXOGPU_TEST_SKEW_S seconds. What counts time that passes
 * (CLOCK_MONOTONIC) is left alone. Not part of the program. */
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long skew_s(void)
{
	const char *text = getenv("EXOGPU_TEST_SKEW_S");
	return text ? strtol(text, NULL, 10) : 0;
}

int clock_gettime(clockid_t id, struct timespec *now)
{
	const int result = (int)syscall(SYS_clock_gettime, id, now);
	if (!result && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
		now->tv_sec += skew_s();
	return result;
}

time_t time(time_t *out)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	if (out)
		*out = now.tv_sec;
	return now.tv_sec;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone)
{
	struct timespec now;
	(void)zone;
	clock_gettime(CLOCK_REALTIME, &now);
	*out = (struct timeval){.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
	return 0;
}
