/* Limits of time that a test may make longer, since a busy machine stops the test's processes for longer than the
 * limit; and limits that a test may lower, to meet them soon. Only builds with assertions look at the environment, and
 * only they hold the names of the variables. Thread: any. */
#pragma once
#include <stdint.h>

#ifdef NDEBUG
#define longer_in_tests(variable, usual, most) ((int64_t)(usual))
#define lower_in_tests(variable, usual) ((int64_t)(usual))
#else
// `usual`, or the number in this environment variable if it is longer and at most `most`.
int64_t longer_in_tests(const char *variable, int64_t usual, int64_t most);
// `usual`, or the number in this environment variable if it is lower and above 0.
int64_t lower_in_tests(const char *variable, int64_t usual);
#endif
// For how many seconds a node or its server may be silent before the other gives the connection up:
// LIMIT_NODE_SILENCE_S, or EXOGPU_TEST_NODE_SILENCE_S.
int longer_node_silence_s(void);
// For how many milliseconds a worker may measure what its devices do: EXOGPU_TEST_MEASUREMENT_MS.
int longer_measurement_ms(int64_t usual_ms);
// For how many milliseconds a connection's handshake, and the head of its first request, are waited for:
// EXOGPU_TEST_ARRIVAL_MS.
int longer_arrival_ms(int64_t usual_ms);
// For how many milliseconds workers are asked what they have of a prompt: EXOGPU_TEST_ASK_MS.
int longer_ask_ms(int64_t usual_ms);
// For how many milliseconds the end of a worker is waited for by one way once another way has shown it:
// EXOGPU_TEST_LAST_WAIT_MS for tests of the order of the two.
int longer_last_wait_ms(int64_t usual_ms);
