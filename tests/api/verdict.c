/* The verdicts of the server's own validator, for schema.test.mjs to compare with an independent one.
 *
 * Reads lines {"document": "api" | "node", "method": NAME, "params": VALUE} and answers each with a line: `fits`, `fits
 * not`, or `unread` for a line that the parser refuses. Thread: the only one. */
#include "common/base/limits.h"
#include "common/wire/contract.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *verdict(struct contract *contracts[2], const char *line, size_t length)
{
	struct json *json = NULL;
	if (json_parse(&json, line, length, NULL))
		return "unread";
	const struct contract *contract = contracts[strcmp(json_get_string(json, "document", ""), "api") != 0];
	const struct contract_method *method = contract_find(contract, json_get_string(json, "method", ""));
	const struct json *params = json_get(json, "params");
	// Anything but an object is refused before the parameters are looked at (message.c).
	bool fits = method && json_type(params) == JSON_OBJECT &&
		    !contract_check_params(contract, method, params, NULL);
	json_destroy(&json);
	return fits ? "fits" : "fits not";
}

int main(void)
{
	struct contract *contracts[2] = {NULL, NULL};
	struct error error = {0};
	char *line = NULL;
	size_t room = 0;
	ssize_t length;
	if (contract_create(&contracts[0], CONTRACT_API, &error) ||
	    contract_create(&contracts[1], CONTRACT_NODE, &error)) {
		fprintf(stderr, "%s\n", error.message);
		return 1;
	}
	while ((length = getline(&line, &room, stdin)) > 0)
		puts(verdict(contracts, line, (size_t)length - (line[length - 1] == '\n')));
	free(line);
	contract_destroy(&contracts[0]);
	contract_destroy(&contracts[1]);
	return 0;
}
