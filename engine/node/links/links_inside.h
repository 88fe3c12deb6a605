/* The state that the files of the direct links share: links.c has the connections, links_peers.c the server's list of
 * nodes, links_hops.c the hops, links_measure.c the measurements, links_bursts.c and links_rate.c the throughput,
 * links_models.c model files, links_route.c the interface of a route. Internal. Thread: the loop's. */
#pragma once
#include "common/base/limits.h"
#include "common/net/peer.h"
#include "common/wire/rpc.h"
#include "engine/node/links/links.h"
#include "engine/node/links/links_route.h"

enum {
	LINK_REDIAL_FIRST_MS = 500,
	LINK_ID_BYTES = 65, // 64 and a 0, as the contract has ids and keys
	LINK_REASON_BYTES = 256,
	LINK_LOSS_SECONDS = 60, // that loss is counted over
	LINK_ROUND_TRIPS = 8,   // that a figure is made of
	LINK_ROUND_TRIPS_LEAST = 4,
	LINK_PIECES = 64,        // of the longest burst
	LINK_SERVER_PIECES = 16, // of one to the server, which counts the calls of a node
};

// A connection to another node, from the dial, or its arrival, on.
struct link_conn {
	struct link_conn *next, **at;
	struct links *links;
	struct link *link;     // whose it is; NULL: one that came, and has not said who it is
	struct net_peer *peer; // NULL in net_peer_dial
	struct rpc rpc;
	struct net_frame *body;      // of the message that is being taken; NULL: it has none
	bool busy;                   // in a callback: it may end, but is there until that returns
	char end[LINK_REASON_BYTES]; // why it is to end then; ""
	char node_id[LINK_ID_BYTES]; // by its certificate; "" before the handshake is done
	struct net_timer patience;   // until peer.hello came
	int64_t second;              // in which `calls` came
	unsigned calls;
};

struct link_measures {
	int64_t ping_ns; // when the one that has no answer yet was sent; 0: none
	uint64_t ping_number;
	double round_trips[LINK_ROUND_TRIPS]; // milliseconds; a ring
	size_t round_trip_count;              // ever
	int64_t round_trip_ms;                // steady clock, when one counted last; 0: never
	double rtt_ms, jitter_ms;             // by what there is of them; < 0: there is nothing
	// Segments sent, and again, at each of the last seconds; a ring.
	int64_t segments[LINK_LOSS_SECONDS + 1], segments_again[LINK_LOSS_SECONDS + 1];
	size_t seconds;
	// Bursts.
	uint64_t burst;                // the number of the latest
	bool bursting;                 // it has no answer yet
	size_t burst_bytes;            // of it, or of the next one
	int64_t burst_began_ms;        // steady clock
	int64_t burst_due_ms;          // steady clock
	int64_t piece_ns[LINK_PIECES]; // (piece_count), when each came by the receiver's clock
	size_t piece_count, pieces_sent;
	int64_t burst_segments_again; // segments sent again, when it began
	double rate;                  // bytes per second of the latest burst, even if it was too short to count
	bool growing;                 // it had not come to the rate of the link
	double doubted;               // bytes per second, of a burst that is done once more; 0: none
	double throughput;            // bytes per second; < 0: not known
	int64_t throughput_at_ms;
	// The other end's bursts.
	uint64_t heard_burst, heard_bytes;
	int64_t heard_first_ns, heard_ms; // heard_ms: steady clock, the latest piece
	// Hops.
	uint64_t sent_bytes, sent_before; // before: at the last look
	int64_t sent_look_ns;
	double sent_per_s; // < 0: not known
	int64_t at_ms;     // wall clock: when anything of this was measured last
};

// A hop.open that came before this end was told of its hop.
struct link_ask {
	struct link_ask *next;
	char hop_id[LINK_ID_BYTES], key[LINK_ID_BYTES];
	struct json *id;
	uint32_t channel;
	int64_t came_ms;
};

// Another node of the cluster.
struct link {
	struct link *next;
	struct links *links;
	char peer_id[LINK_ID_BYTES], name[129];
	char addresses[LIMIT_LINK_ADDRESSES][NET_ADDRESS_BYTES]; // (address_count)
	size_t address_count, address;                           // address: that is tried, or was good
	int port;
	bool wanted;              // it is in the list that is being read
	bool dials;               // this end does: its id is the lower one
	struct link_conn *trying; // this end has dialled; NULL
	struct link_conn *conn;   // it is up; NULL
	bool up;                  // there is one
	size_t tried;             // addresses, one after the other, that did not work
	struct net_timer redial;
	int64_t redial_ms;
	char reason[LINK_REASON_BYTES]; // why it is not up; "" while it is
	struct link_measures measures;
	struct net_peer_path path; // of the connection
	struct link_route route;
	uint32_t next_channel;
	struct link_ask *asks;
	size_t ask_count;
};

