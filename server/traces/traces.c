/* See traces.h. The queue is the text of the spans that wait, as it will stand in the next message. */
#include "server/traces/traces.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/alerts/courier.h"
#include "server/traces/partial.h"

#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	WAITING_SPANS = 1024,
	WAITING_BYTES = 1 << 20,
	BATCH_SPANS = 256, // that are sent at once
	GATHER_MS = 1000,  // that fewer wait for others
	WAIT_MOST_S = 60,  // before a batch is sent again
	HEAD_BYTES = 4096,
	TRACE_BYTES = 128 * 1024 // of one trace
};

struct traces {
	struct net_loop *loop;
	struct courier *courier;
	struct traces_settings settings;
	struct buffer head;    // of each message
	struct buffer waiting; // spans, with commas between them
	struct buffer batch;   // a message that is being sent, or is to be sent again; empty: there is none
	unsigned waiting_spans, batch_spans;
	bool under_way, armed, flushes, gave_up;
	bool told_failing;  // in the log, since a batch arrived last
	bool told_full;     // in the log, since nothing waited last
	bool told_partial;  // in the log, since a batch was taken without a word
	unsigned failures;  // in a row
	int64_t not_before; // steady: the batch is sent again
	struct net_timer timer;
	struct traces_stats stats;
};

struct trace {
	struct traces *traces;
	char trace_id[TRACE_ID_BYTES], parent_id[SPAN_ID_BYTES], span_id[SPAN_ID_BYTES];
	int64_t begin_ns, end_ns; // steady; end 0: it is not over
	int64_t wall_ns;          // what has to be added to the steady clock
	struct buffer text;       // of its spans, with commas between them
	unsigned spans, left_out;
};

// ---- sending ----

static void look(void *context);

static void arm(struct traces *traces, int64_t delay_ms)
{
	traces->armed = true;
	net_timer_start(traces->loop, &traces->timer, delay_ms > 0 ? delay_ms : 0, look, traces);
}

// When there is something to send next.
static void schedule(struct traces *traces)
{
	const bool many = traces->waiting_spans >= BATCH_SPANS || traces->flushes;
	if (traces->under_way || traces->gave_up)
		return;
	if (traces->batch.length)
		arm(traces, traces->not_before - clock_steady_ms());
	else if (traces->waiting_spans && (many || !traces->armed))
		arm(traces, many ? 0 : GATHER_MS);
}

static void drop_batch(struct traces *traces)
{
	traces->stats.dropped += traces->batch_spans;
	buffer_clear(&traces->batch);
	traces->batch_spans = 0;
}

static void take_failure(struct traces *traces, const struct courier_result *result)
{
	const long status = result->http_status;
	const bool again = !status || status == 429 || status == 502 || status == 503 || status == 504;
	int64_t wait_s = traces->failures > 5 ? WAIT_MOST_S : (int64_t)1 << traces->failures;
	traces->failures++;
	traces->stats.failures++;
	if (result->retry_after_s > wait_s)
		wait_s = result->retry_after_s < WAIT_MOST_S ? result->retry_after_s : WAIT_MOST_S;
	traces->not_before = clock_steady_ms() + wait_s * 1000;
	traces->gave_up = traces->flushes;
	if ((!again || traces->failures == 2) && !traces->told_failing) {
		log_warning("traces", "the collector does not take traces%s: %s", again ? ", which are sent again" : "",
			    result->message);
		traces->told_failing = true;
	}
	if (!again)
		drop_batch(traces);
}

// What the collector says of a batch that it takes: how many of its spans it rejects after all.
static uint64_t take_partial(struct traces *traces, const struct courier_result *result)
{
	struct partial partial;
	const bool any = partial_read(result->answer, result->answer_bytes, &partial);
	const uint64_t rejected = partial.rejected < traces->batch_spans ? partial.rejected : traces->batch_spans;
	if (any && !traces->told_partial)
		log_warning("traces", "the collector rejects %llu of %u spans%s%s", (unsigned long long)rejected,
			    traces->batch_spans, partial.message[0] ? ": " : "", partial.message);
	traces->told_partial = any;
	traces->stats.rejected += rejected;
	return rejected;
}

