/* See table.h. Cells are kept until all are there, since the widths depend on all of them. */
#include "server/cli/table.h"

#include "common/base/limits.h"
#include "server/cli/format.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
	GAP = 2, // between columns
	CELL_BYTES = 1024,
};

struct table_cell {
	size_t at; // in table->text
	enum table_tone tone;
};

struct layout {
	size_t widths[TABLE_COLUMNS];
	bool left_out[TABLE_COLUMNS];
};

struct terminal terminal_of_stdout(void)
{
	struct winsize size;
	const char *no_colour = getenv("NO_COLOR"), *kind = getenv("TERM");
	if (!isatty(STDOUT_FILENO))
		return (struct terminal){0};
	return (struct terminal){
		.width = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0 ? 0 : size.ws_col,
		.colour = !(no_colour && no_colour[0]) && kind && strcmp(kind, "dumb") != 0,
	};
}

void table_init(struct table *table, const struct table_column *columns, size_t count)
{
	*table = (struct table){.columns = columns, .count = count};
	buffer_init(&table->text, LIMIT_BODY_BYTES);
	buffer_init(&table->cells, LIMIT_BODY_BYTES);
}

void table_finish(struct table *table)
{
	buffer_finish(&table->text);
	buffer_finish(&table->cells);
}

void table_add(struct table *table, enum table_tone tone, const char *format, ...)
{
	char text[CELL_BYTES];
	va_list args;
	struct table_cell cell = {.at = table->text.length, .tone = tone};
	va_start(args, format);
	int length = vsnprintf(text, sizeof text, format, args);
	va_end(args);
	if (length >= (int)sizeof text)
		text[text_cut(text, text_width(text) - 1)] = 0; // the last code point may be half there
	text_clean(text);
	buffer_append(&table->text, text[0] ? text : "-", strlen(text[0] ? text : "-") + 1);
	buffer_append(&table->cells, &cell, sizeof cell);
}

static const struct table_cell *cell_at(const struct table *table, size_t index)
{
	return (const struct table_cell *)(const void *)table->cells.data + index;
}

static const char *text_of(const struct table *table, const struct table_cell *cell)
{
	return (const char *)table->text.data + cell->at;
}

static size_t narrowest(const struct table_column *column, size_t width)
{
	return column->narrowest && column->narrowest < width ? column->narrowest : width;
}

// The width of a line: with every column as narrow as it may be, or as the layout has it.
static size_t line_width(const struct table *table, const struct layout *layout, bool least)
{
	size_t total = 0;
	for (size_t c = 0; c < table->count; c++)
		if (!layout->left_out[c])
			total += (total ? GAP : 0) +
				 (least ? narrowest(&table->columns[c], layout->widths[c]) : layout->widths[c]);
	return total;
}

static bool leave_one_out(const struct table *table, struct layout *layout)
{
	size_t first = table->count;
	for (size_t c = 0; c < table->count; c++)
		if (table->columns[c].leave_out && !layout->left_out[c] &&
		    (first == table->count || table->columns[c].leave_out < table->columns[first].leave_out))
			first = c;
	if (first < table->count)
		layout->left_out[first] = true;
	return first < table->count;
}

// Take a column from the widest of those that may still be cut.
static bool cut_one(const struct table *table, struct layout *layout)
{
	size_t widest = table->count;
	for (size_t c = 0; c < table->count; c++)
		if (!layout->left_out[c] && narrowest(&table->columns[c], layout->widths[c]) < layout->widths[c] &&
		    (widest == table->count || layout->widths[c] > layout->widths[widest]))
			widest = c;
	if (widest < table->count)
		layout->widths[widest]--;
	return widest < table->count;
}

static void lay_out(const struct table *table, size_t limit, struct layout *layout)
{
	size_t cells = table->cells.length / sizeof(struct table_cell);
	*layout = (struct layout){0};
	for (size_t c = 0; c < table->count; c++)
		layout->widths[c] = text_width(table->columns[c].title);
	for (size_t i = 0; i < cells; i++) {
		size_t width = text_width(text_of(table, cell_at(table, i)));
		if (width > layout->widths[i % table->count])
			layout->widths[i % table->count] = width;
	}
	if (!limit)
		return;
	while (line_width(table, layout, true) > limit && leave_one_out(table, layout))
		;
	while (line_width(table, layout, false) > limit && cut_one(table, layout))
		;
}

static const char *tone_code(enum table_tone tone)
{
	switch (tone) {
	case TONE_PLAIN:
		return "";
	case TONE_GOOD:
		return "\033[32m";
	case TONE_ATTENTION:
		return "\033[33m";
	case TONE_BAD:
		return "\033[31m";
	case TONE_FAINT:
		return "\033[2m";
	}
	return "";
}

struct piece {
	const char *text, *colour; // colour: what switches it on, "" for none
	size_t width;
	bool right, last;
};

static void print_piece(FILE *out, const struct piece *piece)
{
	size_t width = text_width(piece->text);
	bool cut = width > piece->width;
	size_t bytes = cut ? text_cut(piece->text, piece->width - 1) : strlen(piece->text);
	int pad = cut ? 0 : (int)(piece->width - width);
	fprintf(out, "%*s%s%.*s%s%s", piece->right ? pad : 0, "", piece->colour, (int)bytes, piece->text,
		cut ? "…" : "", piece->colour[0] ? "\033[0m" : "");
	if (!piece->last)
		fprintf(out, "%*s", GAP + (piece->right ? 0 : pad), "");
}

static size_t last_column(const struct table *table, const struct layout *layout)
{
	size_t last = 0;
	for (size_t c = 0; c < table->count; c++)
		if (!layout->left_out[c])
			last = c;
	return last;
}

// `row` is 0 for the titles, n for the n-th row of cells.
static void print_row(const struct table *table, const struct layout *layout, size_t row, FILE *out, bool colour)
{
	size_t last = last_column(table, layout);
	for (size_t c = 0; c <= last; c++) {
		struct piece piece = {.text = table->columns[c].title,
				      .colour = "",
				      .width = layout->widths[c],
				      .right = table->columns[c].right,
				      .last = c == last};
		if (layout->left_out[c])
			continue;
		if (row) {
			const struct table_cell *cell = cell_at(table, (row - 1) * table->count + c);
			piece.text = text_of(table, cell);
			piece.colour = colour ? tone_code(cell->tone) : "";
		}
		print_piece(out, &piece);
	}
	fputc('\n', out);
}

static void print_left_out(const struct table *table, const struct layout *layout, FILE *out)
{
	const char *separator = "(columns left out because the terminal is narrow: ";
	for (size_t c = 0; c < table->count; c++)
		if (layout->left_out[c]) {
			fprintf(out, "%s%s", separator, table->columns[c].title);
			separator = ", ";
		}
	if (separator[0] == ',')
		fprintf(out, ")\n");
}

enum status table_print(const struct table *table, FILE *out, const struct terminal *terminal, struct error *error)
{
	struct layout layout;
	if (table->text.failed || table->cells.failed)
		return error_set(error, STATUS_LIMIT_EXCEEDED, "the table does not fit into memory");
	lay_out(table, terminal->width, &layout);
	size_t rows = table->cells.length / sizeof(struct table_cell) / table->count;
	for (size_t row = 0; row <= rows; row++)
		print_row(table, &layout, row, out, terminal->colour);
	print_left_out(table, &layout, out);
	return STATUS_OK;
}
