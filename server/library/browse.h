/* The folders of the server's machine in which an admin may look for model files: those of `exogpu serve --model-dir`,
 * and what lies beneath them. The kernel keeps every look beneath the allowed folder (openat2, RESOLVE_BENEATH):
 * neither a symbolic link nor ".." leads out, and what is outside is not told from what does not exist. Read by a
 * thread of its own. Thread: the loop's, for every function and callback here. */
#pragma once
#include "common/json/json.h"
#include "common/net/loop.h"

struct browse;

// `directories`: absolute paths, ending with NULL; they and their texts stay. NULL: none.
enum status browse_create(struct browse **out, struct net_loop *loop, const char *const *directories,
			  struct error *error);
void browse_stop(struct browse *browse);     // who waits for an answer gets it now
void browse_destroy(struct browse **browse); // accepts NULL, leaves NULL behind

// `result` is that of model.browse, without model_id, and is taken; NULL with an error.
typedef void browse_found(void *context, struct json *result, const struct error *error);
// dir NULL: the allowed folders themselves. Errors of the answer: STATUS_NOT_FOUND. Errors at once, and then `done` is
// not called: STATUS_OUT_OF_MEMORY, STATUS_RATE_LIMITED (LIMIT_BROWSES are under way).
enum status browse_ask(struct browse *browse, const char *dir, browse_found *done, void *context, struct error *error);
