/* Transfer: how fast bulk goes to and from a device through the whole product, beside what it stands on.
 *
 *   transfer [-s] [-p PIECE] [-t TOTAL] [-w WINDOW] write|read exogpu PORT TOKEN PID DEVICE [NODE_PID]
 *                                              write|read bare
 *                                              memcpy | tcp | unix
 *   transfer [-s] [-n CALLS] launch exogpu PORT TOKEN PID DEVICE | bare
 *
 * The client is the same for exogpu and for `bare`, a child that does nothing with libwebsockets but take messages and
 * answer with ones of the same size: WebSocket framing of its own, masked eight bytes at a time, WINDOW pieces under
 * way. What is sent is masked into a buffer that is used again, as a program that masks while it fills would. tcp and
 * unix: one socket, PIECE bytes a call, nothing on top. -s: by TLS 1.3, whose other end is not verified. PORT may be
 * the path of the server's socket. PID is the server's; its node's workers are found below it, or those of the node
 * NODE_PID, which has joined from elsewhere and relays. Prints one JSON object: MB/s (10^6), and CPU seconds for each
 * GB of client, server, that node and worker; or for launch the median and the 99th percentile in microseconds. */
#include "tests/bench/certificate.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <libwebsockets.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TEXT_BYTES = 4096, READ_BYTES = 1 << 20, BARE_BUFFER_BYTES = 65536, MOST_BYTES = 17 << 20, MOST_WORKERS = 256 };

static size_t piece = 1 << 20, total = 1 << 29;
static int window = 6, calls = 2000;
static const char *token = "";
static bool whole; // the product, not the bare server
static bool by_tls;
static SSL *secured; // the client's; NULL: plain
static int server_pid, node_pid, worker_pids[MOST_WORKERS], worker_count;