struct links {
	struct links_params params;
	struct link server;      // the connection to the server, which is in no list
	struct link server_back; // of the other direction, what bursts find
	char node_id[LINK_ID_BYTES];
	struct net_peer_tls *tls;
	char *shown; // the certificate (PEM) that tls shows
	struct net_peer_listener *listener;
	struct link *first;
	struct link_conn *conns;
	size_t strangers; // of conns: without a link
	struct link_hop *hops;
	struct link_hop *gone; // destroyed in a callback; freed when that returns
	size_t reads;          // parts of models that this node waits for
	struct link_request *requests;
	int64_t read_second;
	unsigned reads_of_second;
	unsigned in_callback;
	bool fenced;
	struct net_timer second, report, turn;
	int64_t reported_ms, refusal_due_ms; // steady clock; refusal_due_ms: when one may be told of again
	// Steady clock of the last data of a hop of this node, in either direction, and of a bulk hop; 0: never.
	int64_t hop_ms, bulk_ms;
	int64_t burst_ns; // steady clock, when a piece of a burst of any link went or came last; 0: never
};

// links_peers.c
struct link *links_find(struct links *links, const char *peer_id); // NULL: unknown
void link_init(struct link *link, struct links *links, const char *peer_id);
void links_drop(struct links *links, struct link *link, const char *why); // and its connections

// links.c
void link_dial(void *link);
void link_say_down(struct link *link, const char *why);                       // in words, until it is up
void link_conn_free(struct link_conn *conn, const char *why);                 // what waits for an answer of it fails
void link_conn_end(struct link_conn *conn, const char *why);                  // conn is not valid afterwards
void link_notify(struct link *link, const char *method, struct json *params); // params are taken
struct link_answer {
	void *context;
	uint64_t number;
	const struct json *result;
	struct net_frame *body;    // NULL: it has none
	const struct error *error; // NULL: it is an answer
};
struct link_call {
	const char *method;
	struct json *params;    // taken, also on failure
	struct net_frame *body; // NULL: none
	int64_t patience_ms;    // STATUS_TIMEOUT then; 0: it may take as long as the connection lasts
	// Told once, also when the connection ends (STATUS_UNAVAILABLE).
	void (*answered)(struct link *link, const struct link_answer *answer);
	void *context; // of the answer
	uint64_t number;
};
// Errors, after which `answered` is not called: STATUS_UNAVAILABLE (the link is down, or its queue is full), those of
// net_peer_send.
enum status link_call(struct link *link, const struct link_call *call);
// Answer a call of `method` with a result (taken), or with an error if one is given.
void link_answer(struct link *link, const char *method, const struct json *id, struct json *result,
		 const struct error *error);
void links_changed(struct links *links); // tell the server soon

// Methods that other nodes may call are served with the connection, which is its link's, as their argument. They answer
// refusals themselves; a violation of the contract ends the connection.

// links_hops.c, links_hops_open.c
// hop.data, whose head is this? Then it is served: true. False: it is something else.
bool link_hops_data(struct link *link, const uint8_t *head, size_t head_bytes, struct net_frame *body);
rpc_serve link_serve_hop_open, link_serve_hop_data, link_serve_hop_taken, link_serve_hop_close;
void link_hops_drained(struct link *link);
void link_hops_second(struct link *link); // ends calls that have waited too long
void link_hops_down(struct link *link, const char *why);
void links_hops_finish(struct links *links);

// links_models.c
rpc_serve link_serve_piece;
void links_models_finish(struct links *links);
bool links_models_busy(const struct links *links); // parts of models are in flight, in either direction

// links_measure.c
void link_measures_up(struct link *link);
void link_measures_second(struct link *link);
void link_measures_round_trip(struct link_measures *measures, double rtt_ms); // one more was taken
bool link_measures_tell(const struct link_measures *measures);                // there are enough to be told, and judged
double link_loss_percent(const struct link_measures *measures);               // < 0: not known, or too little was sent
rpc_serve link_serve_ping;
void link_ping_answered(struct link *link, const struct link_answer *answer); // number: the ping's
void links_measure_server(struct links *links);
struct json *links_readings(struct links *links); // params of node.links

// links_bursts.c
bool links_hops_quiet(const struct links *links); // no data of one, whichever way it goes, went or came for a moment
bool links_bulk_quiet(const struct links *links); // the same for bulk hops, which the first one ignores
bool link_is_server(const struct link *link);     // one of the two directions of the connection to the server
void link_bursts_up(struct link *link);
void link_bursts_second(struct link *link); // begin one that is due, end one whose answers do not come
rpc_serve link_serve_burst;

// links_rate.c
// A burst showed this rate (bytes per second, > 0). True: it is doubtful, and to be done once more, as it may be; else
// it is taken, by itself or with the one that was doubted.
bool link_measures_rate(struct link_measures *measures, double rate, bool lossy, bool may);
// Bytes per second of a burst, by when its pieces came; < 0: they came at one time. Pauses of TCP's slow start are left
// out, few, of a quarter to one and a half round trips, and longer than four usual gaps. growing: the first half came
// so much slower that TCP had not come to the rate of the way; then only the second half counts: in slow start it is
// the last flight. lossy: no pauses are left out, but of eight parts the first two, the slowest and the fastest.
struct link_pieces {
	const int64_t *ns;   // (count), of one clock
	size_t count, bytes; // PIECES_LEAST to LINK_PIECES; bytes: of each
	double rtt_ms;
	bool lossy; // segments were sent again: no pause is left out
};
double link_pieces_rate(const struct link_pieces *pieces, bool *growing);
