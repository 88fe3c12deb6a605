/* See longer.h. */
#include "common/base/longer.h"

#include "common/base/limits.h"

#include <stdlib.h>

#ifndef NDEBUG
int64_t longer_in_tests(const char *variable, int64_t usual, int64_t most)
{
	const char *text = getenv(variable);
	const int64_t longer = text ? strtoll(text, NULL, 10) : 0;
	if (longer > usual && longer <= most)
		return longer;
	return usual;
}

int64_t lower_in_tests(const char *variable, int64_t usual)
{
	const char *text = getenv(variable);
	const int64_t lower = text ? strtoll(text, NULL, 10) : 0;
	if (lower > 0 && lower < usual)
		return lower;
	return usual;
}
#endif

int longer_node_silence_s(void)
{
	return (int)longer_in_tests("EXOGPU_TEST_NODE_SILENCE_S", LIMIT_NODE_SILENCE_S, 3600);
}

int longer_measurement_ms(int64_t usual_ms)
{
	return (int)longer_in_tests("EXOGPU_TEST_MEASUREMENT_MS", usual_ms, 600000);
}

int longer_arrival_ms(int64_t usual_ms)
{
	return (int)longer_in_tests("EXOGPU_TEST_ARRIVAL_MS", usual_ms, 600000);
}

int longer_ask_ms(int64_t usual_ms)
{
	return (int)longer_in_tests("EXOGPU_TEST_ASK_MS", usual_ms, 600000);
}

int longer_last_wait_ms(int64_t usual_ms)
{
	return (int)longer_in_tests("EXOGPU_TEST_LAST_WAIT_MS", usual_ms, 600000);
}
