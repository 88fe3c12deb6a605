/* A sentence of ours, taken apart again, so that a page can say it in another language.
 *
 * Sentences are made by printf, and travel and are stored as English text. schema/sentences.json, which is part of the
 * binary, lists what they are printed with (tools/lint/sentences.py takes it from the sources). Here a text is compared
 * with that list: the result is {"key": "the node speaks protocol %lld, this server needs %d", "args": ["2", "1"]}, of
 * which key is always one of the list, and which gives the text again when it is printed. Of several keys that fit, the
 * one with most words of its own is taken. An arg that is such a sentence is such an object; two sentences that ": " or
 * "; " joins are the args of "%s%s%s", with it between them. What is printed where the list has 'n' is the name of a
 * machine, a file or the like, and never such a sentence; elsewhere it has two words at least, or the list has 'w'
 * there.
 *
 * It needs no word of who made the text, so it may come from a node, a file or an earlier version; a text is read as
 * bytes and in bounded time, whatever it holds. Thread: any. */
#pragma once
#include "common/json/json.h"

enum {
	SAID_ARGS = 12,    // of a sentence, at most
	SAID_DEPTH = 6,    // of sentences in sentences
	SAID_BYTES = 1024, // of a text; a longer one is not looked at
};

// NULL if the text is none of ours, or there is no memory. The caller frees it.
struct json *said_read(const char *text);
// json_set_string, and beside it the member NAME_said if said_read knows the text. A NAME_said that was there goes.
void said_set(struct json *object, const char *name, const char *text);
// The same of a member that is there already, a string, null or an array of strings; NAME_said of an array is as long,
// with null for what is not known, and is not there if none is. Without such a member nothing is done.
void said_beside(struct json *object, const char *name);
