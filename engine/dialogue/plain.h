/* Conversations with tools for models whose chat templates know none: the tools are told in a system message, and calls
 * and what tools answered are written as text, in the generic syntax (Hermes'). Thread: any. */
#pragma once
#include "common/json/json.h"

// `messages` and `tools` as generate.start has them (schema/node.json). A new list of messages, of the roles system,
// user and assistant, each with a text; the tools are told in the first system message, or with `in_user` in the first
// of the user. The caller destroys it. NULL: out of memory.
struct json *dialogue_plain(const struct json *messages, const struct json *tools, bool in_user);
