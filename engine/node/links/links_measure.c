/* What is measured of direct links: round trips, loss, throughput; see links.h.
 *
 * A ping each second; of the last LINK_ROUND_TRIPS the middle half is averaged, and jitter is the same of how far off
 * they are: what a busy machine made of a few of them does not show, and is soon gone. With fewer than
 * LINK_ROUND_TRIPS_LEAST nothing is told. One that was sent while much else waited, or that any link of this node had a
 * burst beside, from its being sent to its answer, says nothing of the link and is not counted; where bursts of other
 * links have left none for PING_STARVED_MS, those count.
 * Loss: the system's count of segments sent again, of those sent, over the last minute.
 * Throughput: a burst of pieces, each answered with what of it has come by then and when, by the receiver's clock. A
 * burst is short (wanted_ms at the rate that was found: longer on a long way), and a longer one follows at once where
 * it took too short to tell, or where TCP, which begins slowly, had not come to the rate of the way. The round trips
 * that TCP waits between its first flights are left out; see link_pieces_rate. A machine that is busy takes a burst
 * late, and a wire that was held up gives at once what waited: the first burst, one that shows less than before and one
 * that shows more than twice as much are done twice. Of the first two the better one counts, later the middle one of
 * both and what was known. It goes in by half; but where both are below half of what was known, or above twice of it,
 * the way itself is another, and it counts whole.
 * Where segments were sent again, in a burst or lately, TCP's pauses are what a stream would get, too: the burst is far
 * longer, no pause is left out, and of two that do not show another way the mean counts, or of the first two the
 * second.
 *
 * A generation comes first: a burst begins only when nothing of any hop of this node, whichever way that goes, has come
 * or gone for HOP_QUIET_MS; the other end refuses pieces while it has such hops itself; and as only AHEAD_BYTES of a
 * burst (or what the link holds) are under way at a time, one that has begun ends within a round trip of a hop's data.
 */
#include "common/base/clock.h"
#include "engine/device/info.h"
#include "engine/node/links/links_inside.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	PIECE_LEAST_BYTES = 8 * 1024,
	BURST_FIRST_BYTES = 64 * 1024,
	BURST_MOST_BYTES = 16 * 1024 * 1024,
	BURST_SERVER_MOST_BYTES = 4 * 1024 * 1024,
	BURST_LEAST_MS = 50,
	BURST_MOST_MS = 1000,
	BURST_ROUND_TRIPS = 4, // enough to leave TCP's slow start
	BURST_JITTERS = 16,    // with less, jitter is a part of what is measured
	BURST_LOSSY_LEAST_MS = 2000,
	BURST_LOSSY_MOST_MS = 4000,
	BURST_LOSSY_ROUND_TRIPS = 40,
	BURST_TOO_SHORT_US = 2500, // of the pieces that count
	BURST_FIRST_MS = 3000,     // after the link is up
	BURST_OTHER_MS = 5000,     // of the end that was dialled: not both at once
	BURST_BACK_MS = 8000,      // from the server
	BURST_PERIOD_MS = 30000,
	BURST_SHARE = 15, // the period is no shorter than so many times the burst
	BURST_LOST_MS = 10000,
	BURST_REFUSED_MS = 5000,
	AHEAD_BYTES = 512 * 1024,
	AHEAD_PART = 4, // of a large burst, so that it pauses no more often than TCP's slow start
	HOP_QUIET_MS = 1000,
	HEARD_MS = 1000,              // so long after a piece of the other end its burst may go on
	HEARD_ELSEWHERE_MS = 100,     // the same of another link's
	PING_STARVED_MS = 10000,      // so long after one that counted, bursts of other links are no reason
	PING_QUEUE_BYTES = 64 * 1024, // with more waiting a ping is late
	FLIGHTS = 10,                 // of TCP's slow start, between which it waits
	LAST_FLIGHTS = 2,             // that the second half of a burst has of them
	PIECES_LEAST = 4,
	PARTS = 8, // of a burst on a lossy way
};
static const double lossy_percent = 0.1; // from here on
static const double doubt_below = 0.7;   // of what was known
static const double changed_times = 2;   // so many times what was known, or less than one part in so many

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
					   .burst_bytes = BURST_FIRST_BYTES,
					   .burst_due_ms = clock_steady_ms() +
							   (link->dials ? BURST_FIRST_MS : BURST_OTHER_MS),
					   .sent_look_ns = clock_steady_ns(),
					   .at_ms = clock_wall_ms()};
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

