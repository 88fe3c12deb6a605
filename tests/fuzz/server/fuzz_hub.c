/* Answers of Hugging Face and Ollama as they come from the network: lists of files, manifests, searches, pages. What is
 * picked of them must be a source that can be read again, and its URL must stay where it belongs. */
#include "server/hub/hub.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

enum { FOUND = 16 };

static void check(const struct source *source)
{
	char url[4097];
	struct source again;
	static const char base[] = "https://hub.example";
	if (source_parse(source->text, &again, NULL) || strcmp(again.text, source->text) != 0)
		abort();
	bool made = source->kind == SOURCE_OLLAMA ? hub_manifest_url(base, source, url, sizeof url)
		    : source->kind == SOURCE_HUB  ? hub_files_url(base, source, url, sizeof url)
						  : hub_file_url(base, source, url, sizeof url);
	if (!made || strncmp(url, base, sizeof base - 1) != 0 || url[sizeof base - 1] != '/' || strstr(url, "/../"))
		abort();
}

// Files of safetensors have names that lead nowhere else, each once.
static void check_weights(const struct hub_weights *weights)
{
	for (size_t i = 0; i < weights->count; i++) {
		const struct hub_entry *entry = &weights->entries[i];
		if (strchr(entry->name, '/') || *entry->name == '.' || !*entry->name || !entry->bytes ||
		    hub_weights_find(weights, entry->name) != entry)
			abort();
	}
	if (!hub_weights_check(weights, NULL) && !hub_weights_find(weights, "config.json"))
		abort();
	hub_weights_bytes(weights);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	static struct hub_found found[FOUND];
	const char *text = (const char *)bytes;
	struct source repository;
	struct hub_files files;
	struct hub_weights weights;
	struct hub_layer layer;
	const struct hub_file *chosen;
	char why[200];
	size_t count = 0;
	if (source_parse("hf:maker/repository", &repository, NULL))
		abort();
	if (!hub_read_files(&repository, text, length, &files, NULL)) {
		for (size_t i = 0; i < files.count; i++)
			check(&files.files[i].source);
		const struct models_room room = {.known = true, .device = 1ull << 33, .devices = 1ull << 34};
		if (!hub_choose(&files, &room, &chosen, why, NULL) && models_fit_needed(chosen->bytes) > room.devices)
			abort();
		hub_files_finish(&files);
	}
	if (!hub_read_weights(text, length, &weights, NULL))
		check_weights(&weights);
	hub_weights_finish(&weights);
	if (!hub_read_manifest(text, length, &layer, NULL) && (strlen(layer.digest) != 64 || !layer.bytes))
		abort();
	if (hub_read_search(text, length, found, FOUND, &count, NULL))
		count = 0;
	for (size_t i = 0; i < count; i++)
		check(&found[i].source);
	count = hub_read_ollama_page(text, length, found, FOUND);
	for (size_t i = 0; i < count; i++)
		check(&found[i].source);
	return 0;
}
