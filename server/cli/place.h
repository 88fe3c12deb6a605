/* What `exogpu place` and `exogpu run` share: finding a model, starting an instance of it, seeing it load. Thread: the
 * process's only one. */
#pragma once
#include "server/cli/commands.h"

// The model of this name or id, out of model.list; to be destroyed. Errors: STATUS_NOT_FOUND, naming those there are.
enum status place_find_model(struct client *client, const char *name, struct json **model, struct error *error);
// What instance.create and placement.preview take, of the arguments. Errors: STATUS_INVALID_PARAMS.
enum status place_params(struct client *client, const struct cli_arguments *arguments, const struct json *model,
			 struct json **params, struct error *error);
// Wait until an instance that is being loaded is ready, showing how far it is. *instance: as it is then, to be
// destroyed. Errors: the server's; STATUS_UNAVAILABLE (it failed, or was stopped).
enum status place_wait(struct client *client, const char *id, struct json **instance, struct error *error);
// The same with one that is made by instance.create (`params` is taken).
enum status place_start(struct client *client, struct json *params, struct json **instance, struct error *error);
