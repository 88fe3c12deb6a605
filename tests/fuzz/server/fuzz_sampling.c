/* generation_config.json and Ollama's parameters, as they come from a hub: what is taken of them can be asked for, and
 * is the same when it is written and read again; what was said before stays. */
#include "server/hub/sampling.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

static const double most[SAMPLING_NAMES] = {2, 1048576, 1, 1, 10};

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	struct sampling_words words, again, before;
	sampling_say_nothing(&words);
	sampling_add_config((const char *)bytes, length, &words);
	for (int i = 0; i < SAMPLING_NAMES; i++)
		if (!isnan(words.values[i]) && !(words.values[i] >= 0 && words.values[i] <= most[i]))
			abort();
	struct json *json = sampling_json(&words);
	sampling_read(json, &again);
	json_destroy(&json);
	for (int i = 0; i < SAMPLING_NAMES; i++)
		if (isnan(words.values[i]) ? !isnan(again.values[i]) : words.values[i] != again.values[i])
			abort();
	before = sampling_default;
	sampling_add_config((const char *)bytes, length, &before);
	if (memcmp(&before, &sampling_default, sizeof before) != 0)
		abort();
	return 0;
}
