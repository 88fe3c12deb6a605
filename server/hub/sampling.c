/* See sampling.h. */
#include "server/hub/sampling.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 4097 };

static const struct {
	const char *name;     // in requests and in generation_config.json
	const char *file_key; // in the model file
	double least, most;
	bool whole;
} known[SAMPLING_NAMES] = {
	[SAMPLING_TEMPERATURE] = {"temperature", "general.sampling.temp", 0, 2, false},
	[SAMPLING_TOP_K] = {"top_k", "general.sampling.top_k", 0, 1048576, true},
	[SAMPLING_TOP_P] = {"top_p", "general.sampling.top_p", 0, 1, false},
	[SAMPLING_MIN_P] = {"min_p", "general.sampling.min_p", 0, 1, false},
	[SAMPLING_REPETITION_PENALTY] = {"repetition_penalty", "general.sampling.penalty_repeat", 0.01, 10, false},
};

const struct sampling_words sampling_default = {
	.values = {[SAMPLING_TEMPERATURE] = 0.8,
		   [SAMPLING_TOP_K] = 40,
		   [SAMPLING_TOP_P] = 0.95,
		   [SAMPLING_MIN_P] = 0.05,
		   [SAMPLING_REPETITION_PENALTY] = 1},
};

void sampling_say_nothing(struct sampling_words *words)
{
	for (int i = 0; i < SAMPLING_NAMES; i++)
		words->values[i] = NAN;
}

// Say it, unless it is said already or out of range. A negative top-k means all tokens, as in some files.
static void say(struct sampling_words *words, int name, double value)
{
	if (known[name].whole && value == -1)
		value = 0;
	const bool good = value >= known[name].least && value <= known[name].most &&
			  (!known[name].whole || value == floor(value));
	if (good && isnan(words->values[name]))
		words->values[name] = value;
}

static void add_members(const struct json *json, struct sampling_words *words)
{
	for (int i = 0; i < SAMPLING_NAMES; i++)
		say(words, i, json_get_number(json, known[i].name, NAN));
}

void sampling_add(const struct sampling_words *more, struct sampling_words *words)
{
	for (int i = 0; i < SAMPLING_NAMES; i++)
		if (isnan(words->values[i]))
			words->values[i] = more->values[i];
}

void sampling_add_config(const char *text, size_t length, struct sampling_words *words)
{
	struct json *json = NULL;
	if (!json_parse(&json, text, length, NULL)) {
		add_members(json, words);
		say(words, SAMPLING_REPETITION_PENALTY, json_get_number(json, "repeat_penalty", NAN)); // Ollama's word
	}
	json_destroy(&json);
}

void sampling_add_beside(const char *path, struct sampling_words *words)
{
	char beside[PATH_BYTES];
	struct stat found;
	const char *slash = strrchr(path, '/');
	const int length = snprintf(beside, sizeof beside, "%.*sgeneration_config.json",
				    slash ? (int)(slash + 1 - path) : 0, path);
	if (length < 0 || (size_t)length >= sizeof beside)
		return;
	// Without waiting: it may be a pipe.
	const int fd = open(beside, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	char *text = fd >= 0 && !fstat(fd, &found) && S_ISREG(found.st_mode) && found.st_size <= SAMPLING_CONFIG_BYTES
			     ? malloc(SAMPLING_CONFIG_BYTES)
			     : NULL;
	ssize_t got = 0, filled = 0;
	while (text && filled < SAMPLING_CONFIG_BYTES &&
	       ((got = read(fd, text + filled, (size_t)(SAMPLING_CONFIG_BYTES - filled))) > 0 ||
		(got < 0 && errno == EINTR)))
		filled += got > 0 ? got : 0;
	if (text && !got)
		sampling_add_config(text, (size_t)filled, words);
	free(text);
	if (fd >= 0)
		close(fd);
}

// Files keep 32-bit numbers: 0.6 is to stay 0.6.
static double of_float(double value)
{
	char text[32];
	snprintf(text, sizeof text, "%.7g", value);
	return strtod(text, NULL);
}

void sampling_of_file(const struct gguf *gguf, struct sampling_words *out)
{
	double value;
	sampling_say_nothing(out);
	for (int i = 0; i < SAMPLING_NAMES; i++)
		if (gguf_get_number(gguf, known[i].file_key, &value))
			say(out, i, of_float(value));
}

static void set(struct json *json, int name, double value)
{
	if (known[name].whole)
		json_set_integer(json, known[name].name, (int64_t)value);
	else
		json_set_number(json, known[name].name, value);
}

struct json *sampling_json(const struct sampling_words *words)
{
	struct json *json = json_new_object();
	for (int i = 0; i < SAMPLING_NAMES; i++)
		if (isnan(words->values[i]))
			json_set_null(json, known[i].name);
		else
			set(json, i, words->values[i]);
	return json;
}

void sampling_read(const struct json *json, struct sampling_words *out)
{
	sampling_say_nothing(out);
	add_members(json, out);
}

struct json *sampling_complete(struct json *request, const struct sampling_words *instance,
			       const struct sampling_words *model)
{
	struct json *told = json_new_object();
	for (int i = 0; i < SAMPLING_NAMES; i++) {
		const struct {
			double value;
			const char *from;
		} sources[] = {
			{json_get_number(request, known[i].name, NAN), "request"},
			{instance->values[i], "instance"},
			{model->values[i], "model"},
			{sampling_default.values[i], "default"},
		};
		unsigned at = 0;
		while (isnan(sources[at].value))
			at++;
		struct json *one = json_new_object();
		if (known[i].whole)
			json_set_integer(one, "value", (int64_t)sources[at].value);
		else
			json_set_number(one, "value", sources[at].value);
		json_set_string(one, "from", sources[at].from);
		json_set(told, known[i].name, one);
		if (request && at)
			set(request, i, sources[at].value);
	}
	return told;
}
