/* The event loop: one thread that sleeps until a socket, a timer or another thread has work. Server
 * and node both use it. It is libwebsockets' loop with its built-in poll; nothing outside
 * common/net sees that library. Call everything here on the loop's own thread, except net_loop_post
 * and net_loop_stop. Nothing that runs on the loop may block: no fsync, no DNS, no long
 * computation. */
#pragma once
#include "common/base/status.h"

#include <stdint.h>

struct net_loop;

enum status net_loop_create(struct net_loop **out, struct error *error);
// Closes what is still open. Not from inside a callback.
void net_loop_destroy(struct net_loop **loop);
// Run until net_loop_stop. The calling thread is the loop thread from here on.
void net_loop_run(struct net_loop *loop);
// Any thread, and signal handlers' threads.
void net_loop_stop(struct net_loop *loop);
// Run fn(arg) soon on the loop thread, in the order of posting. Any thread.
// Errors: STATUS_LIMIT_EXCEEDED (LIMIT_LOOP_QUEUE waiting; fn will not run), STATUS_OUT_OF_MEMORY.
enum status net_loop_post(struct net_loop *loop, void (*fn)(void *arg), void *arg);
// Run what was posted until now, at once. For the end of the program, so that nothing that was handed over is lost.
void net_loop_run_posts(struct net_loop *loop);

// A timer is embedded in its owner and zero before first use. Starting a running one moves it.
struct net_timer {
	struct net_timer *next;
	int64_t due_ms;
	void (*fn)(void *arg);
	void *arg;
	bool running;
};
void net_timer_start(struct net_loop *loop, struct net_timer *timer, int64_t delay_ms, void (*fn)(void *arg),
		     void *arg);
void net_timer_stop(struct net_loop *loop, struct net_timer *timer);

// Watch a file descriptor of any pollable kind. `ready` is called when it can be read or has hung up (read returns 0 or
// an error then); with net_watch_want_write also when it can be written. Level triggered.
struct net_watch;
struct net_watch_events {
	void (*readable)(void *arg, int fd);
	void (*writable)(void *arg, int fd); // may be NULL
	// May be NULL. Both ends are closed, or it is broken, while neither is asked for.
	void (*hung_up)(void *arg, int fd);
};
// Takes the descriptor: net_watch_destroy closes it. `events` must outlive the watch.
enum status net_watch_create(struct net_watch **out, struct net_loop *loop, int fd,
			     const struct net_watch_events *events, void *arg, struct error *error);
void net_watch_want_write(struct net_watch *watch); // once; ask again after each `writable`
// Stop and go on asking for `readable`. Meanwhile a hang-up is told by `hung_up` alone.
void net_watch_want_read(struct net_watch *watch, bool wanted);
// Call `readable` once more after others had their turn, be there something new to read or not: for one that stops
// before it is done. Whoever stands in a line is served one by one, the first of each line in turn, and those who stand
// in none before them.
// The queues: watches with more work; new connections; TLS handshakes in progress.
enum net_line { NET_LINE_BUSY, NET_LINE_NEW, NET_LINE_HANDSHAKE, NET_LINES };
void net_watch_again(struct net_watch *watch, enum net_line line);
// Stand in the place of `other`, which stands in a line and leaves it.
void net_watch_swap(struct net_watch *watch, struct net_watch *other);
// Safe inside its own callback, both. The first gives the descriptor back, open.
int net_watch_release(struct net_watch **watch);
int net_watch_fd(const struct net_watch *watch);
void net_watch_destroy(struct net_watch **watch);
