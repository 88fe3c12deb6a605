/* See loop.h. libwebsockets polls its own sockets. Everything else is in one epoll instance, which is itself a file in
 * that poll. So adding and removing a watch does not touch libwebsockets, and a watch may be destroyed in its own
 * callback. There are few timers, in a sorted list behind one timer of the kernel, which is watched like any other
 * file: libwebsockets would wait for whole milliseconds only, and poll without a pause for the rest. Watches with more
 * work than fits a turn (net_watch_again) wait in queues; between two polls, one watch of each queue is served, so
 * nobody waits for more than one of each. Results of other threads wait in a list under a lock. lws_cancel_service
 * wakes the loop; it is the only call that libwebsockets allows from other threads. Thread: the loop's, except
 * net_loop_post and net_loop_stop. */
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/net/frame.h"
#include "common/net/http/arrival.h"
#include "common/net/loop_lws.h"
#include "common/net/tls/tls_lws.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <unistd.h>

struct post {
	struct post *next;
	void (*fn)(void *arg);
	void *arg;
};

struct net_watch {
	struct net_loop *loop;
	struct net_watch *next_dead;
	const struct net_watch_events *events;
	void *arg;
	int fd;                              // -1 once destroyed
	bool want_read, want_write, watched; // watched: stands in the epoll
	bool again;                          // stands in `line`, and is not asked about reading meanwhile
	struct line *line;
	struct net_watch *next_again, **link_again;
};

struct line {
	struct net_watch *first, **last;
};

struct net_loop {
	struct lws_context *context;
	struct lws_vhost *base;
	int epoll;
	atomic_bool stop;
	struct net_watch *tick;   // the kernel's timer, due when the first of `timers` is
	struct net_timer *timers; // sorted by due_ms
	struct net_watch *dead;   // destroyed while events were handed out; freed after
	bool dispatching;
	struct line lines[NET_LINES];
	lws_sorted_usec_list_t turn; // due at once while somebody stands in one
	pthread_mutex_t lock;
	struct post *first_post, **last_post; // under lock
	size_t posts;                         // under lock
	struct net_conn *conns;               // those that are open or opening
	struct net_arrival *arrivals;         // those that were accepted
	void **kept;                          // (kept_count), freed after the context
	size_t kept_count;
	struct net_dialler *dialler; // NULL until one dialled by TLS
};

static void free_dead(struct net_loop *loop)
{
	while (loop->dead) {
		struct net_watch *watch = loop->dead;
		loop->dead = watch->next_dead;
		free(watch);
	}
}

// Removes a watch that waits for nothing, unless a hang-up ends it: epoll would report that again and again.
static void arm(struct net_watch *watch)
{
	bool read = watch->want_read && !watch->again,
	     wanted = read || watch->want_write || (watch->events->hung_up && !watch->again);
	struct epoll_event event = {.events = (read ? (uint32_t)EPOLLIN : 0u) |
					      (watch->want_write ? (uint32_t)EPOLLOUT : 0u),
				    .data.ptr = watch};
	if (!wanted && !watch->watched)
		return;
	int operation = !wanted ? EPOLL_CTL_DEL : watch->watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
	watch->watched = wanted;
	if (epoll_ctl(watch->loop->epoll, operation, watch->fd, &event) < 0)
		log_error("net", "epoll_ctl: %s", strerror(errno));
}

static void dispatch_watches(struct net_loop *loop)
{
	struct epoll_event events[32];
	int count = epoll_wait(loop->epoll, events, 32, 0);
	const uint32_t ended = EPOLLHUP | EPOLLERR;
	loop->dispatching = true;
	for (int i = 0; i < count; i++) {
		struct net_watch *watch = events[i].data.ptr;
		if (watch->fd >= 0 && (events[i].events & (EPOLLOUT | ended)) && watch->want_write) {
			watch->want_write = false;
			arm(watch);
			if (watch->events->writable)
				watch->events->writable(watch->arg, watch->fd);
		}
		if (watch->fd >= 0 && (events[i].events & (EPOLLIN | ended)) && watch->want_read && !watch->again)
			watch->events->readable(watch->arg, watch->fd);
		else if (watch->fd >= 0 && (events[i].events & ended) && !watch->want_read && !watch->want_write &&
			 watch->events->hung_up)
			watch->events->hung_up(watch->arg, watch->fd);
	}
	loop->dispatching = false;
	free_dead(loop);
}

static void leave_line(struct net_watch *watch)
{
	*watch->link_again = watch->next_again;
	if (watch->next_again)
		watch->next_again->link_again = watch->link_again;
	else
		watch->line->last = watch->link_again;
	watch->again = false;
}

