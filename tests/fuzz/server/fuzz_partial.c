// What a collector of traces answers: one line of text, whatever came.
#include "server/traces/partial.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	struct partial partial;
	const bool any = partial_read((const char *)bytes, length, &partial);
	if (any != (partial.rejected || partial.message[0]))
		abort();
	for (const char *at = partial.message; *at; at++)
		if ((unsigned char)*at < ' ')
			abort();
	return 0;
}