static void die(const char *what)
{
	fprintf(stderr, "transfer: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void *need(size_t bytes)
{
	void *memory = malloc(bytes);
	if (!memory)
		die("malloc");
	memset(memory, 1, bytes); // touched before anything is timed
	return memory;
}

// CPU.

static double own_cpu(void)
{
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

// Of all threads of a process, from the scheduler's own count.
static double cpu_of(int pid)
{
	char path[320];
	unsigned long long sum = 0, one;
	snprintf(path, sizeof path, "/proc/%d/task", pid);
	DIR *folder = opendir(path);
	for (struct dirent *entry; folder && (entry = readdir(folder));) {
		snprintf(path, sizeof path, "/proc/%d/task/%s/schedstat", pid, entry->d_name);
		FILE *file = entry->d_name[0] == '.' ? NULL : fopen(path, "r");
		if (file && fscanf(file, "%llu", &one) == 1)
			sum += one;
		if (file)
			fclose(file);
	}
	if (folder)
		closedir(folder);
	return (double)sum / 1e9;
}

// The children of a process that are started as `exogpu WORD`.
static int children_of(int pid, const char *word, int *found, int most)
{
	int count = 0, child, parent;
	char path[320], text[256];
	DIR *folder = opendir("/proc");
	for (struct dirent *entry; folder && (entry = readdir(folder)) && count < most;) {
		snprintf(path, sizeof path, "/proc/%s/stat", entry->d_name);
		FILE *file = entry->d_name[0] > '0' && entry->d_name[0] <= '9' ? fopen(path, "r") : NULL;
		size_t length = file ? fread(text, 1, sizeof text - 1, file) : 0;
		if (file)
			fclose(file);
		text[length] = 0;
		const char *after = strrchr(text, ')');
		if (!after || sscanf(after + 2, "%*c %d", &parent) != 1 || parent != pid ||
		    sscanf(text, "%d", &child) != 1)
			continue;
		snprintf(path, sizeof path, "/proc/%d/cmdline", child);
		file = fopen(path, "r");
		length = file ? fread(text, 1, sizeof text - 1, file) : 0;
		if (file)
			fclose(file);
		text[length] = 0;
		size_t program = strlen(text) + 1;
		if (program < length && !strcmp(text + program, word))
			found[count++] = child;
	}
	if (folder)
		closedir(folder);
	return count;
}

// The worker that has come since `before`: those of sessions that have just ended are still there.
static int all_workers(int *pids)
{
	int node = node_pid;
	return node || children_of(server_pid, "node", &node, 1) ? children_of(node, "worker", pids, MOST_WORKERS) : 0;
}

static void find_worker(const int *before, int count)
{
	int now[MOST_WORKERS], many = all_workers(now);
	for (int i = 0; i < many; i++) {
		bool old = false;
		for (int j = 0; j < count; j++)
			old = old || before[j] == now[i];
		if (!old)
			worker_pids[worker_count++] = now[i];
	}
}

static double workers_cpu(void)
{
	double sum = 0;
	for (int i = 0; i < worker_count; i++)
		sum += cpu_of(worker_pids[i]);
	return sum;
}

// The client.

static void send_all(int fd, const void *bytes, size_t length)
{
	for (const char *at = bytes; length;) {
		ssize_t sent = secured ? SSL_write(secured, at, (int)length) : send(fd, at, length, MSG_NOSIGNAL);
		if (sent < 0 && errno == EINTR)
			continue;
		if (sent <= 0)
			die("send");
		at += sent;
		length -= (size_t)sent;
	}
}

static struct {
	int fd;
	uint8_t *bytes; // (READ_BYTES), what was read and not yet used
	size_t first, end;
	uint8_t *message; // (MOST_BYTES)
	size_t length;    // of the message
	bool binary;
	uint8_t *out; // (MOST_BYTES)
} client;

// Like the other side: what is asked for goes straight where it is wanted, once the buffer is empty.
static void take(void *out, size_t length)
{
	for (uint8_t *at = out; length;) {
		size_t here = client.end - client.first;
		if (here) {
			size_t taken = here < length ? here : length;
			memcpy(at, client.bytes + client.first, taken);
			client.first += taken;
			at += taken;
			length -= taken;
			continue;
		}
		bool direct = length >= 16384;
		void *to = direct ? at : client.bytes;
		size_t room = direct ? length : 16384;
		ssize_t got = secured ? SSL_read(secured, to, (int)room) : recv(client.fd, to, room, 0);
		if (got <= 0)
			die("the server hung up");
		client.first = 0;
		client.end = direct ? 0 : (size_t)got;
		at += direct ? got : 0;
		length -= direct ? (size_t)got : 0;
	}
}

// The next whole message; pings are answered on the way.
static void next_message(void)
{
	client.length = 0;
	for (bool last = false; !last;) {
		uint8_t head[2], more[8];
		take(head, 2);
		size_t length = head[1] & 0x7f, wide = length == 126 ? 2 : length == 127 ? 8 : 0;
		take(more, wide);
		for (size_t i = 0; i < wide; i++)
			length = (i ? length << 8 : 0) | more[i];
		int opcode = head[0] & 0x0f;
		if (opcode == 8)
			die("the server closed");
		if (opcode > 8) {
			uint8_t pong[6 + 126] = {0x8a, (uint8_t)(0x80 | length)};
			take(pong + 6, length);
			if (opcode == 9)
				send_all(client.fd, pong, 6 + length); // the mask 0
			continue;
		}
		if (opcode)
			client.binary = opcode == 2;
		if (client.length + length > MOST_BYTES - 1)
			die("a message is too large");
		take(client.message + client.length, length);
		client.length += length;
		last = head[0] & 0x80;
	}
	client.message[client.length] = 0;
}

// Mask `length` bytes from `in` to `out`, which stands on a multiple of 8 from where the mask begins.
static void mask_to(uint8_t *out, const uint8_t *in, size_t length, uint64_t mask)
{
	size_t i = 0;
	for (uint64_t word; i + 8 <= length; i += 8) {
		memcpy(&word, in + i, 8);
		word ^= mask;
		memcpy(out + i, &word, 8);
	}
	for (; i < length; i++)
		out[i] = in[i] ^ (uint8_t)(mask >> 8 * (i & 7));
}

static void send_message(bool binary, const char *head, const uint8_t *body, size_t body_bytes)
{
	static uint32_t key = 0x9e3779b9;
	uint8_t *at = client.out, start[TEXT_BYTES + 4];
	size_t head_bytes = strlen(head), before = 0;
	key = key * 1664525 + 1013904223;
	if (binary) {
		for (int i = 0; i < 4; i++)
			start[before++] = (uint8_t)(head_bytes >> 8 * i);
	}
	memcpy(start + before, head, head_bytes);
	before += head_bytes;
	size_t length = before + body_bytes;
	*at++ = binary ? 0x82 : 0x81;
	if (length < 126) {
		*at++ = (uint8_t)(0x80 | length);
	} else {
		*at++ = 0x80 | 127;
		for (int i = 0; i < 8; i++)
			*at++ = (uint8_t)((uint64_t)length >> (56 - 8 * i));
	}
	memcpy(at, &key, 4);
	at += 4;
	mask_to(at, start, before, (uint64_t)key << 32 | key);
	unsigned turn = 8 * (before & 3); // the mask goes on where the head ended
	uint32_t turned = turn ? key >> turn | key << (32 - turn) : key;
	mask_to(at + before, body, body_bytes, (uint64_t)turned << 32 | turned);
	send_all(client.fd, client.out, (size_t)(at - client.out) + length);
}

static int dial_path(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
		die("connect");
	return fd;
}

static int dial(int port)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
		die("connect");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	return fd;
}

static void client_open(const char *path, int port)
{
	char request[1024], end[5] = "";
	client.fd = path ? dial_path(path) : dial(port);
	client.bytes = need(READ_BYTES);
	client.message = need(MOST_BYTES);
	client.out = need(MOST_BYTES);
	secured = by_tls ? SSL_new(SSL_CTX_new(TLS_client_method())) : NULL;
	if (secured && (SSL_set_fd(secured, client.fd) != 1 || SSL_connect(secured) != 1))
		die("SSL_connect");
	int length = snprintf(request, sizeof request,
			      "GET /ws HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
			      "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
			      "Sec-WebSocket-Protocol: exogpu.v1\r\nAuthorization: Bearer %s\r\n\r\n",
			      port, token);
	send_all(client.fd, request, (size_t)length);
	while (strcmp(end, "\r\n\r\n") != 0) {
		memmove(end, end + 1, 3);
		take(end + 3, 1);
	}
}

// The next answer that is no event; one that says error ends the program.
static const char *next_answer(void)
{
	const char *text;
	do {
		next_message();
		text = (const char *)client.message + (client.binary ? 4 : 0);
	} while (!client.binary && strstr(text, "\"method\""));
	if (client.length < 8 || (!strstr(text, "\"result\"") && memmem(text, client.length - 4, "\"error\"", 7))) {
		fprintf(stderr, "transfer: %.*s\n", 500, text);
		exit(1);
	}
	return text;
}

static void read_word(const char *text, const char *name, char *out, size_t room)
{
	const char *at = strstr(text, name);
	at = at ? strchr(at + strlen(name), ':') : NULL;
	at = at ? strchr(at, '"') : NULL;
	size_t length = at ? strcspn(at + 1, "\"") : 0;
	if (!length || length >= room)
		die(name);
	memcpy(out, at + 1, length);
	out[length] = 0;
}

// Allocate room for the whole window on the device; returns its id. The bare server takes any.
static void allocate(const char *device, char *id, size_t room)
{
	char call[TEXT_BYTES];
	int before[MOST_WORKERS], count = 0;
	snprintf(id, room, "none");
	if (!whole)
		return;
	count = all_workers(before);
	snprintf(call, sizeof call,
		 "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"memory.allocate\",\"params\":{\"device_id\":\"%s\","
		 "\"bytes\":%zu}}",
		 device, piece * (size_t)window);
	send_message(false, call, NULL, 0);
	read_word(next_answer(), "\"allocation_id\"", id, room);
	find_worker(before, count);
}

// Something to send that differs by its place, so that a byte in the wrong one is seen.
static void fill(uint8_t *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++)
		bytes[i] = (uint8_t)(i * 2654435761u >> 13);
}

static void send_call(bool write, const char *id, size_t number, const uint8_t *data)
{
	char call[TEXT_BYTES], count[48] = "";
	if (!write)
		snprintf(count, sizeof count, ",\"bytes\":%zu", piece);
	snprintf(call, sizeof call,
		 "{\"jsonrpc\":\"2.0\",\"id\":%zu,\"method\":\"memory.%s\",\"params\":{\"allocation_id\":\"%s\","
		 "\"offset\":%zu%s}}",
		 number + 2, write ? "write" : "read", id, number % (size_t)window * piece, count);
	send_message(write, call, data, write ? piece : 0);
}

static void transfer(bool write, const char *device)
{
	char id[128];
	uint8_t *data = need(piece);
	size_t pieces = total / piece, sent = 0, warm = (size_t)window * 2;
	double cpu = 0, server = 0, node = 0, workers = 0;
	int64_t begun = 0;
	fill(data, piece);
	allocate(device, id, sizeof id);
	for (size_t i = 0; i < (size_t)window && whole; i++) { // what is read back is known, and touched
		send_call(true, id, i, data);
		next_answer();
	}
	for (size_t done = 0; done < pieces + warm; done++) {
		if (done == warm) {
			begun = now_ns();
			cpu = own_cpu();
			server = cpu_of(server_pid);
			node = node_pid ? cpu_of(node_pid) : 0;
			workers = workers_cpu();
		}
		while (sent < pieces + warm && sent < done + (size_t)window)
			send_call(write, id, sent++, data);
		next_answer();
		if (!write && client.length < piece)
			die("an answer is short");
	}
	double seconds = (double)(now_ns() - begun) / 1e9, bytes = (double)(pieces * piece);
	cpu = own_cpu() - cpu;
	server = cpu_of(server_pid) - server;
	node = node_pid ? cpu_of(node_pid) - node : 0;
	workers = workers_cpu() - workers;
	if (!write && whole && memcmp(client.message + client.length - piece, data, piece) != 0)
		die("what was read is not what was written");
	printf("{\"mb_per_s\":%.1f,\"client_s_per_gb\":%.3f,\"server_s_per_gb\":%.3f,\"node_s_per_gb\":%.3f,"
	       "\"worker_s_per_gb\":%.3f}\n",
	       bytes / 1e6 / seconds, cpu / bytes * 1e9, server / bytes * 1e9, node / bytes * 1e9,
	       workers / bytes * 1e9);
	free(data);
}

static int ascending(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;
	return (left > right) - (left < right);
}

static void launch(const char *device)
{
	char id[128], module[128] = "none", call[TEXT_BYTES];
	double *times = need((size_t)calls * sizeof *times);
	piece = 4096;
	allocate(device, id, sizeof id);
	if (whole) {
		snprintf(call, sizeof call,
			 "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"compute.load\",\"params\":{\"device_id\":"
			 "\"%s\","
			 "\"format\":\"builtin\"}}",
			 device);
		send_message(false, call, NULL, 0);
		read_word(next_answer(), "\"module_id\"", module, sizeof module);
	}
	snprintf(call, sizeof call,
		 "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"compute.launch\",\"params\":{\"module_id\":\"%s\","
		 "\"kernel\":"
		 "\"fill_f32\",\"args\":[{\"allocation_id\":\"%s\"},{\"f32\":1.5},{\"u32\":1}]}}",
		 module, id);
	for (int i = -100; i < calls; i++) { // 100 to warm up
		int64_t begun = now_ns();
		send_message(false, call, NULL, 0);
		next_answer();
		if (i >= 0)
			times[i] = (double)(now_ns() - begun) / 1e3;
	}
	qsort(times, (size_t)calls, sizeof *times, ascending);
	printf("{\"p50_us\":%.1f,\"p99_us\":%.1f}\n", times[calls / 2], times[calls * 99 / 100]);
	free(times);
}

// The bare server: a child with one connection.

static struct {
	uint8_t *out; // (LWS_PRE + MOST_BYTES)
	size_t answers, read_bytes;
	char text[TEXT_BYTES];
	size_t text_bytes;
} bare;

static int bare_callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in, size_t length)
{
	static const char done[] = "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"bytes\":1048576}}";
	(void)user;
	if (reason == LWS_CALLBACK_RECEIVE) {
		if (!lws_frame_is_binary(wsi) && bare.text_bytes + length < sizeof bare.text) {
			memcpy(bare.text + bare.text_bytes, in, length);
			bare.text_bytes += length;
		}
		if (!lws_is_final_fragment(wsi) || lws_remaining_packet_payload(wsi))
			return 0;
		bare.text[bare.text_bytes] = 0;
		const char *bytes = strstr(bare.text, "\"bytes\":");
		bare.read_bytes = bytes ? strtoull(bytes + 8, NULL, 10) : 0;
		bare.text_bytes = 0;
		bare.answers++;
		lws_callback_on_writable(wsi);
	} else if (reason == LWS_CALLBACK_SERVER_WRITEABLE && bare.answers) {
		bare.answers--;
		if (bare.read_bytes) { // a binary message like exogpu's
			size_t head = strlen(done);
			memset(bare.out + LWS_PRE, 0, 4);
			bare.out[LWS_PRE] = (uint8_t)head;
			memcpy(bare.out + LWS_PRE + 4, done, head);
			lws_write(wsi, bare.out + LWS_PRE, 4 + head + bare.read_bytes, LWS_WRITE_BINARY);
		} else {
			memcpy(bare.out + LWS_PRE, done, sizeof done - 1);
			lws_write(wsi, bare.out + LWS_PRE, sizeof done - 1, LWS_WRITE_TEXT);
		}
		if (bare.answers)
			lws_callback_on_writable(wsi);
	}
	return 0;
}

