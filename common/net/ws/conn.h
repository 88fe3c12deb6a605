/* A WebSocket connection, as its own files see it: ws.c and upgrade.c open and end it; carrier.c connects it to the
 * owner of its socket (libwebsockets if dialled, else an arrival); send.c queues; records.c gathers TLS records;
 * read.c receives; close.c handles control frames and the end; keys.c renews TLS keys. Not for others. Thread: the
 * loop's. */
#pragma once
#include "common/net/frame.h"
#include "common/net/http/arrival.h"
#include "common/net/tls/records.h"
#include "common/net/tls/tls_lws.h"
#include "common/net/ws/receive.h"

enum { CLOSE_REASON_BYTES = 120 };

struct queued {
	struct net_frame *frame;
	uint64_t key;
};

// The fields that a broadcast needs come first, in one cache line.
struct net_conn {
	struct net_session session;
	struct lws *wsi; // of one that dialled; else NULL
	size_t queue_count;
	int fd;                      // the socket, once it is open: bytes may be sent past libwebsockets; else -1
	SSL *ssl;                    // whose bytes go through TLS; NULL: plain
	struct net_records *records; // of that; NULL: each record goes by itself
	bool opened, closed, closing, close_sent, was_full, held;
	bool masks;                  // it dialled: what it sends is masked
	bool speaks_first;           // the server says nothing before it
	struct net_conn *next, **at; // in the loop's list
	const struct net_handler *handler;
	void *user;
	int close_code;
	char close_reason[CLOSE_REASON_BYTES + 1];
	struct net_receiver rx;
	struct net_watch
		*rx_watch; // of the socket, where it is read here (the arrival's own, if it has one); else NULL
	struct net_loop *loop;
	int64_t valid_ms;      // steady clock: when its other end was there last, or was not asked
	int64_t pinged_ms;     // steady clock: of what was accepted, when it was asked for that last
	int64_t taken_down_ms; // steady clock: of what was accepted and is closing, when it has to be over; else 0
	uint8_t pong[RECEIVE_CONTROL_BYTES];
	size_t pong_bytes;
	bool pong_due;  // the last ping is not answered yet
	bool rx_broken; // what came was no WebSocket: the rest is read and dropped, so that our close frame arrives
	uint8_t *rest;  // what was read and waits for the next turn; NULL: nothing
	size_t rest_at, rest_bytes;
	int64_t turn_ends_ns, busy_until_ns; // steady clock
	bool in_line;                        // its next turn is the line's
	unsigned pauses;
	struct net_timer held_back; // while it is paused
	struct queued *queue;       // ring of (queue_capacity, a power of two)
	size_t queue_capacity, queue_first, queue_bytes;
	size_t bulk_bytes; // of queue_bytes, those in binary frames
	size_t first_sent; // of the first frame in the queue: it is being sent in fragments
	char *bearer;      // of one that dials
	struct net_dialling *dialling;
	struct net_dialled *dialled; // of one that dials by TLS; else NULL
	bool *gone;                  // set when this is destroyed, while net_dial is on the stack
	lws_retry_bo_t liveness;
	int64_t heard_ms; // steady clock: when anything came last
	int64_t ping_ns;  // steady clock: when a ping of ours went that is not answered; 0: none
	int64_t rtt_ns;   // of the last that was; 0: none
	// Of TLS: when the keys were new and how much had gone then.
	int64_t keys_ms;
	uint64_t keys_bytes;
	bool keys_due; // they are to be changed when nothing waits
};

// ws.c
bool net_conn_accept(struct net_arrival *arrival, void *user); // false: out of memory

// carrier.c
void net_carrier_want_write(struct net_conn *conn);  // net_conn_writable is called when its socket takes something
bool net_carrier_keeps(const struct net_conn *conn); // bytes that the socket did not take
// Send these behind those. Returns -1 if the socket is broken.
int net_carrier_send(struct net_conn *conn, uint8_t *bytes, size_t length);
void net_carrier_end(struct net_conn *conn);               // in a moment
void net_carrier_give(struct net_conn *conn, int seconds); // and then it ends
void net_carrier_valid(struct net_conn *conn);             // its other end is there, or is not asked

// Whether something waits to be sent before a frame may begin.
static inline bool net_blocked(const struct net_conn *conn)
{
	return net_carrier_keeps(conn) || (conn->records && net_records_left(conn->records));
}

// send.c
void net_queue_clear(struct net_conn *conn);
// Send from the queue what the socket takes, a few fragments at most. Returns -1 if the connection is broken.
int net_queue_send(struct net_conn *conn);
// A whole frame of control, only while nothing waits (net_blocked). Returns 1 if it is on its way, 0 if the socket
// is full, -1 if it is broken.
int net_send_control(struct net_conn *conn, enum net_opcode opcode, const uint8_t *payload, size_t length);

// read.c
bool net_read_enough(void *conn); // whether its turn is over
void net_read_begin(struct net_conn *conn);
int net_read_received(struct net_conn *conn, const uint8_t *bytes, size_t length); // what libwebsockets has received
void net_heard(struct net_conn *conn);                                             // any byte is a sign of life

// close.c
void net_on_control(void *arg, enum net_opcode opcode, const uint8_t *bytes, size_t length);
// Without its close frame, or after ours was answered: libwebsockets takes the connection down in a moment.
void net_drop(struct net_conn *conn);
void net_on_pong(struct net_conn *conn, const uint8_t *bytes, size_t length);
// Return what the callback is to return.
int net_send_pong(struct net_conn *conn);
int net_send_close(struct net_conn *conn);
int net_on_peer_close(struct net_conn *conn, const uint8_t *bytes, size_t length);

// keys.c
void net_mind_keys(struct net_conn *conn); // something was sent or came: is it time for new ones?
