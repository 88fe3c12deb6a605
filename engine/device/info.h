/* What one back end reports about one device, and about the libraries that it
 * needs. A worker sends this as ProbedDevice and Library of schema/node.json, and
 * the node parses it. info.c has both directions, so that the two ends cannot
 * differ. Everything is in place (no pointers), so a device_info can be copied,
 * kept and compared by plain assignment. A missing value is "" for texts and -1
 * for counts; it is null on the wire, never an invented value. Thread: any; plain
 * data. */
#pragma once
#include "common/json/json.h"

#include <stdint.h>

enum backend_kind { // in the order of preference
	BACKEND_UNKNOWN,
	BACKEND_CUDA,
	BACKEND_HIP,
	BACKEND_VULKAN,
	BACKEND_WEBGPU,
	BACKEND_CPU,
	BACKEND_COUNT
};

enum device_kind { DEVICE_UNKNOWN, DEVICE_INTEGRATED, DEVICE_DISCRETE, DEVICE_VIRTUAL, DEVICE_CPU };
enum device_support { SUPPORT_UNKNOWN, SUPPORT_FULL, SUPPORT_PARTIAL, SUPPORT_EXPERIMENTAL, SUPPORT_UNSUPPORTED };
enum library_state { LIBRARY_UNKNOWN, LIBRARY_FOUND, LIBRARY_MISSING, LIBRARY_TOO_OLD, LIBRARY_BROKEN };

enum { INFO_KEY_BYTES = 257, INFO_NAME_BYTES = 257, INFO_WORD_BYTES = 64, INFO_VERSION_BYTES = 128 };

struct device_info {
	enum backend_kind backend;
	char hardware_key[INFO_KEY_BYTES]; // see identity.h
	int index;                         // where the API lists it, in that process
	char name[INFO_NAME_BYTES], model[INFO_NAME_BYTES], vendor[INFO_WORD_BYTES], family[INFO_WORD_BYTES];
	enum device_kind kind;
	bool removable, low_power, unified_memory;
	char memory_pool[129];                                    // devices of one pool share the same memory
	int64_t memory_bytes, memory_budget_bytes, compute_units; // -1: not told
	int64_t largest_buffer_bytes; // that a kernel reaches in one piece; -1: as much as there is memory
	char api_version[INFO_WORD_BYTES], driver_version[INFO_VERSION_BYTES];
	char formats[256], features[1024]; // words separated by one space
	char uuid[48];                     // lower-case, with dashes
	char pci_address[16];              // 0000:00:06.0
	char peers[2048];                  // hardware keys of devices that it copies to directly
	enum device_support support;
	char support_reason[384];
};

struct library_info {
	char name[INFO_WORD_BYTES]; // as a person calls it: CUDA driver, Vulkan loader
	char file[256];
	enum library_state state;
	char version[INFO_VERSION_BYTES], minimum_version[INFO_WORD_BYTES], reason[384], hint[256];
};

enum { INFO_DEVICES = 256, INFO_LIBRARIES = 32 };

// The findings of one back end. Create with found_create: it is too large for a stack.
struct found {
	struct device_info devices[INFO_DEVICES];
	size_t device_count;
	struct library_info libraries[INFO_LIBRARIES];
	size_t library_count;
};

// NULL if out of memory.
struct found *found_create(void);
void found_destroy(struct found **found);
// The next free entry, cleared, with counts absent; NULL when the table is full (what does not fit is left out).
struct device_info *found_add_device(struct found *found);
struct library_info *found_add_library(struct found *found);

const char *backend_kind_name(enum backend_kind kind);  // "cuda"
const char *backend_kind_title(enum backend_kind kind); // "CUDA"
enum backend_kind backend_kind_parse(const char *name); // BACKEND_UNKNOWN if the name is unknown
const char *device_kind_name(enum device_kind kind);
const char *device_support_name(enum device_support support);
const char *library_state_name(enum library_state state);

// Copy as much text as fits, always terminated. NULL counts as "".
void text_copy(char *to, size_t size, const char *from);
// Add a word to a space-separated list unless it is there already or does not fit.
void words_add(char *words, size_t size, const char *word);
bool words_have(const char *words, const char *word);
struct json *words_to_json(const char *words);
void words_from_json(char *words, size_t size, const struct json *array);
// "" becomes null, a negative count likewise.
void json_set_maybe_text(struct json *object, const char *name, const char *text);
void json_set_maybe_count(struct json *object, const char *name, int64_t count);

// ProbedDevice and Library. Reading takes what has been checked against the contract.
struct json *device_info_to_json(const struct device_info *info);
void device_info_from_json(struct device_info *info, const struct json *json);
struct json *library_info_to_json(const struct library_info *library);
void library_info_from_json(struct library_info *library, const struct json *json);