static void take_success(struct traces *traces, const struct courier_result *result)
{
	const uint64_t rejected = take_partial(traces, result);
	// Of a collector that is too slow for all spans the log tells once, not after each batch.
	const bool caught_up = traces->told_full && !traces->waiting_spans;
	if (traces->told_failing || caught_up)
		log_info("traces", "the collector takes traces again; %llu spans were left out since the start",
			 (unsigned long long)traces->stats.dropped);
	traces->told_failing = false;
	traces->told_full &= !caught_up;
	traces->failures = 0;
	traces->stats.exported += traces->batch_spans - rejected;
	traces->batch_spans = 0;
	buffer_clear(&traces->batch);
}

static void sent(void *context, const struct courier_result *result)
{
	struct traces *traces = context;
	traces->under_way = false;
	if (result->delivered)
		take_success(traces, result);
	else
		take_failure(traces, result);
	schedule(traces);
}

static void dropped(void *context)
{
	((struct traces *)context)->under_way = false;
}

static void make_batch(struct traces *traces)
{
	buffer_append(&traces->batch, traces->head.data, traces->head.length);
	buffer_append(&traces->batch, traces->waiting.data, traces->waiting.length);
	buffer_append_text(&traces->batch, spans_tail);
	traces->batch_spans = traces->waiting_spans;
	traces->waiting_spans = 0;
	buffer_clear(&traces->waiting);
	if (traces->batch.failed)
		drop_batch(traces);
}

static void look(void *context)
{
	struct traces *traces = context;
	const char *fields[TRACES_FIELDS + 1] = {"Content-Type: application/json"};
	traces->armed = false;
	if (!traces->batch.length && traces->waiting_spans)
		make_batch(traces);
	if (traces->under_way || !traces->batch.length)
		return;
	for (size_t i = 0; i < traces->settings.field_count; i++)
		fields[i + 1] = traces->settings.fields[i];
	const struct courier_letter letter = {.url = traces->settings.url,
					      .body = buffer_text(&traces->batch),
					      .fields = fields,
					      .field_count = traces->settings.field_count + 1,
					      .done = sent,
					      .drop = dropped,
					      .context = traces};
	traces->under_way = !courier_send(traces->courier, &letter);
	if (!traces->under_way)
		take_failure(traces, &(struct courier_result){.message = "out of memory"});
	schedule(traces);
}

void traces_flush(struct traces *traces)
{
	if (!traces)
		return;
	traces->flushes = true;
	traces->not_before = 0;
	schedule(traces);
}

bool traces_flushed(const struct traces *traces)
{
	return !traces || traces->gave_up || (!traces->under_way && !traces->batch.length && !traces->waiting_spans);
}

bool traces_read_stats(const struct traces *traces, struct traces_stats *stats)
{
	if (!traces)
		return false;
	*stats = traces->stats;
	stats->waiting = traces->waiting_spans + traces->batch_spans;
	return true;
}

// ---- the queue ----

static void leave_out(struct traces *traces, unsigned spans)
{
	traces->stats.dropped += spans;
	if (!traces->told_full)
		log_warning("traces", "spans are left out: %u wait for the collector, and no more may",
			    traces->waiting_spans + traces->batch_spans);
	traces->told_full = true;
}

static void put(struct traces *traces, const struct buffer *text, unsigned spans)
{
	struct buffer *waiting = &traces->waiting;
	if (traces->waiting_spans + spans > WAITING_SPANS || waiting->length + text->length + 1 > WAITING_BYTES ||
	    buffer_reserve(waiting, text->length + 1)) {
		leave_out(traces, spans);
		return;
	}
	if (waiting->length)
		buffer_append_byte(waiting, ',');
	buffer_append(waiting, text->data, text->length);
	traces->waiting_spans += spans;
	schedule(traces);
}

// ---- a trace ----

// Random hexadecimal digits, which are not all 0.
static bool make_id(char *out, size_t size)
{
	unsigned char bytes[(TRACE_ID_BYTES - 1) / 2];
	const size_t count = (size - 1) / 2;
	if (RAND_bytes(bytes, (int)count) != 1)
		return false;
	bytes[0] |= 1;
	for (size_t i = 0; i < count; i++)
		snprintf(out + 2 * i, 3, "%02x", bytes[i]);
	return true;
}

