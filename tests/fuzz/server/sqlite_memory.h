/* Memory for SQLite in a fuzz target: freed pieces are kept by size and handed out again, since SQLite asks for some
 * thousand in a run and the address sanitizer takes most of a run for them. What is freed, and what lies behind a
 * piece, is poisoned, so that whoever reads past a value of a row or a value that is gone is still found. SQLite's
 * mutexes are held by nobody here: one thread at a time, or under our lock. */
#pragma once
#include <pthread.h>
#include <sanitizer/asan_interface.h>
#include <sqlite3.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MEMORY_LEAST = 32, MEMORY_CLASSES = 14, MEMORY_HEAD = 16, MEMORY_BEHIND = 16 };

struct memory_piece {
	struct memory_piece *next; // while it is free
	uint32_t class, bytes;     // what was asked for, rounded up
};

static struct memory_piece *memory_free[MEMORY_CLASSES];
static pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER;

static struct memory_piece *memory_head(void *bytes)
{
	return (struct memory_piece *)((char *)bytes - MEMORY_HEAD);
}

static void *memory_malloc(int size)
{
	uint32_t class = 0;
	while (class < MEMORY_CLASSES && ((size_t)MEMORY_LEAST << class) < (size_t)size + MEMORY_BEHIND)
		class ++;
	const size_t room = class < MEMORY_CLASSES ? (size_t)MEMORY_LEAST << class : (size_t)size + MEMORY_BEHIND;
	struct memory_piece *piece = NULL;
	pthread_mutex_lock(&memory_lock);
	if (class < MEMORY_CLASSES && (piece = memory_free[class]))
		memory_free[class] = piece->next;
	pthread_mutex_unlock(&memory_lock);
	if (!piece && !(piece = malloc(MEMORY_HEAD + room)))
		return NULL;
	piece->class = class;
	piece->bytes = (uint32_t)size;
	char *bytes = (char *)piece + MEMORY_HEAD;
	ASAN_UNPOISON_MEMORY_REGION(bytes, room);
	ASAN_POISON_MEMORY_REGION(bytes + size, room - (size_t)size);
	return bytes;
}

static void memory_free_piece(void *bytes)
{
	struct memory_piece *piece = bytes ? memory_head(bytes) : NULL;
	if (!piece)
		return;
	if (piece->class == MEMORY_CLASSES) {
		ASAN_UNPOISON_MEMORY_REGION(bytes, piece->bytes + MEMORY_BEHIND);
		free(piece);
		return;
	}
	ASAN_POISON_MEMORY_REGION(bytes, (size_t)MEMORY_LEAST << piece->class);
	pthread_mutex_lock(&memory_lock);
	piece->next = memory_free[piece->class];
	memory_free[piece->class] = piece;
	pthread_mutex_unlock(&memory_lock);
}

static int memory_size(void *bytes)
{
	return bytes ? (int)memory_head(bytes)->bytes : 0;
}

static void *memory_realloc(void *bytes, int size)
{
	void *more = memory_malloc(size);
	if (!more)
		return NULL;
	const int had = memory_size(bytes);
	memcpy(more, bytes, (size_t)(had < size ? had : size));
	memory_free_piece(bytes);
	return more;
}

static int memory_roundup(int size)
{
	return (size + 7) & ~7;
}

static int memory_init(void *context)
{
	(void)context;
	return SQLITE_OK;
}

static void memory_shutdown(void *context)
{
	(void)context;
}

// Before SQLite is used.
static int sqlite_memory_use(void)
{
	static const sqlite3_mem_methods methods = {.xMalloc = memory_malloc,
						    .xFree = memory_free_piece,
						    .xRealloc = memory_realloc,
						    .xSize = memory_size,
						    .xRoundup = memory_roundup,
						    .xInit = memory_init,
						    .xShutdown = memory_shutdown};
	sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
	return sqlite3_config(SQLITE_CONFIG_MALLOC, &methods);
}
