/* Hubs: builds the requests for Hugging Face and Ollama, and
 * parses their answers about models. Answers are hostile input:
 * every list is bounded, every name goes through source.h. Pure.
 * Thread: any. */
#pragma once
#include "common/json/json.h"
#include "server/hub/models_fit.h"
#include "server/hub/source.h"

#include <stdint.h>

#define HUB_URL "https://huggingface.co"
#define OLLAMA_URL "https://registry.ollama.ai"
#define OLLAMA_SEARCH_URL "https://ollama.com"

struct hub_file {
	struct source source; // SOURCE_HUB_FILE
	uint64_t bytes;       // of all parts
	char sha256[65];      // "" if it is not said, or of a model in parts
	unsigned there;       // parts that the list names, of source.parts
};
struct hub_files {
	struct hub_file *files; // (count), owned
	size_t count;
};
// The GGUF models of a repository: one in several files is one, by its first. Errors: STATUS_UNAVAILABLE (this is no
// such answer).
enum status hub_read_files(const struct source *repository, const char *text, size_t length, struct hub_files *out,
			   struct error *error);
void hub_files_finish(struct hub_files *files);
// The one to take where there is such room: what fits one device goes before what needs several, which is slower; then
// of Q8_0 and Q4_K_M the largest, then of all. `why` says so to a person. Errors: STATUS_UNAVAILABLE (none, or none
// fits).
enum status hub_choose(const struct hub_files *files, const struct models_room *room, const struct hub_file **out,
		       char why[200], struct error *error);

// What a repository of safetensors has at its top that a conversion reads: texts, and files with tensors.
enum { HUB_NAME_BYTES = 256 };
struct hub_entry {
	char name[HUB_NAME_BYTES]; // without a folder, not beginning with a dot
	uint64_t bytes;
	char sha256[65]; // "": not said
};
struct hub_weights {
	struct hub_entry *entries; // (count), owned
	size_t count;
};
// Errors: STATUS_UNAVAILABLE (this is no such answer), STATUS_OUT_OF_MEMORY.
enum status hub_read_weights(const char *text, size_t length, struct hub_weights *out, struct error *error);
void hub_weights_finish(struct hub_weights *weights);
const struct hub_entry *hub_weights_find(const struct hub_weights *weights, const char *name); // NULL: there is none
// Whether it is a model that a conversion may take: config.json, and model.safetensors or its index. Errors:
// STATUS_UNAVAILABLE.
enum status hub_weights_check(const struct hub_weights *weights, struct error *error);
// What its tensors have; as far as the names tell, of a model in several files.
uint64_t hub_weights_bytes(const struct hub_weights *weights);

struct hub_layer {
	char digest[65]; // SHA-256
	uint64_t bytes;
	char parameters[65]; // SHA-256 of the layer that says how tokens are to be drawn; "": there is none
};
// The model's layer of a manifest of Ollama's. Errors: STATUS_UNAVAILABLE.
enum status hub_read_manifest(const char *text, size_t length, struct hub_layer *out, struct error *error);

struct hub_found {
	struct source source; // SOURCE_HUB or SOURCE_OLLAMA
	int64_t downloads;    // -1: not said
};
// Answers of searches; at most `most` into found[], as they come. Errors: STATUS_UNAVAILABLE.
enum status hub_read_search(const char *text, size_t length, struct hub_found *found, size_t most, size_t *count,
			    struct error *error);
size_t hub_read_ollama_page(const char *text, size_t length, struct hub_found *found, size_t most);

// URLs, of servers at `base`. False: too long.
bool hub_files_url(const char *base, const struct source *source, char *url, size_t size);
bool hub_file_url(const char *base, const struct source *source, char *url, size_t size);   // of source->file
bool hub_config_url(const char *base, const struct source *source, char *url, size_t size); // generation_config.json
bool hub_manifest_url(const char *base, const struct source *source, char *url, size_t size);
bool hub_blob_url(const char *base, const struct source *source, const char *digest, char *url, size_t size);
// Of repositories with GGUF files; `weights`: with safetensors of models that write text.
bool hub_search_url(const char *base, const char *text, unsigned limit, bool weights, char *url, size_t size);
bool hub_ollama_search_url(const char *base, const char *text, char *url, size_t size);

// The format that a file's name speaks of, as ModelFormat of schema/api.json has it; NULL: none of those.
const char *hub_format_of(const char *file);
