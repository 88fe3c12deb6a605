/* Sampling defaults: a parameter comes from the request, else from the instance, else
 * from the model's authors, else it has one fixed default. Authors give it in the model
 * file (general.sampling.*, as llama.cpp's converter writes it), in
 * generation_config.json beside it or in its repository (Hugging Face; max_new_tokens
 * and do_sample are not read), or in the parameters of Ollama's library (repeat_penalty
 * is repetition_penalty; stop texts are not read). A value outside the range of a
 * request counts as missing. Everything here is pure except sampling_add_beside. Thread:
 * any. */
#pragma once
#include "common/json/json.h"
#include "engine/model/gguf.h"

enum { SAMPLING_CONFIG_BYTES = 65536 }; // of a generation_config.json, at most

enum sampling_name {
	SAMPLING_TEMPERATURE,        // 0 to 2; 0: always the likeliest token
	SAMPLING_TOP_K,              // only so many of the likeliest tokens; 0: all
	SAMPLING_TOP_P,              // only the likeliest tokens that together have this probability, 0 to 1; 1: all
	SAMPLING_MIN_P,              // only tokens at least so likely beside the likeliest, 0 to 1; 0: all
	SAMPLING_REPETITION_PENALTY, // 0.01 to 10; 1: none
	SAMPLING_NAMES
};

struct sampling_words {
	double values[SAMPLING_NAMES]; // NaN: nothing is said
};

// A value that nobody names is this: llama.cpp's own defaults, with no penalty.
extern const struct sampling_words sampling_default;

void sampling_say_nothing(struct sampling_words *words);
void sampling_of_file(const struct gguf *gguf, struct sampling_words *out); // what the model file says
// Add to `words` what they do not say yet and `more` do.
void sampling_add(const struct sampling_words *more, struct sampling_words *words);
// The same with the text of a generation_config.json, or of Ollama's parameters.
void sampling_add_config(const char *text, size_t length, struct sampling_words *words);
// The same with the file generation_config.json in the folder of the model file at `path`, if it is there, a regular
// file, and of at most 64 KiB. Waits for the disk.
void sampling_add_beside(const char *path, struct sampling_words *words);

// Members of an object named as in requests: temperature, top_k, top_p, min_p, repetition_penalty.
struct json *sampling_json(const struct sampling_words *words); // null: nothing is said
void sampling_read(const struct json *json, struct sampling_words *out);
// Complete `request`, an object of such members among others. Returns {name: {value, from}} of all of them, `from`
// being request, instance, model or default. `request` NULL: what a request gets that says nothing.
struct json *sampling_complete(struct json *request, const struct sampling_words *instance,
			       const struct sampling_words *model);
