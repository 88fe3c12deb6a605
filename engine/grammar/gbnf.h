/* GBNF, the grammars of llama.cpp, as a grammar's expressions.
 *
 *     root ::= item ("," item)*      # from here
 *     item ::= [a-z]{1,8} | "\"" [^"\n]* "\""
 *
 * Known: "texts" and [classes] with \n \r \t \\ \" \[ \] \xHH \uHHHH \UHHHHHHHH, `.` (any character), groups,
 * |, * + ? {n} {n,} {n,m} {0,m}, comments. A rule ends with its line, but in a group and after | or ::=. */
#pragma once
#include "engine/grammar/expression.h"

// Read the text; returns the number of the rule `root`. Errors are noted in the builder.
uint32_t gbnf_read(struct builder *builder, const char *text, size_t length);
