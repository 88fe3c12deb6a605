/* The command line: the overall help, and the client commands, which ask a running server over its API.
 *
 * cli.c finds the command, arguments.c reads what follows it, target.c finds the server, client.c makes one call, and a
 * file for each noun (devices.c, nodes.c, token.c) prints the answer. What people read goes through table.c; --json
 * prints the answer as it came. Errors go to standard error as one line, with a second, indented one that says what to
 * do. Thread: the process's only one. */
#pragma once
#include <stdio.h>

// Run what argv[1] names: a client command, help, or version. Commands with a process of their own (serve, node) are
// known here by name and help only. Exit status of the process: 0 done, 1 failed, 2 bad usage.
int cli_main(int argc, char **argv);
// Print the text of `exogpu --help`: every command in one line.
void cli_print_help(FILE *out);
