/* Functions that `exogpu place`, `exogpu run` and `exogpu instances` share: finding a model, starting an instance of
 * it, seeing it load, naming its layers. Thread: the process's only one. */
#pragma once
#include "server/cli/commands/commands.h"

// The model of this name or id, out of model.list; to be destroyed. Errors: STATUS_NOT_FOUND, naming those there are.
enum status place_find_model(struct client *client, const char *name, struct json **model, struct error *error);
// Make the parameters of instance.create and placement.preview from the arguments. Errors: STATUS_INVALID_PARAMS.
enum status place_params(struct client *client, const struct cli_arguments *arguments, const struct json *model,
			 struct json **params, struct error *error);
// Set a member to the number that `text` is; NULL: leave it out. Errors: STATUS_INVALID_PARAMS.
enum status place_number(struct json *json, const char *name, const char *text, struct error *error);
// Set what the arguments say of drawing tokens (schema's Sampling). Errors: STATUS_INVALID_PARAMS.
enum status place_sampling(const struct cli_arguments *arguments, struct json *json, struct error *error);
#define PLACE_SAMPLING_FLAGS \
	{"temperature", "T", \
	 "0 to 2; 0: always the likeliest token. This and the four that follow have the model's own value if " \
	 "its authors recommend one, else 0.8, 40, 0.95, 0.05 and 1", \
	 offsetof(struct cli_arguments, temperature)}, \
		{"top-k", "K", "draw from the K likeliest tokens only; 0: from all", \
		 offsetof(struct cli_arguments, top_k)}, \
		{"top-p", "P", "draw from the likeliest tokens that together have this probability; 1: from all", \
		 offsetof(struct cli_arguments, top_p)}, \
		{"min-p", "P", "leave out tokens less than P times as likely as the likeliest; 0: none", \
		 offsetof(struct cli_arguments, min_p)}, \
	{ \
		"repetition-penalty", "R", "make earlier tokens less likely; 1: off", \
			offsetof(struct cli_arguments, repetition_penalty) \
	}
// Wait until an instance that is being loaded is ready, showing how far it is. *instance: as it is then, to be
// destroyed. Errors: the server's; STATUS_UNAVAILABLE (it failed, or was stopped).
enum status place_wait(struct client *client, const char *id, struct json **instance, struct error *error);
// The same with one that is made by instance.create (`params` is taken).
enum status place_start(struct client *client, struct json *params, struct json **instance, struct error *error);

enum { PLACE_LAYERS_BYTES = 64 };
// "layers 0 to 15", of a stage or of what is missing.
const char *place_layers(const struct json *one, char text[PLACE_LAYERS_BYTES]);
