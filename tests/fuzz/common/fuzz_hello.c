/* Fuzz target: how much of a client's first message of TLS is awaited before anybody looks into it
 * (common/net/http/hello.h), from any beginning of it.
 *
 * More is asked for than there is, or nothing; never more than one record beyond what came; and what is asked for at a
 * beginning is not asked for once it is there. */
#include "common/net/http/hello.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_INPUT = 70000, RECORD_BYTES = 5 + 16384 };

static void require(bool condition)
{
	if (!condition)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t wanted = 0, looks = 0;
	if (size > MOST_INPUT)
		return 0;
	for (size_t have = 0; have <= size; have = wanted, looks++) {
		uint8_t *copy = malloc(have ? have : 1); // of just that length, so that reading past its end shows
		require(copy);
		if (have)
			memcpy(copy, data, have);
		wanted = net_hello_wants(copy, have);
		free(copy);
		require(!wanted || (wanted > have && wanted - have <= RECORD_BYTES));
		require(have || wanted);
		if (!wanted)
			break;
	}
	require(looks <= 2 * size + 2);
	return 0;
}
