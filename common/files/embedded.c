/* See embedded.h. The table is written by cmake/embed.cmake. */
#include "common/files/embedded.h"

#include <string.h>

extern const struct embedded_file embedded_files[]; // sorted by name
extern const size_t embedded_file_count;

const struct embedded_file *embedded_find(const char *name)
{
	size_t low = 0, high = embedded_file_count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int order = strcmp(name, embedded_files[middle].name);
		if (!order)
			return &embedded_files[middle];
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return NULL;
}

size_t embedded_list(const char *prefix, const struct embedded_file **first)
{
	size_t length = strlen(prefix), count = 0;
	*first = NULL;
	for (size_t i = 0; i < embedded_file_count; i++) {
		if (strncmp(embedded_files[i].name, prefix, length) != 0)
			continue;
		if (!count++)
			*first = &embedded_files[i];
	}
	return count;
}
