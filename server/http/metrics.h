/* /metrics in the text format of Prometheus: names and units by its conventions. Thread: the loop's. */
#pragma once
#include "server/api/api.h"

struct metrics_sources {
	const struct api *api;
	const struct events *events;
	const struct cluster *cluster;
	const struct topology *topology;
	const struct tenancy *tenants;
	const struct alerts *alerts;
	const struct usage *usage;
	const struct channels *channels;
	const struct traces *traces; // NULL: no traces are made
	struct store *store;
	int64_t started_ms;
};
// Appends; out->failed if it does not fit.
void metrics_print(const struct metrics_sources *sources, struct buffer *out);
