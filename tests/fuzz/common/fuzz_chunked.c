/* The body of a POST in chunks: the first byte says in what pieces the rest comes. What it carries does not depend on
 * that, and is bounded. */
#include "common/net/http/chunked.h"

#include <stdlib.h>
#include <string.h>

enum { LIMIT = 256 };

struct outcome {
	enum status status;
	enum chunked_state state;
	size_t used;
	struct buffer body;
};

static struct outcome take(const uint8_t *bytes, size_t length, size_t piece)
{
	struct outcome outcome = {0};
	struct chunked chunked = {0};
	struct error error = {0};
	buffer_init(&outcome.body, LIMIT);
	while (!outcome.status && outcome.used < length && chunked.state != CHUNKED_OVER) {
		size_t now = length - outcome.used < piece ? length - outcome.used : piece, taken = 0;
		uint8_t *copy = malloc(now); // so that reading past its end shows
		if (!copy)
			abort();
		memcpy(copy, bytes + outcome.used, now);
		outcome.status = chunked_take(&chunked, copy, now, &outcome.body, &taken, &error);
		free(copy);
		if (taken > now || (!outcome.status && taken < now && chunked.state != CHUNKED_OVER))
			abort();
		outcome.used += taken;
	}
	if (!outcome.status != !error.message[0] || outcome.body.length > LIMIT)
		abort();
	outcome.state = chunked.state;
	return outcome;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 2)
		return 0;
	struct outcome pieces = take(data + 1, size - 1, 1 + data[0]), whole = take(data + 1, size - 1, size);
	if (pieces.status != whole.status ||
	    (!whole.status &&
	     (pieces.state != whole.state || pieces.used != whole.used || pieces.body.length != whole.body.length)))
		abort();
	if (!whole.status && whole.body.length && memcmp(pieces.body.data, whole.body.data, whole.body.length) != 0)
		abort();
	buffer_finish(&pieces.body);
	buffer_finish(&whole.body);
	return 0;
}