static bool anybody_waits(const struct net_loop *loop)
{
	for (int i = 0; i < NET_LINES; i++)
		if (loop->lines[i].first)
			return true;
	return false;
}

static void serve_first(struct net_loop *loop, const struct line *line)
{
	struct net_watch *watch = line->first;
	if (!watch)
		return;
	leave_line(watch);
	loop->dispatching = true;
	if (watch->want_read)
		watch->events->readable(watch->arg, watch->fd);
	if (watch->fd >= 0 && !watch->again)
		arm(watch);
	loop->dispatching = false;
	free_dead(loop);
}

static void on_turn(lws_sorted_usec_list_t *turn)
{
	struct net_loop *loop = lws_container_of(turn, struct net_loop, turn);
	for (int i = 0; i < NET_LINES; i++)
		serve_first(loop, &loop->lines[i]);
	if (anybody_waits(loop))
		lws_sul_schedule(loop->context, 0, turn, on_turn, 1);
}

void net_watch_again(struct net_watch *watch, enum net_line line)
{
	struct net_loop *loop = watch->loop;
	if (watch->again || watch->fd < 0)
		return;
	if (!anybody_waits(loop))
		lws_sul_schedule(loop->context, 0, &loop->turn, on_turn, 1); // after a poll
	watch->again = true;
	watch->line = &loop->lines[line];
	watch->next_again = NULL;
	watch->link_again = watch->line->last;
	*watch->line->last = watch;
	watch->line->last = &watch->next_again;
	arm(watch);
}

void net_watch_swap(struct net_watch *watch, struct net_watch *other)
{
	if (watch->again || watch->fd < 0 || !other->again)
		return;
	watch->again = true;
	watch->line = other->line;
	watch->next_again = other->next_again;
	watch->link_again = other->link_again;
	*watch->link_again = watch;
	if (watch->next_again)
		watch->next_again->link_again = &watch->next_again;
	else
		watch->line->last = &watch->next_again;
	other->again = false;
	arm(watch);
	arm(other);
}

void net_loop_run_posts(struct net_loop *loop)
{
	pthread_mutex_lock(&loop->lock);
	struct post *post = loop->first_post;
	loop->first_post = NULL;
	loop->last_post = &loop->first_post;
	loop->posts = 0;
	pthread_mutex_unlock(&loop->lock);
	while (post) {
		struct post *next = post->next;
		post->fn(post->arg);
		free(post);
		post = next;
	}
}

static int base_callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in, size_t length)
{
	(void)user, (void)in, (void)length;
	struct net_loop *loop = lws_context_user(lws_get_context(wsi));
	if (reason == LWS_CALLBACK_EVENT_WAIT_CANCELLED) {
		if (loop->base && lws_get_vhost(wsi) == loop->base)
			net_loop_run_posts(loop);
	} else if (reason == LWS_CALLBACK_RAW_RX_FILE) {
		dispatch_watches(loop);
	}
	return 0;
}

static const struct lws_protocols base_protocols[] = {
	{.name = "loop", .callback = base_callback},
	{.name = "client", .callback = net_ws_callback, .rx_buffer_size = 65536},
	{0},
};

static void library_log(int level, const char *line)
{
	size_t length = strlen(line);
	while (length && (line[length - 1] == '\n' || line[length - 1] == ' '))
		length--;
	log_write(level & LLL_ERR ? LOG_WARNING : LOG_DEBUG, "net", "%.*s", (int)length, line);
}

// How many sockets and what else may be open at once: as many as we take, where the system lets this process have them.
// The process's own limit is set to that, also where it was higher: libwebsockets then finds a connection by the number
// of its file in a table of that size. With less than the limit it would search the table from its beginning, several
// times for each event and each end: 60 us of every connection that came and went.
static unsigned file_limit(void)
{
	struct rlimit limit;
	const rlim_t wanted = 2 * LIMIT_CONNECTIONS + 512; // one that dialled and is read by read.c has two files
	if (getrlimit(RLIMIT_NOFILE, &limit))
		return 1024;
	limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
	setrlimit(RLIMIT_NOFILE, &limit);
	return (unsigned)limit.rlim_cur;
}

static enum status adopt_epoll(struct net_loop *loop, struct error *error)
{
	loop->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (loop->epoll < 0)
		return error_errno(error, STATUS_UNAVAILABLE, errno, "epoll_create1");
	lws_sock_file_fd_type file = {.filefd = loop->epoll};
	if (!lws_adopt_descriptor_vhost(loop->base, LWS_ADOPT_RAW_FILE_DESC, file, "loop", NULL))
		return error_set(error, STATUS_INTERNAL, "the loop cannot watch files");
	return STATUS_OK;
}