// One more counts. Once there are enough they are told at once, not with the next report.
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
static double loss_percent(const struct link_measures *measures)
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

// ---- throughput ----

bool links_hops_quiet(const struct links *links)
{
	return !links->hop_ms || clock_steady_ms() - links->hop_ms >= HOP_QUIET_MS;
}

bool links_bulk_quiet(const struct links *links)
{
	return !links->bulk_ms || clock_steady_ms() - links->bulk_ms >= HOP_QUIET_MS;
}

void links_hop_passed(struct links *links)
{
	if (links)
		links->hop_ms = clock_steady_ms();
}

// Neither a hop's data nor parts of models are to be measured, nor to be held up.
static bool may_burst(const struct link *link)
{
	return links_hops_quiet(link->links) && links_bulk_quiet(link->links) && !links_models_busy(link->links);
}

static bool is_server(const struct link *link)
{
	return link == &link->links->server || link == &link->links->server_back;
}

static size_t most_bytes(const struct link *link)
{
	return is_server(link) ? BURST_SERVER_MOST_BYTES : BURST_MOST_BYTES;
}

// The larger the burst, the larger its pieces: what each costs the other end must not be what is measured.
static size_t piece_bytes(const struct link *link)
{
	const size_t bytes = link->measures.burst_bytes / (is_server(link) ? LINK_SERVER_PIECES : LINK_PIECES);
	return bytes > PIECE_LEAST_BYTES ? bytes : PIECE_LEAST_BYTES;
}

// What the link holds at the best rate that is known.
static double held_bytes(const struct link_measures *measures)
{
	const double rate = measures->rate > measures->throughput ? measures->rate : measures->throughput;
	return measures->rtt_ms > 0 && rate > 0 ? measures->rtt_ms * 1e-3 * rate : 0;
}

// How much may be without an answer: somewhat more than the link holds, as far as that is known, so that a queue on its
// way does not overflow.
static size_t ahead_bytes(const struct link_measures *measures)
{
	const double held = (measures->growing ? 3 : 1.5) * held_bytes(measures);
	size_t bytes = measures->burst_bytes / AHEAD_PART;
	bytes = bytes > AHEAD_BYTES ? bytes : AHEAD_BYTES;
	return held <= (double)bytes ? bytes : held < BURST_MOST_BYTES ? (size_t)held : BURST_MOST_BYTES;
}

static void burst_answered(struct link *link, const struct link_answer *answer);

static bool send_piece(struct link *link, size_t bytes, size_t pieces)
{
	struct links *links = link->links;
	const struct link_measures *measures = &link->measures;
	if (is_server(link))
		return links->params.burst_server &&
		       links->params.burst_server(links->params.arg, link == &links->server_back,
						  (int64_t)measures->burst, measures->pieces_sent, bytes);
	struct net_frame *body = net_frame_alloc(bytes);
	if (!body)
		return false;
	memset(net_frame_data(body), 0, bytes); // TLS makes noise of it
	struct json *params = json_new_object();
	json_set_integer(params, "burst", (int64_t)measures->burst);
	json_set_integer(params, "piece", (int64_t)measures->pieces_sent);
	json_set_integer(params, "pieces", (int64_t)pieces);
	const enum status status = link_call(link, &(struct link_call){.method = "peer.burst",
								       .params = params,
								       .body = body,
								       .patience_ms = 2 * BURST_LOST_MS,
								       .answered = burst_answered,
								       .number = measures->burst});
	net_frame_unref(&body);
	return !status;
}

static void burst_again(struct link *link, int64_t after_ms)
{
	link->measures.bursting = false; // what is still under way of it is passed over
	link->measures.burst_due_ms = clock_steady_ms() + after_ms;
}

static void send_pieces(struct link *link)
{
	struct link_measures *measures = &link->measures;
	const size_t bytes = piece_bytes(link), pieces = measures->burst_bytes / bytes,
		     ahead = measures->piece_count + ahead_bytes(measures) / bytes;
	while (measures->pieces_sent < pieces && measures->pieces_sent < ahead && send_piece(link, bytes, pieces))
		measures->pieces_sent++;
	if (measures->pieces_sent == measures->piece_count) // none could be sent, and no answer will come
		burst_again(link, BURST_REFUSED_MS);
}

