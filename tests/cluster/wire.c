/* A wire that a test controls: Ethernet frames between network interfaces, late, lost, out of order, or not at all.
 *
 *     wire IFACE...           join these interfaces like a switch; settings come on standard input, a line each
 *     wire --plain IFACE...   have these (the ends inside the namespaces) send frames as they would be on a cable:
 *                             no checksum or segmentation left for hardware that is not there
 *
 * Settings name the way from one interface to another, by their places (0, 1, ...) or * for all:
 *     FROM TO delay_ms=50 jitter_ms=5 loss_percent=1 reorder_percent=2 bits_per_s=10000000
 *     FROM TO cut        FROM TO mend
 * A word that is left out stays as it was. Each line is answered "ok", or "error: why". What has been seen goes with
 * each answer of the line "count": frames taken, sent, lost on purpose, dropped because the queue was full.
 *
 * One thread, ppoll; frames wait in a heap by the time at which they are due. A way of bits_per_s holds each frame for
 * as long as it would take, and drops what comes when a quarter of a second waits. Random numbers come from a fixed
 * seed, so that a test meets the same fate again. Needs CAP_NET_RAW. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/ethtool.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PORTS = 16, FRAME_BYTES = 2048, WAITING = 65536, ADDRESSES = 256, FULL_NS = 250000000 };

struct way {
	double delay_ms, jitter_ms, loss_percent, reorder_percent, bits_per_s;
	bool cut;
	int64_t free_ns; // when the last frame has passed
	int64_t due_ns;  // when the last one arrives: jitter keeps the order
};

struct frame {
	int64_t due_ns;
	uint64_t serial;
	unsigned to, length;
	uint8_t bytes[FRAME_BYTES];
};

struct wire {
	unsigned port_count;
	int sockets[PORTS];
	struct way ways[PORTS][PORTS];
	struct frame *heap[WAITING]; // (waiting), the earliest first
	unsigned waiting;
	uint64_t serial, random;
	struct {
		uint8_t address[6];
		unsigned port;
	} known[ADDRESSES]; // who was heard where
	unsigned known_count;
	uint64_t taken, sent, lost, dropped;
};

static int64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ll + now.tv_nsec;
}

static double draw(struct wire *wire) // [0, 1)
{
	wire->random ^= wire->random << 13;
	wire->random ^= wire->random >> 7;
	wire->random ^= wire->random << 17;
	return (double)(wire->random >> 11) / 9007199254740992.0;
}

// ---- what waits ----

static bool before(const struct frame *a, const struct frame *b)
{
	return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->serial < b->serial;
}

static void heap_push(struct wire *wire, struct frame *frame)
{
	unsigned at = wire->waiting++;
	for (; at && before(frame, wire->heap[(at - 1) / 2]); at = (at - 1) / 2)
		wire->heap[at] = wire->heap[(at - 1) / 2];
	wire->heap[at] = frame;
}

static struct frame *heap_pop(struct wire *wire)
{
	struct frame *first = wire->heap[0], *last = wire->heap[--wire->waiting];
	unsigned at = 0;
	for (;;) {
		unsigned child = 2 * at + 1;
		if (child >= wire->waiting)
			break;
		if (child + 1 < wire->waiting && before(wire->heap[child + 1], wire->heap[child]))
			child++;
		if (!before(wire->heap[child], last))
			break;
		wire->heap[at] = wire->heap[child];
		at = child;
	}
	wire->heap[at] = last;
	return first;
}

// ---- frames ----

static void learn(struct wire *wire, const uint8_t *address, unsigned port)
{
	unsigned at = 0;
	while (at < wire->known_count && memcmp(wire->known[at].address, address, 6) != 0)
		at++;
	if (at == ADDRESSES || address[0] & 1)
		return;
	wire->known_count += at == wire->known_count;
	memcpy(wire->known[at].address, address, 6);
	wire->known[at].port = port;
}

// The port behind which this address was heard; -1: everybody gets it.
static int where(const struct wire *wire, const uint8_t *address)
{
	for (unsigned i = 0; i < wire->known_count; i++)
		if (!memcmp(wire->known[i].address, address, 6))
			return (int)wire->known[i].port;
	return -1;
}

static void carry(struct wire *wire, unsigned from, unsigned to, const uint8_t *bytes, unsigned length)
{
	struct way *way = &wire->ways[from][to];
	int64_t now = now_ns(), start = way->free_ns > now ? way->free_ns : now;
	if (way->cut || draw(wire) * 100 < way->loss_percent) {
		wire->lost++;
		return;
	}
	struct frame *frame = start - now > FULL_NS || wire->waiting == WAITING ? NULL : malloc(sizeof(*frame));
	if (!frame) {
		wire->dropped++;
		return;
	}
	way->free_ns = start + (way->bits_per_s > 0 ? (int64_t)(length * 8e9 / way->bits_per_s) : 0);
	int64_t due = way->free_ns + (int64_t)((way->delay_ms + draw(wire) * way->jitter_ms) * 1e6);
	if (draw(wire) * 100 < way->reorder_percent)
		due = way->free_ns; // it overtakes those that wait
	else if (due < way->due_ns)
		due = way->due_ns;
	else
		way->due_ns = due;
	*frame = (struct frame){.due_ns = due, .serial = wire->serial++, .to = to, .length = length};
	memcpy(frame->bytes, bytes, length);
	heap_push(wire, frame);
}

static void take(struct wire *wire, unsigned from)
{
	uint8_t bytes[FRAME_BYTES];
	for (int i = 0; i < 64; i++) {
		struct sockaddr_ll source;
		socklen_t size = sizeof(source);
		ssize_t got = recvfrom(wire->sockets[from], bytes, sizeof(bytes), MSG_DONTWAIT | MSG_TRUNC,
				       (struct sockaddr *)&source, &size);
		if (got < ETHER_HDR_LEN)
			return;
		if (source.sll_pkttype == PACKET_OUTGOING)
			continue; // what we have sent
		wire->taken++;
		if (got > FRAME_BYTES) { // --plain was not called there
			wire->dropped++;
			continue;
		}
		learn(wire, bytes + 6, from);
		int to = where(wire, bytes);
		for (unsigned port = 0; port < wire->port_count; port++)
			if (port != from && (to < 0 || (unsigned)to == port))
				carry(wire, from, port, bytes, (unsigned)got);
	}
}

static void send_due(struct wire *wire)
{
	while (wire->waiting && wire->heap[0]->due_ns <= now_ns()) {
		struct frame *frame = heap_pop(wire);
		if (send(wire->sockets[frame->to], frame->bytes, frame->length, MSG_DONTWAIT) < 0)
			wire->dropped++;
		else
			wire->sent++;
		free(frame);
	}
}

// ---- settings ----

static bool set(struct way *way, const char *word)
{
	static const struct {
		const char *name;
		size_t offset;
	} names[] = {{"delay_ms=", offsetof(struct way, delay_ms)},
		     {"jitter_ms=", offsetof(struct way, jitter_ms)},
		     {"loss_percent=", offsetof(struct way, loss_percent)},
		     {"reorder_percent=", offsetof(struct way, reorder_percent)},
		     {"bits_per_s=", offsetof(struct way, bits_per_s)}};
	if (!strcmp(word, "cut") || !strcmp(word, "mend")) {
		way->cut = word[0] == 'c';
		return true;
	}
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		size_t length = strlen(names[i].name);
		char *end;
		if (strncmp(word, names[i].name, length) != 0)
			continue;
		double value = strtod(word + length, &end);
		if (*end || end == word + length || !(value >= 0))
			return false;
		memcpy((char *)way + names[i].offset, &value, sizeof(value));
		return true;
	}
	return false;
}

static bool is_meant(const char *word, unsigned port)
{
	char *end;
	return !strcmp(word, "*") || (strtoul(word, &end, 10) == port && end != word && !*end);
}

static void obey(struct wire *wire, char *line)
{
	char *words[8], *rest = line;
	unsigned count = 0, ways = 0;
	for (char *word; count < 8 && (word = strsep(&rest, " \n"));)
		if (*word)
			words[count++] = word;
	if (count == 1 && !strcmp(words[0], "count")) {
		printf("ok taken=%llu sent=%llu lost=%llu dropped=%llu waiting=%u\n", (unsigned long long)wire->taken,
		       (unsigned long long)wire->sent, (unsigned long long)wire->lost,
		       (unsigned long long)wire->dropped, wire->waiting);
		return;
	}
	for (unsigned from = 0; count > 2 && from < wire->port_count; from++)
		for (unsigned to = 0; to < wire->port_count; to++) {
			if (from == to || !is_meant(words[0], from) || !is_meant(words[1], to))
				continue;
			ways++;
			for (unsigned i = 2; i < count; i++)
				if (!set(&wire->ways[from][to], words[i])) {
					printf("error: not understood: %s\n", words[i]);
					return;
				}
		}
	puts(ways ? "ok" : "error: no such way");
}

// ---- interfaces ----

static int open_port(const char *name)
{
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL));
	struct sockaddr_ll address = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL)};
	struct packet_mreq all = {.mr_type = PACKET_MR_PROMISC};
	address.sll_ifindex = all.mr_ifindex = (int)if_nametoindex(name);
	int room = 8 * 1024 * 1024;
	if (fd < 0 || !address.sll_ifindex || bind(fd, (struct sockaddr *)&address, sizeof(address)) ||
	    setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all, sizeof(all))) {
		fprintf(stderr, "wire: %s: %s\n", name, strerror(errno));
		exit(1);
	}
	setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room));
	return fd;
}

static void make_plain(const char *name)
{
	static const uint32_t left_to_hardware[] = {ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO, ETHTOOL_STXCSUM};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	for (size_t i = 0; i < sizeof(left_to_hardware) / sizeof(*left_to_hardware); i++) {
		struct ethtool_value off = {.cmd = left_to_hardware[i]};
		struct ifreq request = {.ifr_data = (char *)&off};
		snprintf(request.ifr_name, sizeof(request.ifr_name), "%.15s", name);
		if (ioctl(fd, SIOCETHTOOL, &request) && errno != EOPNOTSUPP) {
			fprintf(stderr, "wire: %s: %s\n", name, strerror(errno));
			exit(1);
		}
	}
	close(fd);
}

static void run(struct wire *wire)
{
	struct pollfd polled[PORTS + 1];
	for (unsigned i = 0; i < wire->port_count; i++)
		polled[i] = (struct pollfd){.fd = wire->sockets[i], .events = POLLIN};
	polled[wire->port_count] = (struct pollfd){.fd = STDIN_FILENO, .events = POLLIN};
	puts("ready");
	for (char line[256]; polled[wire->port_count].fd >= 0;) {
		int64_t left = wire->waiting ? wire->heap[0]->due_ns - now_ns() : 0;
		struct timespec wait = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
		if (left < 0)
			wait = (struct timespec){0};
		if (ppoll(polled, wire->port_count + 1, wire->waiting ? &wait : NULL, NULL) < 0 && errno != EINTR)
			return;
		for (unsigned i = 0; i < wire->port_count; i++)
			if (polled[i].revents)
				take(wire, i);
		send_due(wire);
		if (!polled[wire->port_count].revents)
			continue;
		if (!fgets(line, sizeof(line), stdin))
			return; // whoever controls it is gone
		obey(wire, line);
	}
}

int main(int argc, char **argv)
{
	static struct wire wire = {.random = 88172645463325252u};
	setvbuf(stdout, NULL, _IOLBF, 0);
	setvbuf(stdin, NULL, _IONBF, 0); // poll sees what has not been read
	if (argc > 2 && !strcmp(argv[1], "--plain")) {
		for (int i = 2; i < argc; i++)
			make_plain(argv[i]);
		return 0;
	}
	if (argc < 3 || argc > PORTS + 1) {
		fprintf(stderr, "usage: wire IFACE IFACE...  |  wire --plain IFACE...\n");
		return 2;
	}
	for (int i = 1; i < argc; i++)
		wire.sockets[wire.port_count++] = open_port(argv[i]);
	run(&wire);
	return 0;
}
