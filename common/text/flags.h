/* Parses the arguments of a command: --name VALUE, --name=VALUE, --switch, -h, and operands in a
 * fixed order. serve, node and the client commands all use it, so the same mistake gets the same
 * message everywhere. A command lists its flags with the members that they fill. Values stay
 * texts, owned by argv; each command parses its own values. Pure, except flags_print. Thread:
 * any. */
#pragma once
#include "common/base/status.h"

#include <stddef.h>
#include <stdio.h>

enum { FLAGS_MANY = 32 };

struct flag {
	const char *name;  // without its dashes
	const char *value; // what its value is called in the help; NULL: a switch; with "..." at its end it may be
			   // given often, and its member is const char *[FLAGS_MANY]
	const char *help;  // filled into lines, and broken where it has a new line; NULL: not shown
	size_t offset;     // of its member in the struct to fill: const char *, bool for a switch
};

struct flags {
	const struct flag *own, *common; // each ends with a NULL name; may be NULL
	// The names of the operands, with a space between: "DEVICE SIZE"; one in brackets may be left out, the last
	// one only: "[DEVICE]". NULL: there are none.
	const char *operands;
	size_t operand_offset; // of the first one's const char *; those of the others follow it
};

// Read argv[0] to argv[argc - 1] into *into, whose members are NULL and false. After --help (a switch of that name) the
// rest is not looked at, and an operand that is missing is no error.
// Errors: STATUS_INVALID_PARAMS, naming the flag, with the nearest one known as the hint where one is near.
enum status flags_read(const struct flags *flags, void *into, int argc, char **argv, struct error *error);
// The lines of a help text: those flags that are shown.
void flags_print(const struct flag *flags, FILE *out);