static int bare_start(pid_t *pid)
{
	int pipes[2], port = 0;
	if (pipe(pipes) < 0 || (*pid = fork()) < 0)
		die("fork");
	if (*pid) {
		close(pipes[1]);
		if (read(pipes[0], &port, sizeof port) != sizeof port)
			die("the bare server did not start");
		close(pipes[0]);
		return port;
	}
	const struct lws_protocols protocols[] = {
		{.name = "exogpu.v1", .callback = bare_callback, .rx_buffer_size = BARE_BUFFER_BYTES}, {0}};
	lws_set_log_level(LLL_ERR, NULL);
	bare.out = need(LWS_PRE + MOST_BYTES);
	struct lws_context_creation_info info = {
		.port = 0, .iface = "127.0.0.1", .protocols = protocols, .pt_serv_buf_size = BARE_BUFFER_BYTES};
	info.options = LWS_SERVER_OPTION_EXPLICIT_VHOSTS;
	if (by_tls) {
		make_certificate();
		info.options |= LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT;
		info.alpn = "http/1.1";
		info.server_ssl_cert_mem = certificate_pem;
		info.server_ssl_cert_mem_len = (unsigned)strlen(certificate_pem);
		info.server_ssl_private_key_mem = key_pem;
		info.server_ssl_private_key_mem_len = (unsigned)strlen(key_pem);
		info.tls1_3_plus_cipher_list = "TLS_AES_128_GCM_SHA256"; // what exogpu's server prefers
	}
	struct lws_context *context = lws_create_context(&info);
	struct lws_vhost *vhost = context ? lws_create_vhost(context, &info) : NULL;
	if (!vhost)
		_exit(1);
	port = lws_get_vhost_listen_port(vhost);
	if (write(pipes[1], &port, sizeof port) != sizeof port)
		_exit(1);
	while (lws_service(context, 0) >= 0)
		;
	_exit(0);
}