// Arms the kernel's timer for the first of ours, or disarms it; either way it is not readable until it is due again.
static void schedule_tick(struct net_loop *loop)
{
	if (!loop->tick)
		return; // the loop is being destroyed
	struct itimerspec at = {0};
	if (loop->timers) {
		const int64_t day_ms = 86400000, now_ns = clock_steady_ns(), due_ms = loop->timers->due_ms;
		int64_t delay_ns = due_ms - now_ns / 1000000 > day_ms ? day_ms * 1000000 : due_ms * 1000000 - now_ns;
		if (delay_ns < 1)
			delay_ns = 1; // 0 would disarm it
		at.it_value = (struct timespec){.tv_sec = delay_ns / 1000000000, .tv_nsec = delay_ns % 1000000000};
	}
	if (timerfd_settime(net_watch_fd(loop->tick), 0, &at, NULL) < 0)
		log_error("net", "timerfd_settime: %s", strerror(errno));
}

static void on_tick(void *arg, int fd)
{
	(void)fd;
	struct net_loop *loop = arg;
	while (loop->timers && loop->timers->due_ms <= clock_steady_ms()) {
		struct net_timer *timer = loop->timers;
		loop->timers = timer->next;
		timer->running = false;
		timer->fn(timer->arg); // may start, stop and free timers, this one too
	}
	schedule_tick(loop);
}

static enum status create_tick(struct net_loop *loop, struct error *error)
{
	static const struct net_watch_events events = {.readable = on_tick};
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (fd < 0)
		return error_errno(error, STATUS_UNAVAILABLE, errno, "timerfd_create");
	enum status status = net_watch_create(&loop->tick, loop, fd, &events, loop, error);
	if (status)
		close(fd);
	return status;
}

enum status net_loop_create(struct net_loop **out, struct error *error)
{
	enum status status = STATUS_OK;
	*out = NULL;
	struct net_loop *loop = calloc(1, sizeof(*loop));
	if (!loop)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	loop->epoll = -1;
	loop->last_post = &loop->first_post;
	for (int i = 0; i < NET_LINES; i++)
		loop->lines[i].last = &loop->lines[i].first;
	pthread_mutex_init(&loop->lock, NULL);
	lws_set_log_level(LLL_ERR | LLL_WARN, library_log);
	struct lws_context_creation_info info = {
		.port = CONTEXT_PORT_NO_LISTEN,
		.options = LWS_SERVER_OPTION_EXPLICIT_VHOSTS | LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT,
		.user = loop,
		.fd_limit_per_thread = file_limit(),
		.pt_serv_buf_size = 65536,
		.max_http_header_data = LIMIT_HTTP_HEADERS_BYTES,
		.timeout_secs = HANDSHAKE_S,
	};
	loop->context = lws_create_context(&info);
	if (!loop->context) {
		status = error_set(error, STATUS_UNAVAILABLE, "libwebsockets does not start");
		goto done;
	}
	struct lws_context_creation_info base = {
		.port = CONTEXT_PORT_NO_LISTEN, // not _SERVER, or requests would be taken for this vhost's
		.vhost_name = "base",
		.http_proxy_address = NET_NO_PROXY,
		.protocols = base_protocols,
	};
	loop->base = lws_create_vhost(loop->context, &base);
	status = loop->base ? adopt_epoll(loop, error)
			    : error_set(error, STATUS_UNAVAILABLE, "libwebsockets does not start");
	if (!status)
		status = create_tick(loop, error);
done:
	if (status)
		net_loop_destroy(&loop);
	*out = loop;
	return status;
}

void net_loop_destroy(struct net_loop **pointer)
{
	struct net_loop *loop = *pointer;
	if (!loop)
		return;
	*pointer = NULL;
	net_arrivals_destroy(loop);
	if (loop->tick)
		net_watch_destroy(&loop->tick);
	if (loop->context)
		lws_context_destroy(loop->context); // closes the epoll too
	while (loop->first_post) {
		struct post *post = loop->first_post;
		loop->first_post = post->next;
		free(post);
	}
	net_forget_all(loop);
	net_dialler_destroy(&loop->dialler);
	free_dead(loop);
	net_frame_forget();
	for (size_t i = 0; i < loop->kept_count; i++)
		free(loop->kept[i]);
	free(loop->kept);
	pthread_mutex_destroy(&loop->lock);
	free(loop);
}

void net_loop_run(struct net_loop *loop)
{
	while (!atomic_load(&loop->stop) && lws_service(loop->context, 0) >= 0)
		;
	atomic_store(&loop->stop, false); // used up: the loop may run again
}

