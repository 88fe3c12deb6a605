/* Throughput of direct links, and of the connection to the server, by bursts of data; see links.h. What a burst shows
 * is worked out in links_rate.c.
 *
 * A burst is pieces, each answered with what of it has come by then and when, by the receiver's clock. It is short
 * (wanted_ms at the rate that was found: longer on a long way), and a longer one follows at once where it took too
 * short to tell, or where TCP, which begins slowly, had not come to the rate of the way. Where segments were sent
 * again, in a burst or lately, TCP's pauses are what a stream would get, too: the burst is far longer.
 *
 * A generation comes first: a burst begins only when nothing of any hop of this node, whichever way that goes, has come
 * or gone for HOP_QUIET_MS; the other end refuses pieces while it has such hops itself; and as only AHEAD_BYTES of a
 * burst (or what the link holds) are under way at a time, one that has begun ends within a round trip of a hop's data.
 */
#include "common/base/clock.h"
#include "engine/node/links/links_inside.h"

#include <string.h>

enum {
	PIECE_LEAST_BYTES = 8 * 1024,
	BURST_FIRST_BYTES = 64 * 1024,
	BURST_MOST_BYTES = 16 * 1024 * 1024,
	BURST_SERVER_MOST_BYTES = 4 * 1024 * 1024,
	BURST_LEAST_MS = 50,
	BURST_MOST_MS = 1000,
	BURST_ROUND_TRIPS = 4, // enough to leave TCP's slow start
	BURST_JITTERS = 16,    // with fewer, jitter would affect the result
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
	PIECES_LEAST = 4,
};
static const double lossy_percent = 0.1; // from here on

void link_bursts_up(struct link *link)
{
	const struct links *links = link->links;
	const int64_t pause_ms = link == &links->server_back ? BURST_BACK_MS
				 : link->dials               ? BURST_FIRST_MS
							     : BURST_OTHER_MS;
	link->measures.burst_bytes = BURST_FIRST_BYTES;
	link->measures.burst_due_ms = clock_steady_ms() + pause_ms;
}

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

bool link_is_server(const struct link *link)
{
	return link == &link->links->server || link == &link->links->server_back;
}

static size_t most_bytes(const struct link *link)
{
	return link_is_server(link) ? BURST_SERVER_MOST_BYTES : BURST_MOST_BYTES;
}

// The larger the burst, the larger its pieces, so that the cost of a piece at the other end does not affect the result.
static size_t piece_bytes(const struct link *link)
{
	const size_t bytes = link->measures.burst_bytes / (link_is_server(link) ? LINK_SERVER_PIECES : LINK_PIECES);
	return bytes > PIECE_LEAST_BYTES ? bytes : PIECE_LEAST_BYTES;
}

// The bytes in flight on the link at the best known rate.
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
	if (link_is_server(link))
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
	link->measures.bursting = false; // pieces still in flight are ignored
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
	const struct link *way = link_is_server(link) ? &link->links->server : link;
	measures->burst++;
	measures->bursting = true;
	link->links->burst_ns = clock_steady_ns();
	measures->burst_began_ms = link->links->burst_ns / 1000000;
	(link_is_server(link) ? &link->links->server : link)->measures.ping_ns = 0;
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
	measures->ping_ns = 0; // its answer waits behind the burst
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

// Whether segments in this direction were retransmitted during the burst, or recently. The server's direction is
// assumed to be as good as ours.
static bool is_lossy(const struct link *link)
{
	const struct link *way = link_is_server(link) ? &link->links->server : link;
	struct net_peer_path path = way->path;
	if (way->conn)
		net_peer_path(way->conn->peer, &path);
	return path.segments_again > link->measures.burst_segments_again ||
	       link_loss_percent(&way->measures) >= lossy_percent;
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

// The bytes of the burst that follows at once; 0: the last one was long enough. fits: the bytes of a burst by its rate.
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

void link_bursts_second(struct link *link)
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