static void burst(struct link *link)
{
	struct link_measures *measures = &link->measures;
	const struct link *way = is_server(link) ? &link->links->server : link;
	measures->burst++;
	measures->bursting = true;
	link->links->burst_ns = clock_steady_ns();
	measures->burst_began_ms = link->links->burst_ns / 1000000;
	(is_server(link) ? &link->links->server : link)->measures.ping_ns = 0;
	measures->burst_segments_again = way->path.segments_again;
	measures->piece_count = measures->pieces_sent = 0;
	send_pieces(link);
}

enum status link_serve_burst(void *arg, const struct message *message, struct error *refusal)
{
	const struct link_conn *conn = arg;
	struct link *link = conn->link;
	struct error error = {0};
	struct link_measures *measures = &link->measures;
	const uint64_t number = (uint64_t)json_get_integer(message->params, "burst", 0);
	const int64_t now_ns = clock_steady_ns();
	if (measures->heard_burst != number || !json_get_integer(message->params, "piece", 0)) {
		measures->heard_burst = number;
		measures->heard_bytes = 0;
		measures->heard_first_ns = now_ns;
	}
	link->links->burst_ns = now_ns;
	measures->heard_ms = now_ns / 1000000;
	measures->ping_ns = 0; // its answer waits behind what comes
	measures->heard_bytes += conn->body ? net_frame_bytes(conn->body) : 0;
	(void)refusal;
	if (!links_hops_quiet(link->links)) {
		error_set(&error, STATUS_UNAVAILABLE, "a model is transferring data here");
		link_answer(link, message->method, message->id, NULL, &error);
		return STATUS_PENDING;
	}
	struct json *result = json_new_object();
	json_set_integer(result, "bytes", (int64_t)measures->heard_bytes);
	json_set_integer(result, "ns", now_ns - measures->heard_first_ns);
	link_answer(link, message->method, message->id, result, NULL);
	return STATUS_PENDING;
}

static int compare_gaps(const void *a, const void *b)
{
	const int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
	return left < right ? 1 : left > right ? -1 : 0;
}

// Of the pieces after `first` up to `last`, less so many pauses of TCP. < 0: they came at one time.
static double rate_between(const struct link_pieces *pieces, size_t first, size_t last, size_t pauses)
{
	int64_t gaps[LINK_PIECES], total_ns = pieces->ns[last] - pieces->ns[first];
	const size_t count = last - first;
	for (size_t i = 0; i < count; i++)
		gaps[i] = pieces->ns[first + i + 1] - pieces->ns[first + i];
	qsort(gaps, count, sizeof *gaps, compare_gaps);
	const int64_t usual_ns = gaps[count / 2];
	for (size_t i = 0, left = pauses; left && i < count / 2 && pieces->rtt_ms >= 2; i++) {
		const double gap_ms = (double)gaps[i] / 1e6; // what is far longer than a round trip is no pause of TCP
		if (gap_ms < 1.5 * pieces->rtt_ms && gap_ms > pieces->rtt_ms / 4 && gaps[i] > 4 * usual_ns) {
			total_ns -= gaps[i] - usual_ns;
			left--;
		}
	}
	return total_ns > 0 ? (double)count * (double)pieces->bytes * 1e9 / (double)total_ns : -1;
}

// Of eight parts of the pieces all but the first two, the slowest and the fastest: TCP that has overrun a queue on the
// way stalls once, and then all that waited comes at one time.
static double trimmed_rate(const struct link_pieces *pieces)
{
	int64_t per_piece_ns[PARTS - 2], total_ns = 0;
	const size_t gaps = pieces->count - 1;
	for (size_t i = 2; i < PARTS; i++) {
		const size_t first = i * gaps / PARTS, last = (i + 1) * gaps / PARTS;
		per_piece_ns[i - 2] = (pieces->ns[last] - pieces->ns[first]) / (int64_t)(last - first);
	}
	qsort(per_piece_ns, PARTS - 2, sizeof *per_piece_ns, compare_gaps);
	for (size_t i = 1; i < PARTS - 3; i++)
		total_ns += per_piece_ns[i];
	return total_ns > 0 ? (PARTS - 4) * (double)pieces->bytes * 1e9 / (double)total_ns : -1;
}

