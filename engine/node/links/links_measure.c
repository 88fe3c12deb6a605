/* Measures round trips and loss of direct links and of the connection to the server, and reports them; see links.h.
 * links_bursts.c measures throughput.
 *
 * A ping is sent each second. The round trip is the mean of the middle half of the last LINK_ROUND_TRIPS, and jitter
 * the mean of the middle half of their deviations, so that a few pings that a busy machine delayed have no effect. With
 * fewer than LINK_ROUND_TRIPS_LEAST nothing is reported. A ping that was sent while much else waited, or during which
 * any link of this node had a burst, is not counted; if bursts of other links have left no ping for PING_STARVED_MS,
 * those count. Loss: the system's count of retransmitted segments, as a share of all sent ones, over the last
 * minute. */
#include "common/base/clock.h"
#include "engine/device/info.h"
#include "engine/node/links/links_inside.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
	HEARD_MS = 1000,              // so long after a piece of the other end its burst may go on
	HEARD_ELSEWHERE_MS = 100,     // the same of another link's
	PING_STARVED_MS = 10000,      // so long after one that counted, bursts of other links are no reason
	PING_QUEUE_BYTES = 64 * 1024, // with more waiting a ping is late
};

void link_measures_up(struct link *link)
{
	struct link_measures *measures = &link->measures;
	const double throughput = measures->throughput_at_ms ? measures->throughput : -1;
	const int64_t throughput_at_ms = measures->throughput_at_ms;
	*measures = (struct link_measures){.rtt_ms = -1,
					   .jitter_ms = -1,
					   .throughput = throughput,
					   .throughput_at_ms = throughput_at_ms,
					   .sent_per_s = -1,
					   .sent_look_ns = clock_steady_ns(),
					   .at_ms = clock_wall_ms()};
	link_bursts_up(link);
}

// ---- round trips ----

// A burst goes by another link of this node than this one, or comes.
static bool bursts_elsewhere(const struct link *link)
{
	const struct links *links = link->links;
	const int64_t now_ms = clock_steady_ms();
	if (links->server.measures.bursting || links->server_back.measures.bursting)
		return true;
	for (const struct link *one = links->first; one; one = one->next)
		if (one != link && one->up &&
		    (one->measures.bursting || now_ms - one->measures.heard_ms < HEARD_ELSEWHERE_MS))
			return true;
	return false;
}

// Bursts of other links do not let its pings count, unless they have done so for long.
static bool minds_others(const struct link_measures *measures)
{
	return clock_steady_ms() - measures->round_trip_ms < PING_STARVED_MS;
}

static int compare_times(const void *a, const void *b)
{
	const double left = *(const double *)a, right = *(const double *)b;
	return left > right ? 1 : left < right ? -1 : 0;
}

// The mean of the middle half. count: 1 to LINK_ROUND_TRIPS.
static double middle(double *times, size_t count)
{
	const size_t cut = count / 4;
	double sum = 0;
	qsort(times, count, sizeof *times, compare_times);
	for (size_t i = cut; i < count - cut; i++)
		sum += times[i];
	return sum / (double)(count - 2 * cut);
}

void link_measures_round_trip(struct link_measures *measures, double rtt_ms)
{
	double times[LINK_ROUND_TRIPS];
	measures->round_trips[measures->round_trip_count++ % LINK_ROUND_TRIPS] = rtt_ms;
	const size_t count = measures->round_trip_count < LINK_ROUND_TRIPS ? measures->round_trip_count
									   : LINK_ROUND_TRIPS;
	memcpy(times, measures->round_trips, count * sizeof *times);
	measures->rtt_ms = middle(times, count);
	for (size_t i = 0; i < count; i++)
		times[i] = fabs(measures->round_trips[i] - measures->rtt_ms);
	measures->jitter_ms = middle(times, count);
	measures->at_ms = clock_wall_ms();
	measures->round_trip_ms = clock_steady_ms();
}

bool link_measures_tell(const struct link_measures *measures)
{
	return measures->round_trip_count >= LINK_ROUND_TRIPS_LEAST;
}

// Count one more round trip. When there are enough for the first time they are reported at once, not with the next
// report.
static void take_round_trip(struct link *link, double rtt_ms)
{
	link_measures_round_trip(&link->measures, rtt_ms);
	if (link->measures.round_trip_count == LINK_ROUND_TRIPS_LEAST)
		links_changed(link->links);
}

void link_ping_answered(struct link *link, const struct link_answer *answer)
{
	struct link_measures *measures = &link->measures;
	if (answer->error || !measures->ping_ns || answer->number != measures->ping_number)
		return;
	if (link->links->burst_ns < measures->ping_ns || !minds_others(measures))
		take_round_trip(link, (double)(clock_steady_ns() - measures->ping_ns) / 1e6);
	measures->ping_ns = 0;
}

static void ping(struct link *link)
{
	struct link_measures *measures = &link->measures;
	struct json *params = json_new_object();
	const int64_t now_ms = clock_steady_ms();
	measures->ping_number++;
	const bool bursts = measures->bursting || now_ms - measures->heard_ms < HEARD_MS ||
			    (minds_others(measures) && bursts_elsewhere(link)),
		   counts = net_peer_queued(link->conn->peer) < PING_QUEUE_BYTES && !links_models_busy(link->links) &&
			    !bursts && links_bulk_quiet(link->links);
	measures->ping_ns = counts ? clock_steady_ns() : 0;
	json_set_integer(params, "number", (int64_t)measures->ping_number);
	link_call(link, &(struct link_call){.method = "peer.ping",
					    .params = params,
					    .patience_ms = LIMIT_LINK_SILENCE_MS,
					    .answered = link_ping_answered,
					    .number = measures->ping_number});
}

