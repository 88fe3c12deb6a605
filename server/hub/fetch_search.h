/* Searches both hubs at once. Thread: the loop's, except searches_drop. */
#pragma once
#include "common/json/json.h"
#include "server/hub/fetch.h"

struct search_params {
	const char *text;        // NULL: nothing is searched for, and `unreachable` says which hubs do not answer
	struct models_room room; // for what is found
	// Whether a model of this source is known, asked on the loop's thread.
	bool (*added)(void *owner, const char *source);
	void *owner;
	// {results, unreachable}, taken by it; NULL with an error. Called once, after search_start returned STATUS_OK.
	void (*done)(void *context, enum status status, struct json *result, const struct error *error);
	void *context;
};
// Errors: STATUS_OUT_OF_MEMORY.
enum status search_start(struct fetcher *fetcher, const struct search_params *params, struct error *error);
void searches_drop(struct fetcher *fetcher); // the fetcher's thread, at its end: they are answered as unavailable
