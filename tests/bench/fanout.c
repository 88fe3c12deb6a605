/* Fan-out: what it costs a server to deliver one message to many WebSocket subscribers, and how late they get it.
 *
 *   fanout exogpu SOCKET PORT TOKEN PID   exogpu: subscribers of `telemetry`; the publisher is a node on the Unix
 * socket fanout nchan  PORT PID                nginx with nchan: subscribers of /sub/t, publisher POSTs to /pub/t
 *   fanout raw                            no server at all: a child that only calls send() for each subscriber
 *     -n subscribers (1000)  -r messages a second (100)  -d seconds (5)  -s bytes (2048)
 *
 * One thread holds all subscribers and the publisher. The publisher writes the steady clock into each message as
 * "@T<16 hex digits>@"; a delivery is counted when a subscriber has read that, so framing does not matter, and its
 * latency is the time between the two. Prints one JSON object: server CPU in microseconds a delivery (user + system of
 * the server's process, from /proc), latency percentiles in ms, resident memory in KiB, share delivered. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TEXT_BYTES = 4096, MARK_BYTES = 19, READ_BYTES = 65536, WARM_MS = 1000, STRAGGLER_MS = 500 };

static int subscribers = 1000, rate = 100, seconds = 5, size = 2048;
static struct subscriber {
	int fd;
	char carry[MARK_BYTES]; // the end of the last read, where a mark may have begun
	size_t carried;
} * list;
static float *latencies;
static size_t latency_count, latency_capacity, delivered;
static int64_t count_from_ns;

static int64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void die(const char *what)
{
	fprintf(stderr, "fanout: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int dial_tcp(int port)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
		die("connect");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	return fd;
}

static int dial_unix(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
		die(path);
	return fd;
}

static void send_all(int fd, const void *bytes, size_t length)
{
	for (const char *at = bytes; length;) {
		ssize_t sent = send(fd, at, length, MSG_NOSIGNAL);
		if (sent < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (sent < 0)
			die("send");
		at += sent;
		length -= (size_t)sent;
	}
}

// A masked text frame; the mask 0 leaves the bytes as they are.
static void send_frame(int fd, const char *text)
{
	size_t length = strlen(text), head = length < 126 ? 6 : length < 65536 ? 8 : 14;
	unsigned char *frame = calloc(1, head + length);
	frame[0] = 0x81;
	if (length < 126) {
		frame[1] = (unsigned char)(0x80 | length);
	} else {
		frame[1] = 0x80 | 126;
		frame[2] = (unsigned char)(length >> 8);
		frame[3] = (unsigned char)length;
	}
	memcpy(frame + head, text, length);
	send_all(fd, frame, head + length);
	free(frame);
}

// Read until `wanted` was seen.
static void expect(int fd, const char *wanted)
{
	char seen[READ_BYTES * 4];
	size_t length = 0;
	while (length < sizeof seen - 1) {
		ssize_t got = recv(fd, seen + length, sizeof seen - 1 - length, 0);
		if (got <= 0)
			die("the server hung up");
		length += (size_t)got;
		seen[length] = 0;
		if (memmem(seen, length, wanted, strlen(wanted)))
			return;
	}
	die("the server did not say what was expected");
}

static void upgrade(int fd, const char *path, const char *host, const char *more)
{
	char request[1024];
	int length = snprintf(request, sizeof request,
			      "GET %s HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
			      "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n%s\r\n",
			      path, host, more);
	send_all(fd, request, (size_t)length);
	expect(fd, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
}

// CPU seconds that a process has used, all its threads together.
static double cpu_seconds(int pid)
{
	char path[64], line[512];
	unsigned long user = 0, system = 0;
	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	FILE *file = fopen(path, "r");
	size_t length = file ? fread(line, 1, sizeof line - 1, file) : 0;
	if (file)
		fclose(file);
	line[length] = 0;
	char *after = strrchr(line, ')');
	if (after)
		sscanf(after + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system);
	return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

static long resident_kib(int pid)
{
	char path[64];
	long total, resident = 0;
	snprintf(path, sizeof path, "/proc/%d/statm", pid);
	FILE *file = fopen(path, "r");
	if (file && fscanf(file, "%ld %ld", &total, &resident) != 2)
		resident = 0;
	if (file)
		fclose(file);
	return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static void count_mark(const char *mark, int64_t now)
{
	int64_t sent = 0;
	if (mark[1] != 'T' || mark[MARK_BYTES - 1] != '@')
		return;
	for (int i = 2; i < MARK_BYTES - 1; i++)
		sent = sent << 4 | (mark[i] <= '9' ? mark[i] - '0' : mark[i] - 'a' + 10);
	if (!count_from_ns || sent < count_from_ns)
		return;
	delivered++;
	if (latency_count < latency_capacity)
		latencies[latency_count++] = (float)(now - sent) / 1e6f;
}

static void read_subscriber(struct subscriber *subscriber)
{
	static char bytes[MARK_BYTES + READ_BYTES];
	memcpy(bytes, subscriber->carry, subscriber->carried);
	ssize_t got = recv(subscriber->fd, bytes + subscriber->carried, READ_BYTES, MSG_DONTWAIT);
	if (got == 0)
		die("a subscriber was disconnected");
	if (got < 0)
		return;
	int64_t now = now_ns();
	const char *at = bytes, *end = bytes + subscriber->carried + got;
	while ((at = memchr(at, '@', (size_t)(end - at))) && end - at >= MARK_BYTES) {
		if (at[1] == 'T') {
			count_mark(at, now);
			at += MARK_BYTES;
		} else {
			at++;
		}
	}
	subscriber->carried = at ? (size_t)(end - at) : 0;
	memcpy(subscriber->carry, at ? at : end, subscriber->carried);
}

// ---- publishers ----

struct publisher {
	void (*publish)(struct publisher *publisher);
	int fd;
	char *text; // (size + TEXT_BYTES)
};

static void put_mark(char *at)
{
	char mark[MARK_BYTES + 1];
	snprintf(mark, sizeof mark, "@T%016llx@", (unsigned long long)now_ns());
	memcpy(at, mark, MARK_BYTES);
}

static void publish_nchan(struct publisher *publisher)
{
	int head = snprintf(publisher->text, TEXT_BYTES,
			    "POST /pub/t HTTP/1.1\r\nHost: l\r\nContent-Length: %d\r\n\r\n", size);
	memset(publisher->text + head, 'x', (size_t)size);
	put_mark(publisher->text + head + size - MARK_BYTES);
	send_all(publisher->fd, publisher->text, (size_t)(head + size));
}

static void publish_raw(struct publisher *publisher)
{
	char mark[MARK_BYTES];
	put_mark(mark);
	send_all(publisher->fd, mark, MARK_BYTES);
}

// A text with ' for each ", which reads better in C, as JSON.
static void json_into(char *out, size_t room, const char *text)
{
	size_t length = strlen(text) + 1;
	if (length > room)
		die("a text is too long");
	for (size_t i = 0; i < length; i++)
		out[i] = text[i] == '\'' ? '"' : text[i];
}

// One reading of one device whose list of processes fills the event up to the wanted size, the mark in the last one.
static void publish_exogpu(struct publisher *publisher)
{
	static const char reading[] =
		"{'jsonrpc':'2.0','method':'node.telemetry','params':{'node':null,'devices':[{'device_id':'dev_bench',"
		"'at':'2026-01-01T00:00:00.000Z','utilization_percent':1,'memory_used_bytes':1,'memory_total_bytes':2,"
		"'power_watts':null,'power_limit_watts':null,'temperature_celsius':null,"
		"'memory_temperature_celsius':null,'slowdown_celsius':null,'memory_slowdown_celsius':null,"
		"'thermal_state':null,'ecc_errors':null,"
		"'clock_mhz':null,'memory_clock_mhz':null,'fan_percent':null,'pcie_rx_bytes_per_s':null,"
		"'pcie_tx_bytes_per_s':null,'throttle':null,'availability_score':null,'energy_joules':null,"
		"'energy_source':null,'processes':[";
	enum { AROUND = 250 }; // what else the server's event has
	size_t room = (size_t)size + TEXT_BYTES;
	char *text = publisher->text;
	json_into(text, room, reading);
	for (size_t at; (at = strlen(text)) + AROUND < (size_t)size;)
		json_into(text + at, room - at, "{'pid':7,'name':'fill','memory_bytes':1},");
	size_t at = strlen(text);
	json_into(text + at, room - at, "{'pid':1,'name':'@T................@','memory_bytes':1}]}]}}");
	put_mark(strstr(text + at, "@T"));
	send_frame(publisher->fd, text);
}

static const char node_record[] =
	"{'jsonrpc':'2.0','id':1,'method':'node.register','params':{'protocol':1,'node':{'node_id':'node_bench',"
	"'name':'bench','host_name':'bench','os':null,'kernel':null,'arch':null,'cpu_model':null,'cpu_cores':null,"
	"'cpu_threads':null,'memory_bytes':null,'version':'0','addresses':[],'backends':[],'libraries':[],"
	"'capabilities':[]}}}";
static const char device_record[] =
	"{'jsonrpc':'2.0','id':2,'method':'node.devices','params':{'devices':[{'device_id':'dev_bench',"
	"'hardware_key':'bench','name':'bench','vendor':'bench','model':'bench','family':null,'backend':'cpu',"
	"'apis':[],'kind':'cpu','removable':false,'low_power':false,'unified_memory':true,'memory_pool':'host',"
	"'memory_bytes':null,'memory_budget_bytes':null,'largest_buffer_bytes':null,'memory_bandwidth_bytes_per_s':"
	"null,'compute_units':null,"
	"'api_version':null,'driver_version':null,'formats':[],'features':[],'peers':[],'uuid':null,'pci_address':null,"
	"'support':'full','support_reason':null,'verification':{'state':'passed','at':null,'duration_ms':null,"
	"'error':null},'present':true}]}}";

static void open_exogpu(struct publisher *publisher, const char *socket_path, int port, const char *token)
{
	char bearer[160], host[32];
	snprintf(host, sizeof host, "127.0.0.1:%d", port);
	snprintf(bearer, sizeof bearer, "Sec-WebSocket-Protocol: exogpu.v1\r\nAuthorization: Bearer %s\r\n", token);
	for (int i = 0; i < subscribers; i++) {
		list[i].fd = dial_tcp(port);
		upgrade(list[i].fd, "/ws", host, bearer);
		send_frame(list[i].fd, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"events.subscribe\",\"params\":{"
				       "\"topics\":[\"telemetry\"]}}");
		expect(list[i].fd, "\"resumed\":false");
	}
	publisher->publish = publish_exogpu;
	publisher->fd = dial_unix(socket_path);
	upgrade(publisher->fd, "/node", "localhost", "Sec-WebSocket-Protocol: exogpu.node.v1\r\n");
	json_into(publisher->text, (size_t)size + TEXT_BYTES, node_record);
	send_frame(publisher->fd, publisher->text);
	expect(publisher->fd, "\"protocol\":1");
	json_into(publisher->text, (size_t)size + TEXT_BYTES, device_record);
	send_frame(publisher->fd, publisher->text);
	expect(publisher->fd, "\"id\":2");
	usleep(200000); // until the device is stored
}

static void open_nchan(struct publisher *publisher, int port)
{
	for (int i = 0; i < subscribers; i++) {
		list[i].fd = dial_tcp(port);
		upgrade(list[i].fd, "/sub/t", "l", "");
	}
	publisher->publish = publish_nchan;
	publisher->fd = dial_tcp(port);
}

// The floor: for each mark that comes in, one send() of a whole frame to each subscriber.
static int open_raw(struct publisher *publisher, const char *cpu)
{
	int control[2], (*pairs)[2] = calloc((size_t)subscribers, sizeof(*pairs)), one = 1;
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof address;
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(listener, (struct sockaddr *)&address, sizeof address) < 0 || listen(listener, 16) < 0 ||
	    getsockname(listener, (struct sockaddr *)&address, &length) < 0 ||
	    socketpair(AF_UNIX, SOCK_STREAM, 0, control) < 0)
		die("raw");
	for (int i = 0; i < subscribers; i++) {
		pairs[i][0] = dial_tcp(ntohs(address.sin_port));
		pairs[i][1] = accept(listener, NULL, NULL);
		setsockopt(pairs[i][1], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		list[i].fd = pairs[i][0];
	}
	int pid = fork();
	if (!pid) {
		char *frame = malloc((size_t)size), command[64];
		close(control[0]); // or its own end would keep the child alive
		for (int i = 0; i < subscribers; i++)
			close(pairs[i][0]);
		snprintf(command, sizeof command, "taskset -cp %s %d >/dev/null", cpu, (int)getpid());
		if (system(command))
			fprintf(stderr, "fanout: the child could not be pinned\n");
		memset(frame, 'x', (size_t)size);
		while (recv(control[1], frame + size - MARK_BYTES, MARK_BYTES, MSG_WAITALL) == MARK_BYTES)
			for (int i = 0; i < subscribers; i++)
				send_all(pairs[i][1], frame, (size_t)size);
		_exit(0);
	}
	close(control[1]);
	for (int i = 0; i < subscribers; i++)
		close(pairs[i][1]);
	publisher->publish = publish_raw;
	publisher->fd = control[0];
	return pid;
}

static int by_value(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;
	return (x > y) - (x < y);
}

static double percentile(double share)
{
	return latency_count ? (double)latencies[(size_t)((double)(latency_count - 1) * share)] : 0;
}

static void run(struct publisher *publisher, const char *mode, int pid)
{
	int epoll = epoll_create1(0), timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
	struct itimerspec every = {.it_interval.tv_nsec = 1000000000 / rate, .it_value.tv_nsec = 1000000000 / rate};
	if (rate == 1)
		every = (struct itimerspec){{1, 0}, {1, 0}};
	struct epoll_event event = {.events = EPOLLIN, .data.u32 = UINT32_MAX}, events[256];
	timerfd_settime(timer, 0, &every, NULL);
	epoll_ctl(epoll, EPOLL_CTL_ADD, timer, &event);
	for (int i = 0; i < subscribers; i++) {
		event.data.u32 = (uint32_t)i;
		epoll_ctl(epoll, EPOLL_CTL_ADD, list[i].fd, &event);
	}
	int64_t start = now_ns() + (int64_t)WARM_MS * 1000000, end = start + (int64_t)seconds * 1000000000;
	double cpu = 0;
	size_t sent = 0;
	for (int64_t now; (now = now_ns()) < end + (int64_t)STRAGGLER_MS * 1000000;) {
		if (!count_from_ns && now >= start) {
			count_from_ns = now;
			cpu = cpu_seconds(pid);
		}
		int count = epoll_wait(epoll, events, 256, 20);
		for (int i = 0; i < count; i++) {
			uint64_t ticks;
			if (events[i].data.u32 != UINT32_MAX) {
				read_subscriber(&list[events[i].data.u32]);
			} else if (read(timer, &ticks, sizeof ticks) == sizeof ticks && now_ns() < end) {
				publisher->publish(publisher);
				sent += count_from_ns != 0;
			}
		}
		char answer[4096]; // nginx answers each POST, exogpu pings
		while (recv(publisher->fd, answer, sizeof answer, MSG_DONTWAIT) > 0)
			;
	}
	cpu = cpu_seconds(pid) - cpu;
	qsort(latencies, latency_count, sizeof(*latencies), by_value);
	printf("{\"mode\":\"%s\",\"subscribers\":%d,\"rate_hz\":%d,\"bytes\":%d,\"delivered_share\":%.4f,"
	       "\"cpu_us_per_delivery\":%.3f,\"p50_ms\":%.2f,\"p90_ms\":%.2f,\"p99_ms\":%.2f,\"max_ms\":%.2f,"
	       "\"resident_kib\":%ld}\n",
	       mode, subscribers, rate, size, sent ? (double)delivered / ((double)sent * subscribers) : 0,
	       delivered ? cpu * 1e6 / (double)delivered : 0, percentile(.5), percentile(.9), percentile(.99),
	       percentile(1), resident_kib(pid));
}

int main(int argc, char **argv)
{
	int option, pid = 0;
	struct publisher publisher = {0};
	const char *cpu = "0";
	while ((option = getopt(argc, argv, "n:r:d:s:c:")) != -1) {
		int value = option == '?' ? 0 : (int)strtol(optarg, NULL, 10);
		if (option == 'n')
			subscribers = value;
		else if (option == 'r')
			rate = value;
		else if (option == 'd')
			seconds = value;
		else if (option == 's')
			size = value;
		else if (option == 'c')
			cpu = optarg;
		else
			return 2;
	}
	argv += optind;
	argc -= optind;
	struct rlimit files;
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	list = calloc((size_t)subscribers, sizeof(*list));
	latency_capacity = (size_t)subscribers * (size_t)rate * (size_t)(seconds + 2);
	latencies = malloc(latency_capacity * sizeof(*latencies));
	publisher.text = malloc((size_t)size + TEXT_BYTES);
	if (argc == 5 && !strcmp(argv[0], "exogpu")) {
		pid = (int)strtol(argv[4], NULL, 10);
		open_exogpu(&publisher, argv[1], (int)strtol(argv[2], NULL, 10), argv[3]);
	} else if (argc == 3 && !strcmp(argv[0], "nchan")) {
		pid = (int)strtol(argv[2], NULL, 10);
		open_nchan(&publisher, (int)strtol(argv[1], NULL, 10));
	} else if (argc == 1 && !strcmp(argv[0], "raw")) {
		pid = open_raw(&publisher, cpu);
	} else {
		fprintf(stderr, "usage: fanout [-n N] [-r HZ] [-d S] [-s BYTES] exogpu SOCKET PORT TOKEN PID | nchan "
				"PORT PID | raw\n");
		return 2;
	}
	run(&publisher, argv[0], pid);
	if (!strcmp(argv[0], "raw")) {
		close(publisher.fd);
		waitpid(pid, NULL, 0);
	}
	return 0;
}
