/* Conversations with tools for models whose chat template does not support tools. The tools are described in a system
 * message; calls and the answers of tools are written as text in the generic syntax (that of Hermes). Thread: any. */
#pragma once
#include "common/json/json.h"

// Rewrite `messages` and `tools`, which are those of generate.start (schema/node.json), as a new list of messages with
// the roles system, user and assistant, each with a text. The tools are described in the first system message or, with
// `in_user`, in the first message of the user. The caller destroys the list. NULL: out of memory.
struct json *dialogue_plain(const struct json *messages, const struct json *tools, bool in_user);