// Sockets with nothing on top, and memcpy.

static double drain_socket(int fd)
{
	uint8_t *bytes = need(piece);
	while (recv(fd, bytes, piece, 0) > 0)
		;
	free(bytes);
	return own_cpu();
}

static void raw_socket(bool tcp)
{
	int pair[2], listening = -1;
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof address;
	if (tcp) {
		listening = socket(AF_INET, SOCK_STREAM, 0);
		if (bind(listening, (struct sockaddr *)&address, length) < 0 || listen(listening, 1) < 0 ||
		    getsockname(listening, (struct sockaddr *)&address, &length) < 0)
			die("listen");
		pair[0] = dial(ntohs(address.sin_port));
		pair[1] = accept(listening, NULL, NULL);
	} else if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0) {
		die("socketpair");
	}
	uint8_t *bytes = need(piece);
	pid_t child = fork();
	if (!child) {
		close(pair[0]);
		drain_socket(pair[1]);
		_exit(0);
	}
	close(pair[1]);
	double cpu = own_cpu();
	int64_t begun = now_ns();
	for (size_t sent = 0; sent < total; sent += piece)
		send_all(pair[0], bytes, piece);
	shutdown(pair[0], SHUT_WR);
	struct rusage usage;
	int state;
	wait4(child, &state, 0, &usage); // all of it was taken
	double seconds = (double)(now_ns() - begun) / 1e9;
	double other = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
		       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
	printf("{\"mb_per_s\":%.1f,\"client_s_per_gb\":%.3f,\"server_s_per_gb\":%.3f,\"worker_s_per_gb\":0}\n",
	       (double)total / 1e6 / seconds, (own_cpu() - cpu) / (double)total * 1e9, other / (double)total * 1e9);
	free(bytes);
}

