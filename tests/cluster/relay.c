/* A wire between nodes of one machine, where there are no network namespaces for wire.c: connections that detour.c
 * brings here are passed on, late, and no faster than is said.
 *
 *     relay FOLDER      writes FOLDER/port and prints "ready"
 *
 * A line on standard input sets both directions of all connections, and is answered "ok":
 *     delay_ms=5 bits_per_s=10000000000
 * 0 bits_per_s: as fast as it goes. TCP ends here, on both sides: what is lost and sent again on a real wire is not
 * seen.
 *
 * A thread reads, a thread sends for each direction; QUEUE_BYTES of each wait at most. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PIECE_BYTES = 65536, QUEUE_BYTES = 4 << 20 };

static _Atomic double delay_ns, bits_per_s;

struct piece {
	struct piece *next;
	int64_t due_ns;
	size_t length; // 0: the end
	char bytes[];
};

struct way {
	int from, to;
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	struct piece *first, *last;
	size_t waiting;
	bool broken;
	int64_t free_ns; // when the last piece has passed
};

static int64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

// Sleep for most of the time, and look at the clock for the last 100 us: a sleep alone is late.
static void wait_until(int64_t due_ns)
{
	const int64_t wake_ns = due_ns - 100000;
	const struct timespec wake = {.tv_sec = wake_ns / 1000000000, .tv_nsec = wake_ns % 1000000000};
	if (now_ns() < wake_ns)
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &wake, NULL);
	while (now_ns() < due_ns)
		;
}

static void put(struct way *way, struct piece *piece)
{
	pthread_mutex_lock(&way->mutex);
	while (way->waiting > QUEUE_BYTES && !way->broken)
		pthread_cond_wait(&way->changed, &way->mutex);
	const int64_t now = now_ns();
	const double rate = bits_per_s;
	way->free_ns = way->free_ns > now ? way->free_ns : now;
	way->free_ns += rate > 0 ? (int64_t)((double)piece->length * 8e9 / rate) : 0;
	piece->due_ns = way->free_ns + (int64_t)delay_ns;
	if (way->last)
		way->last->next = piece;
	else
		way->first = piece;
	way->last = piece;
	way->waiting += piece->length;
	pthread_cond_broadcast(&way->changed);
	pthread_mutex_unlock(&way->mutex);
}

static void *read_all(void *context)
{
	struct way *way = context;
	for (;;) {
		struct piece *piece = malloc(sizeof(*piece) + PIECE_BYTES);
		const ssize_t got = recv(way->from, piece->bytes, PIECE_BYTES, 0);
		piece->next = NULL;
		piece->length = got > 0 ? (size_t)got : 0;
		put(way, piece);
		if (got <= 0)
			return NULL;
	}
}

static void *send_all(void *context)
{
	struct way *way = context;
	for (bool more = true; more;) {
		pthread_mutex_lock(&way->mutex);
		while (!way->first)
			pthread_cond_wait(&way->changed, &way->mutex);
		struct piece *piece = way->first;
		way->first = piece->next;
		if (!way->first)
			way->last = NULL;
		way->waiting -= piece->length;
		pthread_cond_broadcast(&way->changed);
		pthread_mutex_unlock(&way->mutex);
		wait_until(piece->due_ns);
		more = piece->length;
		for (size_t sent = 0; more && sent < piece->length;) {
			const ssize_t took = send(way->to, piece->bytes + sent, piece->length - sent, MSG_NOSIGNAL);
			more = took > 0;
			sent += more ? (size_t)took : 0;
		}
		free(piece);
	}
	pthread_mutex_lock(&way->mutex);
	way->broken = true;
	pthread_cond_broadcast(&way->changed);
	pthread_mutex_unlock(&way->mutex);
	shutdown(way->to, SHUT_WR);
	return NULL; // the sockets and the way stay: there are few
}

static void start_way(int from, int to)
{
	struct way *way = calloc(1, sizeof(*way));
	const int on = 1;
	pthread_t thread;
	way->from = from;
	way->to = to;
	pthread_mutex_init(&way->mutex, NULL);
	pthread_cond_init(&way->changed, NULL);
	setsockopt(to, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	if (pthread_create(&thread, NULL, read_all, way) || pthread_create(&thread, NULL, send_all, way))
		exit(1);
}

static void pass_on(int near, int port, const char *folder)
{
	char path[4096], address[64] = "";
	int wanted = 0;
	snprintf(path, sizeof path, "%s/%d", folder, port);
	FILE *file = fopen(path, "r");
	struct sockaddr_in to = {.sin_family = AF_INET};
	const int far = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	const bool known = file && fscanf(file, "%63s %d", address, &wanted) == 2;
	if (file)
		fclose(file);
	to.sin_port = htons((uint16_t)wanted);
	if (!known || inet_pton(AF_INET, address, &to.sin_addr) != 1 || connect(far, (void *)&to, sizeof to)) {
		close(far);
		close(near);
		return;
	}
	start_way(near, far);
	start_way(far, near);
}

struct listening {
	int fd;
	const char *folder;
};

static void *accept_all(void *context)
{
	const struct listening *listening = context;
	for (;;) {
		struct sockaddr_in from;
		socklen_t size = sizeof from;
		const int near = accept4(listening->fd, (void *)&from, &size, SOCK_CLOEXEC);
		if (near >= 0)
			pass_on(near, ntohs(from.sin_port), listening->folder);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	struct listening listening = {.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), .folder = argv[1]};
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof at;
	pthread_t thread;
	char path[4096], line[256];
	if (argc != 2 || bind(listening.fd, (void *)&at, sizeof at) || listen(listening.fd, 64) ||
	    getsockname(listening.fd, (void *)&at, &size))
		return 1;
	snprintf(path, sizeof path, "%s/port", argv[1]);
	FILE *file = fopen(path, "w");
	if (!file || fprintf(file, "%d\n", ntohs(at.sin_port)) < 0 || fclose(file) ||
	    pthread_create(&thread, NULL, accept_all, &listening))
		return 1;
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		double delay_ms = 0, rate = 0;
		if (sscanf(line, "delay_ms=%lf bits_per_s=%lf", &delay_ms, &rate) == 2) {
			delay_ns = delay_ms * 1e6;
			bits_per_s = rate;
			puts("ok");
		} else
			puts("error: it is delay_ms=N bits_per_s=N");
		fflush(stdout);
	}
	return 0;
}
