/* A table for people: columns aligned, as wide as the terminal at most.
 *
 * Where the terminal is too narrow, columns that may be are first cut (the cut shows as …) and then left out, in the
 * order that they ask for, and a last line names those. Elsewhere, as into a pipe, everything is printed whole.
 * Widths are counted in code points. The columns belong to the caller and outlive the table. Thread: its owner's. */
#pragma once
#include "common/base/buffer.h"

#include <stdio.h>

// Where a table is printed.
struct terminal {
	size_t width; // 0: no limit
	bool colour;
};
// The properties of standard output. Colour is used only on a terminal, and not with NO_COLOR or TERM=dumb.
struct terminal terminal_of_stdout(void);

enum table_tone { TONE_PLAIN, TONE_GOOD, TONE_ATTENTION, TONE_BAD, TONE_FAINT };

enum { TABLE_COLUMNS = 12 };

struct table_column {
	const char *title;
	bool right;         // numbers
	size_t narrowest;   // may be cut to this width; 0: never
	unsigned leave_out; // 1 is left out first; 0: never
};

struct table {
	const struct table_column *columns; // (count)
	size_t count;
	struct buffer text, cells; // the cells' texts, each with its 0; and struct table_cell, row by row
};

// `count` is at most TABLE_COLUMNS.
void table_init(struct table *table, const struct table_column *columns, size_t count);
void table_finish(struct table *table);
// Add the next cell, left to right and top to bottom. An empty text is printed as "-". A failure shows in table_print.
void table_add(struct table *table, enum table_tone tone, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
// Errors: STATUS_LIMIT_EXCEEDED or STATUS_OUT_OF_MEMORY, if a cell could not be kept; nothing is printed then.
enum status table_print(const struct table *table, FILE *out, const struct terminal *terminal, struct error *error);
