/* Memory of a template or a rendering, its limits, and its errors. See inside.h. */
#include "engine/jinja/inside.h"

#include <stdio.h>
#include <stdlib.h>

enum { CHUNK_BYTES = 64 * 1024, ALIGNMENT = 16 };

struct chunk {
	struct chunk *next;
	size_t used, size;
	_Alignas(ALIGNMENT) char bytes[];
};

_Noreturn void work_fail(struct work *work, enum status status, const char *format, ...)
{
	char text[sizeof work->error->message];
	va_list list;
	va_start(list, format);
	vsnprintf(text, sizeof text, format, list);
	va_end(list);
	work->status = status;
	if (work->line)
		error_set(work->error, status, "chat template, line %d: %s", work->line, text);
	else
		error_set(work->error, status, "%s", text);
	longjmp(work->failed, 1);
}

void *work_take(struct work *work, size_t bytes)
{
	if (bytes > work->bytes_most)
		work_fail(work, STATUS_LIMIT_EXCEEDED, "it needs too much memory");
	bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	struct chunk *chunk = work->chunks;
	if (!chunk || chunk->size - chunk->used < bytes) {
		const size_t size = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
		if (size > work->bytes_most - work->bytes)
			work_fail(work, STATUS_LIMIT_EXCEEDED, "it needs too much memory");
		struct chunk *new = malloc(sizeof *new + size);
		if (!new)
			work_fail(work, STATUS_OUT_OF_MEMORY, "no memory for a chat template");
		work->bytes += size;
		new->used = 0;
		new->size = size;
		if (chunk && bytes > CHUNK_BYTES / 4) { // the rest of the first chunk stays in use
			new->next = chunk->next;
			chunk->next = new;
		} else {
			new->next = chunk;
			work->chunks = new;
		}
		chunk = new;
	}
	void *memory = chunk->bytes + chunk->used;
	chunk->used += bytes;
	return memory;
}

void *work_take_list(struct work *work, size_t count, size_t each)
{
	if (count > work->bytes_most / each)
		work_fail(work, STATUS_LIMIT_EXCEEDED, "it needs too much memory");
	return work_take(work, count * each);
}

void work_spend(struct work *work, uint64_t steps)
{
	work->steps += steps;
	if (work->steps > work->steps_most)
		work_fail(work, STATUS_LIMIT_EXCEEDED, "it takes too many steps");
}

void work_enter(struct work *work)
{
	if (++work->depth > LIMIT_JINJA_DEPTH)
		work_fail(work, STATUS_LIMIT_EXCEEDED, "it is nested too deeply");
}

void work_leave(struct work *work)
{
	work->depth--;
}

void work_free(struct work *work)
{
	while (work->chunks) {
		struct chunk *next = work->chunks->next;
		free(work->chunks);
		work->chunks = next;
	}
}