static void copy_memory(void)
{
	uint8_t *from = need(piece * 16), *to = need(piece * 16);
	double cpu = own_cpu();
	int64_t begun = now_ns();
	for (size_t done = 0; done < total; done += piece)
		memcpy(to + done / piece % 16 * piece, from + done / piece % 16 * piece, piece);
	double seconds = (double)(now_ns() - begun) / 1e9;
	if (memcmp(to, from, piece) != 0)
		die("memcpy");
	printf("{\"mb_per_s\":%.1f,\"client_s_per_gb\":%.3f,\"server_s_per_gb\":0,\"worker_s_per_gb\":0}\n",
	       (double)total / 1e6 / seconds, (own_cpu() - cpu) / (double)total * 1e9);
	free(from);
	free(to);
}

static int number(const char *text)
{
	char *end;
	errno = 0;
	long value = strtol(text, &end, 10);
	if (errno || end == text || *end || value < 0 || value > INT32_MAX) {
		fprintf(stderr, "transfer: not a number: %s\n", text);
		exit(2);
	}
	return (int)value;
}

int main(int argc, char **argv)
{
	int option;
	while ((option = getopt(argc, argv, "p:t:w:n:s")) != -1) {
		if (option == 'p')
			piece = (size_t)number(optarg);
		else if (option == 't')
			total = (size_t)number(optarg);
		else if (option == 'w')
			window = number(optarg);
		else if (option == 'n')
			calls = number(optarg);
		else if (option == 's')
			by_tls = true;
		else
			return 2;
	}
	char **rest = argv + optind;
	int count = argc - optind;
	if (count < 1 || !piece || piece > 16 << 20 || window < 1 || calls < 1)
		return 2;
	if (!strcmp(rest[0], "memcpy")) {
		copy_memory();
		return 0;
	}
	if (!strcmp(rest[0], "tcp") || !strcmp(rest[0], "unix")) {
		raw_socket(rest[0][0] == 't');
		return 0;
	}
	if (count != 7 && count != 6 && count != 2)
		return 2;
	pid_t child = 0;
	const char *path = count > 2 && rest[2][0] == '/' ? rest[2] : NULL;
	int port = count == 2 ? bare_start(&child) : path ? 0 : number(rest[2]);
	token = count == 2 ? "" : rest[3];
	whole = count > 2;
	node_pid = count == 7 ? number(rest[6]) : 0;
	server_pid = whole ? number(rest[4]) : child;
	client_open(path, port);
	if (!strcmp(rest[0], "launch"))
		launch(count == 2 ? "" : rest[5]);
	else
		transfer(rest[0][0] == 'w', count == 2 ? "" : rest[5]);
	if (child) {
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
	}
	return 0;
}
