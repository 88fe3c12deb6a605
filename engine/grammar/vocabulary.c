/* See vocabulary.h. */
#include "engine/grammar/vocabulary.h"

#include "common/json/json.h"

#include <stdlib.h>
#include <string.h>

enum { TOKEN_BYTES = 4096 }; // longer ones are never allowed

struct text {
	const uint8_t *bytes; // (length)
	uint32_t length, token;
};

static int compare_texts(const void *left, const void *right)
{
	const struct text *a = left, *b = right;
	const int order = memcmp(a->bytes, b->bytes, a->length < b->length ? a->length : b->length);
	if (order)
		return order;
	if (a->length != b->length)
		return a->length < b->length ? -1 : 1;
	return a->token < b->token ? -1 : 1;
}

static const uint8_t *taken(const struct vocabulary_params *params, uint32_t token, size_t *length)
{
	*length = 0;
	const uint8_t *bytes = params->ends(params->context, token) ? NULL
								    : params->bytes(params->context, token, length);
	if (!bytes || *length > TOKEN_BYTES)
		*length = 0;
	return bytes;
}

static bool take_bytes(struct vocabulary *vocabulary, const struct vocabulary_params *params)
{
	size_t total = 0, length;
	for (uint32_t i = 0; i < params->count; i++) {
		taken(params, i, &length);
		total += length;
	}
	vocabulary->bytes = malloc(total + 1);
	if (!vocabulary->bytes || total > UINT32_MAX)
		return false;
	uint32_t at = 0;
	for (uint32_t i = 0; i < params->count; i++) {
		const uint8_t *bytes = taken(params, i, &length);
		if (length)
			memcpy(vocabulary->bytes + at, bytes, length);
		vocabulary->offsets[i] = at;
		at += (uint32_t)length;
		vocabulary->longest = length > vocabulary->longest ? (uint32_t)length : vocabulary->longest;
		vocabulary->is_end[i] = params->ends(params->context, i);
		if (vocabulary->is_end[i])
			vocabulary->ends[vocabulary->end_count++] = i;
	}
	vocabulary->offsets[params->count] = at;
	return true;
}

// The number of its characters, if the token is a few whole characters and none needs an escape in a JSON string; else
// NOT_PLAIN.
static uint8_t plain_of(const struct text *text)
{
	unsigned count = 0;
	for (uint32_t i = 0; i < text->length; i++) {
		if (text->bytes[i] < 0x20 || text->bytes[i] == '"' || text->bytes[i] == '\\')
			return NOT_PLAIN;
		count += (text->bytes[i] & 0xC0) != 0x80;
	}
	return count <= PLAIN_MOST && json_utf8((const char *)text->bytes, text->length) ? (uint8_t)count : NOT_PLAIN;
}

static void note_plain(struct vocabulary *vocabulary, uint32_t token, unsigned characters)
{
	for (unsigned i = characters; i <= PLAIN_MOST; i++)
		vocabulary->plain[(size_t)i * vocabulary->words + token / 32] |= 1u << token % 32;
}

// Add the nodes of one token that it does not share with the token before it. `path` (longest + 1): the nodes from the
// root to the current one.
static void grow(struct vocabulary *vocabulary, const struct text *text, uint32_t *path, uint32_t *depth)
{
	uint32_t same = 0;
	while (same < *depth && same < text->length && vocabulary->branches[path[same]].byte == text->bytes[same])
		same++;
	while (*depth > same)
		vocabulary->branches[path[--*depth]].end = vocabulary->branch_count;
	for (; *depth < text->length; (*depth)++) {
		path[*depth] = vocabulary->branch_count;
		vocabulary->branches[vocabulary->branch_count++] = (struct branch){
			.token = VOCABULARY_NO_TOKEN, .depth = (uint16_t)(*depth + 1), .byte = text->bytes[*depth]};
	}
	struct branch *last = &vocabulary->branches[path[text->length - 1]];
	if (last->token == VOCABULARY_NO_TOKEN) {
		last->token = text->token;
	} else {
		vocabulary->same[vocabulary->same_count][0] = last->token;
		vocabulary->same[vocabulary->same_count++][1] = text->token;
	}
	const uint8_t plain = plain_of(text);
	if (plain != NOT_PLAIN)
		note_plain(vocabulary, text->token, plain);
	for (uint32_t i = 0; i < text->length; i++) {
		struct branch *branch = &vocabulary->branches[path[i]];
		branch->plain = plain > branch->plain ? plain : branch->plain;
	}
}

static bool make_branches(struct vocabulary *vocabulary)
{
	uint32_t count = 0, depth = 0;
	const uint32_t total = vocabulary->offsets[vocabulary->count];
	struct text *texts = malloc((vocabulary->count + 1) * sizeof(*texts));
	uint32_t *path = malloc((vocabulary->longest + 1) * sizeof(*path));
	vocabulary->branches = malloc(((size_t)total + 1) * sizeof(*vocabulary->branches));
	const bool room = texts && path && vocabulary->branches;
	for (uint32_t i = 0; room && i < vocabulary->count; i++) {
		const uint32_t at = vocabulary->offsets[i], length = vocabulary->offsets[i + 1] - at;
		if (length)
			texts[count++] = (struct text){vocabulary->bytes + at, length, i};
	}
	if (room && count)
		qsort(texts, count, sizeof(*texts), compare_texts);
	for (uint32_t i = 0; room && i < count; i++)
		grow(vocabulary, &texts[i], path, &depth);
	while (room && depth)
		vocabulary->branches[path[--depth]].end = vocabulary->branch_count;
	struct branch *fitted = room ? realloc(vocabulary->branches, (vocabulary->branch_count + 1) * sizeof(*fitted))
				     : NULL;
	vocabulary->branches = fitted ? fitted : vocabulary->branches;
	free(texts);
	free(path);
	return room;
}

enum status vocabulary_create(struct vocabulary **out, const struct vocabulary_params *params)
{
	const size_t count = params->count;
	struct vocabulary *vocabulary = *out = calloc(1, sizeof(*vocabulary));
	if (!vocabulary)
		return STATUS_OUT_OF_MEMORY;
	vocabulary->count = params->count;
	vocabulary->words = (params->count + 31) / 32;
	vocabulary->offsets = calloc(count + 1, sizeof(uint32_t));
	vocabulary->is_end = calloc(count + 1, sizeof(bool));
	vocabulary->ends = calloc(count + 1, sizeof(uint32_t));
	vocabulary->same = calloc(count + 1, sizeof(*vocabulary->same));
	vocabulary->plain = calloc((PLAIN_MOST + 1) * (size_t)vocabulary->words + 1, sizeof(uint32_t));
	if (vocabulary->offsets && vocabulary->is_end && vocabulary->ends && vocabulary->same && vocabulary->plain &&
	    take_bytes(vocabulary, params) && make_branches(vocabulary))
		return STATUS_OK;
	vocabulary_destroy(out);
	return STATUS_OUT_OF_MEMORY;
}

void vocabulary_destroy(struct vocabulary **vocabulary)
{
	if (!*vocabulary)
		return;
	free((*vocabulary)->branches);
	free((*vocabulary)->same);
	free((*vocabulary)->ends);
	free((*vocabulary)->plain);
	free((*vocabulary)->offsets);
	free((*vocabulary)->bytes);
	free((*vocabulary)->is_end);
	free(*vocabulary);
	*vocabulary = NULL;
}