void net_loop_stop(struct net_loop *loop)
{
	atomic_store(&loop->stop, true);
	lws_cancel_service(loop->context);
}

enum status net_loop_post(struct net_loop *loop, void (*fn)(void *arg), void *arg)
{
	struct post *post = malloc(sizeof(*post));
	if (!post)
		return STATUS_OUT_OF_MEMORY;
	*post = (struct post){.fn = fn, .arg = arg};
	pthread_mutex_lock(&loop->lock);
	bool full = loop->posts >= LIMIT_LOOP_QUEUE;
	if (!full) {
		loop->posts++;
		*loop->last_post = post;
		loop->last_post = &post->next;
	}
	pthread_mutex_unlock(&loop->lock);
	if (full) {
		free(post);
		return STATUS_LIMIT_EXCEEDED;
	}
	lws_cancel_service(loop->context);
	return STATUS_OK;
}

static void unlink_timer(struct net_loop *loop, struct net_timer *timer)
{
	for (struct net_timer **at = &loop->timers; *at; at = &(*at)->next)
		if (*at == timer) {
			*at = timer->next;
			break;
		}
	timer->running = false;
}

void net_timer_start(struct net_loop *loop, struct net_timer *timer, int64_t delay_ms, void (*fn)(void *arg), void *arg)
{
	if (timer->running)
		unlink_timer(loop, timer);
	*timer = (struct net_timer){.due_ms = clock_steady_ms() + delay_ms, .fn = fn, .arg = arg, .running = true};
	struct net_timer **at = &loop->timers;
	while (*at && (*at)->due_ms <= timer->due_ms)
		at = &(*at)->next;
	timer->next = *at;
	*at = timer;
	if (loop->timers == timer)
		schedule_tick(loop);
}

void net_timer_stop(struct net_loop *loop, struct net_timer *timer)
{
	if (timer->running)
		unlink_timer(loop, timer);
}

enum status net_watch_create(struct net_watch **out, struct net_loop *loop, int fd,
			     const struct net_watch_events *events, void *arg, struct error *error)
{
	*out = NULL;
	struct net_watch *watch = malloc(sizeof(*watch));
	if (!watch)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	*watch = (struct net_watch){
		.loop = loop, .events = events, .arg = arg, .fd = fd, .want_read = true, .watched = true};
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = watch};
	int flags = fcntl(fd, F_GETFL);
	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
	    epoll_ctl(loop->epoll, EPOLL_CTL_ADD, fd, &event) < 0) {
		enum status status = error_errno(error, STATUS_UNAVAILABLE, errno, "a file cannot be watched");
		free(watch);
		return status;
	}
	*out = watch;
	return STATUS_OK;
}

void net_watch_want_write(struct net_watch *watch)
{
	if (!watch->want_write) {
		watch->want_write = true;
		arm(watch);
	}
}

void net_watch_want_read(struct net_watch *watch, bool wanted)
{
	if (watch->want_read != wanted) {
		watch->want_read = wanted;
		arm(watch);
	}
}

int net_watch_fd(const struct net_watch *watch)
{
	return watch->fd;
}

int net_watch_release(struct net_watch **pointer)
{
	struct net_watch *watch = *pointer;
	*pointer = NULL;
	const int fd = watch->fd;
	struct net_loop *loop = watch->loop;
	if (watch->again)
		leave_line(watch);
	if (watch->watched)
		epoll_ctl(loop->epoll, EPOLL_CTL_DEL, fd, NULL);
	watch->fd = -1;
	watch->next_dead = loop->dead;
	loop->dead = watch;
	if (!loop->dispatching)
		free_dead(loop);
	return fd;
}

void net_watch_destroy(struct net_watch **pointer)
{
	if (*pointer)
		close(net_watch_release(pointer));
}

struct lws_context *net_loop_context(struct net_loop *loop)
{
	return loop->context;
}

struct lws_vhost *net_loop_base_vhost(struct net_loop *loop)
{
	return loop->base;
}

struct net_loop *net_loop_of(struct lws *wsi)
{
	return lws_context_user(lws_get_context(wsi));
}

void net_loop_keep(struct net_loop *loop, void *memory)
{
	void **kept = realloc(loop->kept, (loop->kept_count + 1) * sizeof(*kept));
	if (kept) {
		loop->kept = kept;
		kept[loop->kept_count++] = memory;
	}
}

struct net_dialler **net_loop_dialler(struct net_loop *loop)
{
	return &loop->dialler;
}

struct net_arrival **net_loop_arrivals(struct net_loop *loop)
{
	return &loop->arrivals;
}

struct net_conn **net_loop_conns(struct net_loop *loop)
{
	return &loop->conns;
}
