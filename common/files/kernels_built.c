/* See kernels_built.h. */
#include "common/files/kernels_built.h"

#include "common/files/embedded.h"

#include <string.h>

// The value behind `word` at the beginning of a line.
static void read_line(const char *text, const char *word, char *value, size_t size)
{
	const size_t length = strlen(word);
	for (; *text; text += strcspn(text, "\n"), text += *text == '\n')
		if (!strncmp(text, word, length) && text[length] == ' ') {
			size_t bytes = strcspn(text + length + 1, "\n");
			bytes = bytes < size ? bytes : size - 1;
			memcpy(value, text + length + 1, bytes);
			value[bytes] = 0;
			return;
		}
}

void kernels_built_read(struct kernels_built *built)
{
	const struct embedded_file *file = embedded_find("kernels/cuda/built.txt");
	*built = (struct kernels_built){0};
	if (!file)
		return;
	const char *text = (const char *)file->data; // a 0 is behind it
	read_line(text, "compiler", built->compiler, sizeof(built->compiler));
	read_line(text, "images", built->images, sizeof(built->images));
	read_line(text, "note", built->note, sizeof(built->note));
}

void kernels_built_print(const struct kernels_built *built, struct buffer *out)
{
	if (!built->compiler[0]) {
		buffer_append_text(out, "none: this binary was built without a compiler for them");
		return;
	}
	buffer_printf(out, "%s, for ", built->compiler);
	const char *at = built->images;
	for (bool first = true; *at; first = false) {
		const size_t length = strcspn(at, " ");
		const bool last = !at[length];
		buffer_printf(out, "%s%.*s", first ? "" : last ? " and " : ", ", (int)strcspn(at, ": "), at);
		at += length + !last;
	}
	if (built->note[0])
		buffer_printf(out, "; %s", built->note);
}
