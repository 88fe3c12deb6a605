/* Traces of requests, for a collector of OpenTelemetry (OTLP over HTTP, in JSON). A trace gathers the spans of one
 * request and puts them into a bounded queue when the request is over. The queue is posted a batch at a time by a
 * thread of its own (server/alerts/courier.h); a batch that fails is sent again, after a longer wait each time. Where
 * the queue is full, further spans are left out and counted. So a request neither waits for a collector nor fails by
 * one. What a collector rejects of a batch that it takes is counted apart. Thread: the loop's. */
#pragma once
#include "common/net/loop.h"
#include "server/traces/settings.h"
#include "server/traces/span.h"

struct traces;
struct trace;

struct traces_params {
	struct net_loop *loop;
	const struct traces_settings *settings; // copied
	const char *instance_id;                // copied
};
// *out is NULL, and nothing is an error, where the settings have no URL. All functions take NULL for that.
enum status traces_create(struct traces **out, const struct traces_params *params, struct error *error);
void traces_destroy(struct traces **traces);

// Send what waits now, for the last time: what fails from here on is not tried again.
void traces_flush(struct traces *traces);
bool traces_flushed(const struct traces *traces); // nothing more is to be waited for

struct traces_stats {
	uint64_t exported, dropped, failures; // spans; spans; attempts to post a batch
	uint64_t rejected;                    // spans, of batches that the collector took
	unsigned waiting;                     // spans
};
bool traces_read_stats(const struct traces *traces, struct traces_stats *stats); // false: no traces are made

// ---- the trace of a request ----

enum { TRACE_SPANS = 64 }; // of one trace

// It begins now. `traceparent`: the header of the request; where it is none, the trace is a new one. NULL: nothing is
// to be recorded, or there is no memory. The other functions take NULL for that.
struct trace *trace_begin(struct traces *traces, const char *traceparent);
// A part of the request. Times are of the steady clock. The attributes are taken; may be NULL.
struct trace_part {
	const char *name;
	int64_t begin_ns, end_ns;
	struct json *attributes;
};
void trace_add(struct trace *trace, const struct trace_part *part);
void trace_stop(struct trace *trace); // the request is over now; without it, it is so when its span is put
// The span of the request, and with it all others, go to the queue. The attributes are taken.
struct trace_request {
	const char *name;
	struct json *attributes;
	bool failed;
};
void trace_put(struct trace **trace, const struct trace_request *request);
