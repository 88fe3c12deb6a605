/* The environment of a worker, built from a list.
 *
 * What the server was started with may hold secrets (HF_TOKEN, passwords of proxies, keys of cloud services), and a
 * tenant's code reads the environment of its own process. So a worker gets the variables that libraries and drivers
 * read and no other: names, and beginnings of names, in environment.c. A name that speaks of a secret (KEY, TOKEN,
 * SECRET, PASSWORD, CREDENTIAL) is left out whatever it begins with. */
#pragma once
#include <stdbool.h>

// Whether a worker gets the variable of this name; `name` may be NAME=VALUE.
bool environment_passes(const char *name);
// The variables of `from` (ends with NULL) that pass, for execve; the strings stay `from`'s. Free the list. NULL: out
// of memory.
char **environment_make(char *const *from);