enum status link_serve_ping(void *conn, const struct message *message, struct error *error)
{
	(void)conn, (void)message, (void)error;
	return STATUS_OK;
}

// ---- loss ----

static void look_at_segments(struct link *link)
{
	struct link_measures *measures = &link->measures;
	const size_t at = measures->seconds % (LINK_LOSS_SECONDS + 1);
	measures->segments[at] = link->path.segments;
	measures->segments_again[at] = link->path.segments_again;
	measures->seconds++;
}

// < 0: the system does not say, or too little was sent to tell.
double link_loss_percent(const struct link_measures *measures)
{
	if (measures->seconds < 2)
		return -1;
	const size_t room = LINK_LOSS_SECONDS + 1, count = measures->seconds < room ? measures->seconds : room,
		     last = (measures->seconds - 1) % room, first = (measures->seconds - count) % room;
	if (measures->segments[first] < 0 || measures->segments[last] <= measures->segments[first])
		return -1;
	const int64_t again = measures->segments_again[last] - measures->segments_again[first];
	return again <= 0 ? 0 : 100.0 * (double)again / (double)(measures->segments[last] - measures->segments[first]);
}

// ---- all of it ----

void link_measures_second(struct link *link)
{
	struct link_measures *measures = &link->measures;
	const int64_t now_ns = clock_steady_ns();
	const double passed_s = (double)(now_ns - measures->sent_look_ns) / 1e9;
	if (passed_s > 0)
		measures->sent_per_s = (double)(measures->sent_bytes - measures->sent_before) / passed_s;
	measures->sent_before = measures->sent_bytes;
	measures->sent_look_ns = now_ns;
	net_peer_path(link->conn->peer, &link->path);
	look_at_segments(link);
	ping(link);
	link_bursts_second(link);
}

// Take the round trip of the newest answered ping to the server, unless a burst was in progress when it was sent.
// ping_ns: the time of the ping that has just been sent.
static void take_server_round_trip(struct link *server, double rtt_ms)
{
	struct link_measures *measures = &server->measures;
	const size_t count = measures->round_trip_count;
	const double last_ms = count ? measures->round_trips[(count - 1) % LINK_ROUND_TRIPS] : -1;
	const bool counts = measures->ping_ns &&
			    (server->links->burst_ns < measures->ping_ns || !minds_others(measures));
	if (counts && rtt_ms >= 0 && fabs(rtt_ms - last_ms) > 0)
		take_round_trip(server, rtt_ms);
	const bool bursts = measures->bursting || server->links->server_back.measures.bursting ||
			    (minds_others(measures) && bursts_elsewhere(server));
	measures->ping_ns = bursts ? 0 : clock_steady_ns();
}

void links_measure_server(struct links *links)
{
	struct link *server = &links->server;
	struct net_peer_path path;
	double rtt_ms = -1;
	const bool up = links->params.measure_server && links->params.measure_server(links->params.arg, &rtt_ms, &path);
	if (up && (!server->up || strcmp(path.local, server->path.local) != 0)) {
		link_measures_up(server);
		link_measures_up(&links->server_back);
		link_route_read(&server->route, path.local, "");
		rtt_ms = -1; // it is of the time before
	}
	server->up = up;
	if (!up)
		return;
	server->path = path;
	look_at_segments(server);
	take_server_round_trip(server, rtt_ms);
	links->server_back.measures.rtt_ms = server->measures.rtt_ms;
	if (!links->server_back.measures.bursting)
		link_bursts_second(server);
	if (!server->measures.bursting)
		link_bursts_second(&links->server_back);
}

static void set_maybe_number(struct json *object, const char *name, double value)
{
	if (value < 0)
		json_set_null(object, name);
	else
		json_set_number(object, name, value);
}

static struct json *reading(const struct link *link)
{
	char at[CLOCK_TEXT_BYTES];
	const struct link_measures *measures = &link->measures;
	const bool up = link->up, told = up && link_measures_tell(measures);
	struct json *json = json_new_object();
	json_set_string(json, "peer_id", link->peer_id);
	json_set_string(json, "state", up ? "up" : "down");
	json_set_maybe_text(json, "reason", link->reason);
	json_set_string(json, "class", up ? link->route.class : "unknown");
	json_set_maybe_text(json, "interface", up ? link->route.interface : "");
	json_set_maybe_text(json, "address", up ? link->path.remote : "");
	set_maybe_number(json, "interface_bits_per_s", up ? link->route.bits_per_s : -1);
	set_maybe_number(json, "rtt_ms", told ? measures->rtt_ms : -1);
	set_maybe_number(json, "jitter_ms", told ? measures->jitter_ms : -1);
	set_maybe_number(json, "loss_percent", up ? link_loss_percent(measures) : -1);
	set_maybe_number(json, "throughput_bytes_per_s", measures->throughput);
	json_set_string(json, "throughput_at",
			measures->throughput < 0 ? NULL : clock_format(measures->throughput_at_ms, at));
	set_maybe_number(json, "sent_bytes_per_s", up ? measures->sent_per_s : -1);
	set_maybe_number(json, "throughput_back_bytes_per_s",
			 link_is_server(link) ? link->links->server_back.measures.throughput : -1);
	json_set_string(json, "measured_at", clock_format(measures->at_ms, at));
	return json;
}

struct json *links_readings(struct links *links)
{
	struct json *params = json_new_object(), *list = json_new_array();
	for (const struct link *link = links->first; link; link = link->next)
		json_push(list, reading(link));
	if (links->server.up)
		json_push(list, reading(&links->server));
	json_set(params, "links", list);
	return params;
}