struct trace *trace_begin(struct traces *traces, const char *traceparent)
{
	struct traceparent parent = {.sampled = true};
	if (!traces)
		return NULL;
	const bool continues = traceparent_parse(traceparent, &parent);
	struct trace *trace = parent.sampled ? calloc(1, sizeof(*trace)) : NULL;
	if (!trace)
		return NULL;
	trace->traces = traces;
	trace->begin_ns = clock_steady_ns();
	trace->wall_ns = clock_wall_ns() - trace->begin_ns;
	buffer_init(&trace->text, TRACE_BYTES);
	memcpy(trace->parent_id, parent.span_id, sizeof trace->parent_id);
	memcpy(trace->trace_id, parent.trace_id, sizeof trace->trace_id);
	if (make_id(trace->span_id, sizeof trace->span_id) &&
	    (continues || make_id(trace->trace_id, sizeof trace->trace_id)))
		return trace;
	free(trace);
	return NULL;
}

static void print(struct trace *trace, const struct span *span)
{
	const size_t before = trace->text.length;
	if (before)
		buffer_append_byte(&trace->text, ',');
	if (span_print(span, &trace->text)) {
		trace->text.length = before;
		trace->text.failed = false;
		trace->left_out++;
	} else {
		trace->spans++;
	}
}

void trace_add(struct trace *trace, const struct trace_part *part)
{
	struct json *attributes = part->attributes;
	struct span span = {.name = part->name, .kind = SPAN_INTERNAL, .attributes = attributes};
	if (trace && (trace->spans + 1 >= TRACE_SPANS || !make_id(span.span_id, sizeof span.span_id))) {
		trace->left_out++;
	} else if (trace) {
		memcpy(span.trace_id, trace->trace_id, sizeof span.trace_id);
		memcpy(span.parent_id, trace->span_id, sizeof span.parent_id);
		span.begin_ns = part->begin_ns + trace->wall_ns;
		span.end_ns = part->end_ns + trace->wall_ns;
		print(trace, &span);
	}
	json_destroy(&attributes);
}

void trace_stop(struct trace *trace)
{
	if (trace && !trace->end_ns)
		trace->end_ns = clock_steady_ns();
}

void trace_put(struct trace **pointer, const struct trace_request *request)
{
	struct trace *trace = *pointer;
	struct json *attributes = request->attributes;
	*pointer = NULL;
	if (trace) {
		struct span span = {.name = request->name,
				    .kind = SPAN_SERVER,
				    .attributes = attributes,
				    .failed = request->failed};
		trace_stop(trace);
		memcpy(span.trace_id, trace->trace_id, sizeof span.trace_id);
		memcpy(span.parent_id, trace->parent_id, sizeof span.parent_id);
		memcpy(span.span_id, trace->span_id, sizeof span.span_id);
		span.begin_ns = trace->begin_ns + trace->wall_ns;
		span.end_ns = trace->end_ns + trace->wall_ns;
		print(trace, &span);
		trace->traces->stats.dropped += trace->left_out;
		if (trace->spans)
			put(trace->traces, &trace->text, trace->spans);
		buffer_finish(&trace->text);
		free(trace);
	}
	json_destroy(&attributes);
}

// ---- life ----

enum status traces_create(struct traces **out, const struct traces_params *params, struct error *error)
{
	*out = NULL;
	if (!params->settings->url[0])
		return STATUS_OK;
	struct traces *traces = calloc(1, sizeof(*traces));
	if (!traces)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	const char *const hosts[] = {params->settings->url};
	const struct span_source source = {params->settings->service, params->instance_id};
	*out = traces;
	traces->loop = params->loop;
	traces->settings = *params->settings;
	buffer_init(&traces->head, HEAD_BYTES);
	buffer_init(&traces->waiting, WAITING_BYTES);
	buffer_init(&traces->batch, WAITING_BYTES + HEAD_BYTES + 64);
	if (spans_print_head(&source, &traces->head))
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	return courier_create(&traces->courier, params->loop, hosts, 1, error);
}

void traces_destroy(struct traces **pointer)
{
	struct traces *traces = *pointer;
	if (!traces)
		return;
	*pointer = NULL;
	const unsigned left = traces->waiting_spans + traces->batch_spans;
	if (left)
		log_warning("traces", "%u spans were not delivered before the server stopped", left);
	net_timer_stop(traces->loop, &traces->timer);
	courier_destroy(&traces->courier);
	buffer_finish(&traces->head);
	buffer_finish(&traces->waiting);
	buffer_finish(&traces->batch);
	free(traces);
}