double link_pieces_rate(const struct link_pieces *pieces, bool *growing)
{
	const size_t last = pieces->count - 1, half = pieces->count / 2, flights = pieces->lossy ? 0 : FLIGHTS;
	const double before = rate_between(pieces, 0, half, flights),
		     rate = rate_between(pieces, half, last, pieces->lossy ? 0 : LAST_FLIGHTS);
	*growing = pieces->rtt_ms >= 2 && before > 0 && rate > 1.5 * before;
	if (pieces->lossy && last >= PARTS)
		return trimmed_rate(pieces);
	return pieces->lossy || *growing ? rate : rate_between(pieces, 0, last, flights);
}

// Segments of this way were sent again while the burst went, or lately. What the server sends is taken for as good as
// what is sent to it.
static bool is_lossy(const struct link *link)
{
	const struct link *way = is_server(link) ? &link->links->server : link;
	struct net_peer_path path = way->path;
	if (way->conn)
		net_peer_path(way->conn->peer, &path);
	return path.segments_again > link->measures.burst_segments_again ||
	       loss_percent(&way->measures) >= lossy_percent;
}

// How long a burst is to take.
static double wanted_ms(const struct link_measures *measures, bool lossy)
{
	const double rtt_ms = measures->rtt_ms > 0 ? measures->rtt_ms : 0,
		     jitters_ms = measures->jitter_ms > 0 ? BURST_JITTERS * measures->jitter_ms : 0,
		     trips_ms = (lossy ? BURST_LOSSY_ROUND_TRIPS : BURST_ROUND_TRIPS) * rtt_ms;
	const double least_ms = lossy ? BURST_LOSSY_LEAST_MS : BURST_LEAST_MS,
		     most_ms = lossy ? BURST_LOSSY_MOST_MS : BURST_MOST_MS,
		     ms = trips_ms > jitters_ms ? trips_ms : jitters_ms;
	return ms < least_ms ? least_ms : ms > most_ms ? most_ms : ms;
}

static double middle_of(double a, double b, double c)
{
	return fmax(fmin(a, b), fmin(fmax(a, b), c));
}

bool link_measures_rate(struct link_measures *measures, double rate, bool lossy, bool may)
{
	const double known = measures->throughput, other = measures->doubted;
	const bool first = known < 0;
	const bool twice = other > 0;
	if (!twice && may && (first || rate < doubt_below * known || rate > changed_times * known)) {
		measures->doubted = rate;
		return true;
	}
	const double middle = twice ? middle_of(known, rate, other) : rate;
	measures->doubted = 0;
	if (first)
		measures->throughput = lossy ? rate : fmax(rate, other);
	else if (twice && (middle * changed_times < known || middle > changed_times * known))
		measures->throughput = middle;
	else
		measures->throughput += ((twice && lossy ? (rate + other) / 2 : middle) - known) / 2;
	measures->throughput_at_ms = measures->at_ms = clock_wall_ms();
	return false;
}

// Of how many bytes the burst is to be that follows at once; 0: the last was long enough. fits: of how many one is to
// be by its rate.
static size_t longer_burst(const struct link *link, double rate, bool lossy, bool growing, size_t *fits)
{
	const struct link_measures *measures = &link->measures;
	const size_t was = measures->burst_bytes, most = most_bytes(link);
	const double least = rate * BURST_TOO_SHORT_US / 1e6;
	double bytes = rate > 0 ? rate * wanted_ms(measures, lossy) / 1e3 : 0;
	bytes = bytes < BURST_FIRST_BYTES ? BURST_FIRST_BYTES : bytes > (double)most ? (double)most : bytes;
	*fits = (size_t)bytes;
	const bool tiny = rate <= 0 || (double)was / 2 < least;
	if (was >= most || (!tiny && !growing && was >= *fits / 2))
		return 0;
	size_t next = 4 * was < most ? 4 * was : most;
	if (!tiny && next > *fits * (growing ? 2 : 1))
		next = *fits * (growing ? 2 : 1);
	return next > was ? next : 0;
}

