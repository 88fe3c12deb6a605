/* Upper and lower case, and lines: text_methods.c, for filters too. */
#pragma once
#include "engine/jinja/inside.h"

enum letters {
	LETTERS_UPPER,
	LETTERS_LOWER,
	LETTERS_FIRST, // of the text in upper case, all others in lower
	LETTERS_TITLE, // the first of each run of letters
	LETTERS_WORDS, // the first behind white space and what opens something
};
uint32_t letter_upper(uint32_t letter);
uint32_t letter_lower(uint32_t letter);
bool is_letter(uint32_t character);
struct text text_case(struct run *run, struct text text, enum letters letters);

size_t line_end(struct text text, size_t at);
size_t line_break(struct text text, size_t at);