// All its pieces came, or those that did in BURST_LOST_MS.
static void burst_over(struct link *link)
{
	struct link_measures *measures = &link->measures;
	const bool lossy = is_lossy(link), may = may_burst(link);
	const struct link_pieces pieces = {.ns = measures->piece_ns,
					   .count = measures->piece_count,
					   .bytes = piece_bytes(link),
					   .rtt_ms = measures->rtt_ms,
					   .lossy = lossy};
	bool growing;
	size_t fits;
	const size_t ahead = ahead_bytes(measures);
	const double rate = measures->rate = link_pieces_rate(&pieces, &growing);
	// More could have been under way than was let.
	growing |= ahead < measures->burst_bytes && rate > 0 && rate * measures->rtt_ms * 1e-3 > 0.8 * (double)ahead;
	measures->growing = growing;
	const size_t longer = longer_burst(link, rate, lossy, growing, &fits);
	const int64_t took_ms = clock_steady_ms() - measures->burst_began_ms;
	burst_again(link, longer                                    ? 0
			  : took_ms > BURST_PERIOD_MS / BURST_SHARE ? BURST_SHARE * took_ms
								    : BURST_PERIOD_MS);
	measures->burst_bytes = longer ? longer : fits;
	if (longer && may)
		burst(link);
	if (longer || rate <= 0)
		return;
	if (link_measures_rate(measures, rate, lossy, may))
		burst(link);
}

// A piece has come at the other end, at `ns` by its clock; < 0: it is refused there.
static void piece_answered(struct link *link, uint64_t number, int64_t ns)
{
	struct link_measures *measures = &link->measures;
	const size_t count = measures->piece_count;
	if (!measures->bursting || number != measures->burst)
		return;
	link->links->burst_ns = clock_steady_ns();
	if (ns < 0) {
		burst_again(link, BURST_REFUSED_MS);
		return;
	}
	if (count >= LINK_PIECES || ns < (count ? measures->piece_ns[count - 1] : 0))
		return; // no clock goes back
	measures->piece_ns[measures->piece_count++] = ns;
	if (measures->piece_count == measures->burst_bytes / piece_bytes(link))
		burst_over(link);
	else if (may_burst(link))
		send_pieces(link);
	else
		burst_again(link, 0);
}

static void burst_answered(struct link *link, const struct link_answer *answer)
{
	piece_answered(link, answer->number, answer->error ? -1 : json_get_integer(answer->result, "ns", 0));
}

void links_server_piece(struct links *links, bool back, int64_t burst, int64_t ns)
{
	piece_answered(back ? &links->server_back : &links->server, (uint64_t)burst, ns);
}

static void mind_bursts(struct link *link)
{
	struct link_measures *measures = &link->measures;
	const int64_t now_ms = clock_steady_ms();
	if (measures->bursting && now_ms - measures->burst_began_ms >= BURST_LOST_MS) {
		if (measures->piece_count >= PIECES_LEAST) {
			burst_over(link); // of two the second ends it, though neither was whole
		} else {
			measures->doubted = 0;
			burst_again(link, BURST_PERIOD_MS);
		}
	}
	if (!measures->bursting && now_ms >= measures->burst_due_ms && may_burst(link))
		burst(link);
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
	mind_bursts(link);
}

// What the newest answered ping to the server took, which stays until there is another, unless a burst was under way
// when it was sent. ping_ns: the one that has just been sent counts.
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
		links->server_back.measures.burst_due_ms += BURST_BACK_MS - BURST_OTHER_MS;
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
		mind_bursts(server);
	if (!server->measures.bursting)
		mind_bursts(&links->server_back);
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
	set_maybe_number(json, "loss_percent", up ? loss_percent(measures) : -1);
	set_maybe_number(json, "throughput_bytes_per_s", measures->throughput);
	json_set_string(json, "throughput_at",
			measures->throughput < 0 ? NULL : clock_format(measures->throughput_at_ms, at));
	set_maybe_number(json, "sent_bytes_per_s", up ? measures->sent_per_s : -1);
	set_maybe_number(json, "throughput_back_bytes_per_s",
			 is_server(link) ? link->links->server_back.measures.throughput : -1);
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
