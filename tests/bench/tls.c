/* TLS: what the loop of common/net makes of it, beside libwebsockets alone and one socket with OpenSSL and nothing
 * else.
 *
 *   tls [-p PIECE] [-t TOTAL] [-c] write|read net|library|socket|dial
 *
 * The server is a child that counts what it gets, or sends what is asked for; the client sends messages of PIECE bytes
 * that were masked before, six under way, or asks for as many. `dial` is a server and a client of common/net; the
 * others' client is OpenSSL on a blocking socket. -c: in clear, without TLS. Certificates are made on the way. Prints
 * one JSON object: MB/s (10^6), and CPU seconds for each GB of the client and of the server. */
#include "common/net/ws/ws.h"
#include "tests/bench/certificate.h"

#include <libwebsockets.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WINDOW = 6, HEADER_BYTES = 14, MOST_BYTES = 16 << 20 };

static size_t piece = 1 << 20, total = 1u << 30;
static bool writing, clear;
static uint8_t *data; // (HEADER_BYTES + piece)

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static double seconds_now(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static double cpu_of(int who)
{
	struct rusage usage;
	getrusage(who, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static SSL_CTX *server_context(void)
{
	SSL_CTX *context = SSL_CTX_new(TLS_server_method());
	BIO *bio = BIO_new_mem_buf(certificate_pem, -1);
	SSL_CTX_use_certificate(context, PEM_read_bio_X509(bio, NULL, NULL, NULL));
	bio = BIO_new_mem_buf(key_pem, -1);
	SSL_CTX_use_PrivateKey(context, PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL));
	SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
	SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256");
	return context;
}

// The servers. Each says its port and goes on until it is killed. A message is answered with a short one, or, for
// `read`, with one of PIECE bytes.

static void say_port(int to, int port)
{
	if (write(to, &port, sizeof port) != sizeof port)
		die("write");
}

static bool net_upgrade(void *context, const struct net_request *request, void **user, struct net_response *response)
{
	(void)request, (void)response;
	*user = context;
	return true;
}

static void net_opened(void *user, struct net_conn *conn)
{
	(void)user;
	net_conn_trust(conn);
}

static void net_message(void *user, struct net_conn *conn, const uint8_t *bytes, size_t length, bool binary)
{
	(void)user, (void)bytes, (void)length, (void)binary;
	if (writing) {
		net_conn_send_text(conn, "{}", 2);
		return;
	}
	struct net_frame *frame = net_frame_alloc(piece); // as a worker's answer would be, but not filled
	net_conn_send(conn, frame, 0);
	net_frame_unref(&frame);
}

static void net_closed(void *user, struct net_conn *conn, int code)
{
	(void)user, (void)conn, (void)code;
}

static void net_http(void *context, const struct net_request *request, struct net_response *response)
{
	(void)context, (void)request;
	response->status = 404;
}

static void serve_net(int to)
{
	static const struct net_handler handler = {.http = net_http,
						   .upgrade = net_upgrade,
						   .opened = net_opened,
						   .message = net_message,
						   .closed = net_closed};
	static const char *const protocols[] = {"bench", NULL};
	struct net_loop *loop = NULL;
	struct net_tls *tls = NULL;
	struct net_listener *listener = NULL;
	struct error error = {0};
	struct net_listener_params params = {
		.address = "127.0.0.1", .ping_s = 20, .silence_s = 30, .subprotocols = protocols, .handler = &handler};
	if (net_loop_create(&loop, &error) || net_tls_create(&tls, loop, certificate_pem, &error) ||
	    net_tls_show(tls, NET_TLS_PUBLIC, certificate_pem, key_pem, &error))
		die(error.message);
	params.tls = clear ? NULL : tls;
	if (net_listener_create(&listener, loop, &params, &error))
		die(error.message);
	say_port(to, net_listener_port(listener));
	net_loop_run(loop);
}

static size_t due; // answers

static int library_event(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in, size_t length)
{
	static uint8_t answer[LWS_PRE + MOST_BYTES];
	(void)user, (void)in, (void)length;
	if (reason == LWS_CALLBACK_RECEIVE && lws_is_final_fragment(wsi) && !lws_remaining_packet_payload(wsi))
		due++;
	if (reason == LWS_CALLBACK_SERVER_WRITEABLE && due) {
		due--;
		if (lws_write(wsi, answer + LWS_PRE, writing ? 2 : piece, writing ? LWS_WRITE_TEXT : LWS_WRITE_BINARY) <
		    0)
			return -1;
	}
	if (due && (reason == LWS_CALLBACK_RECEIVE || reason == LWS_CALLBACK_SERVER_WRITEABLE))
		lws_callback_on_writable(wsi);
	return 0;
}

static void serve_library(int to)
{
	static const struct lws_protocols protocols[] = {
		{.name = "bench", .callback = library_event, .rx_buffer_size = 65536}, {0}};
	struct lws_context_creation_info info = {
		.iface = "127.0.0.1",
		.protocols = protocols,
		.options = clear ? 0 : LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT,
		.alpn = "http/1.1",
		.server_ssl_cert_mem = clear ? NULL : certificate_pem,
		.server_ssl_cert_mem_len = (unsigned)strlen(certificate_pem),
		.server_ssl_private_key_mem = clear ? NULL : key_pem,
		.server_ssl_private_key_mem_len = (unsigned)strlen(key_pem),
		.tls1_3_plus_cipher_list = "TLS_AES_128_GCM_SHA256",
		.pt_serv_buf_size = 131072,
	};
	lws_set_log_level(LLL_ERR, NULL);
	struct lws_context *context = lws_create_context(&info);
	if (!context)
		die("libwebsockets");
	say_port(to, lws_get_vhost_listen_port(lws_get_vhost_by_name(context, "default")));
	while (lws_service(context, 0) >= 0)
		;
}

static ssize_t get(SSL *ssl, int fd, void *out, size_t length)
{
	return ssl ? SSL_read(ssl, out, (int)length) : recv(fd, out, length, 0);
}

static void put_all(SSL *ssl, int fd, const void *bytes, size_t length)
{
	for (const uint8_t *at = bytes; length;) {
		ssize_t sent = ssl ? SSL_write(ssl, at, (int)length) : send(fd, at, length, MSG_NOSIGNAL);
		if (sent <= 0)
			die("send");
		at += sent;
		length -= (size_t)sent;
	}
}

static void get_all(SSL *ssl, int fd, void *out, size_t length)
{
	for (uint8_t *at = out; length;) {
		ssize_t got = get(ssl, fd, at, length);
		if (got <= 0)
			die("the server hung up");
		at += got;
		length -= (size_t)got;
	}
}

static int listen_here(int *port)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof address;
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, length) < 0 || listen(fd, 1) < 0 ||
	    getsockname(fd, (struct sockaddr *)&address, &length) < 0)
		die("listen");
	*port = ntohs(address.sin_port);
	return fd;
}

// No WebSocket: PIECE bytes are answered with two, or two with PIECE.
static void serve_socket(int to)
{
	int port, listening = listen_here(&port), one = 1;
	uint8_t *bytes = calloc(1, piece);
	say_port(to, port);
	int fd = accept(listening, NULL, NULL);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	SSL *ssl = clear ? NULL : SSL_new(server_context());
	if (ssl && (SSL_set_fd(ssl, fd) != 1 || SSL_accept(ssl) != 1))
		die("SSL_accept");
	for (;;) {
		get_all(ssl, fd, bytes, writing ? piece : 2);
		put_all(ssl, fd, bytes, writing ? 2 : piece);
	}
}

// The client.

static size_t put_header(uint8_t *out, size_t length)
{
	out[0] = 0x82;
	out[1] = 0x80 | 127;
	for (int i = 0; i < 8; i++)
		out[2 + i] = (uint8_t)((uint64_t)length >> (56 - 8 * i));
	memcpy(out + 10, "mask", 4); // (libwebsockets takes no pains over one of zeros)
	return HEADER_BYTES;
}

static void get_message(SSL *ssl, int fd, uint8_t *out)
{
	uint8_t head[10];
	do {
		get_all(ssl, fd, head, 2);
		size_t length = head[1] & 0x7f, wide = length == 126 ? 2 : length == 127 ? 8 : 0;
		get_all(ssl, fd, head + 2, wide);
		for (size_t i = 0; i < wide; i++)
			length = (i ? length << 8 : 0) | head[2 + i];
		get_all(ssl, fd, out, length);
	} while (!(head[0] & 0x80));
}

static void run_client(int port, bool websocket)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	static const char request[] =
		"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
		"Sec-WebSocket-Protocol: bench\r\n\r\n";
	uint8_t *answer = calloc(1, MOST_BYTES), asking[HEADER_BYTES + 2] = {0};
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
	if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
		die("connect");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	SSL *ssl = clear ? NULL : SSL_new(SSL_CTX_new(TLS_client_method()));
	if (ssl && (SSL_set_fd(ssl, fd) != 1 || SSL_connect(ssl) != 1))
		die("SSL_connect");
	size_t head = 0, pieces = total / piece;
	if (websocket) {
		char end[5] = "";
		put_all(ssl, fd, request, sizeof request - 1);
		while (strcmp(end, "\r\n\r\n") != 0) {
			memmove(end, end + 1, 3);
			get_all(ssl, fd, end + 3, 1);
		}
		head = put_header(data, piece);
		put_header(asking, 2);
	}
	for (size_t sent = 0, done = 0; done < pieces; done++) {
		for (; sent < pieces && sent < done + WINDOW; sent++) {
			if (writing)
				put_all(ssl, fd, data, head + piece);
			else
				put_all(ssl, fd, asking, head + 2);
		}
		if (websocket)
			get_message(ssl, fd, answer);
		else
			get_all(ssl, fd, answer, writing ? 2 : piece);
	}
}

static struct {
	struct net_loop *loop;
	size_t sent, done;
} dialled;

static void dial_go_on(struct net_conn *conn)
{
	for (; dialled.sent < total / piece && dialled.sent < dialled.done + WINDOW; dialled.sent++) {
		struct net_frame *frame = net_frame_alloc(writing ? piece : 2);
		net_conn_send(conn, frame, 0);
		net_frame_unref(&frame);
	}
}

static void dial_opened(void *user, struct net_conn *conn)
{
	(void)user;
	dial_go_on(conn);
}

static void dial_message(void *user, struct net_conn *conn, const uint8_t *bytes, size_t length, bool binary)
{
	(void)user, (void)bytes, (void)length, (void)binary;
	if (++dialled.done == total / piece)
		net_loop_stop(dialled.loop);
	dial_go_on(conn);
}

static void dial_closed(void *user, struct net_conn *conn, int code)
{
	(void)user, (void)conn;
	fprintf(stderr, "closed: %d\n", code);
	exit(1);
}

static void run_dial(int port)
{
	static const struct net_handler handler = {
		.opened = dial_opened, .message = dial_message, .closed = dial_closed};
	struct net_dial_tls tls = {.authority_pem = certificate_pem};
	struct net_dial_params params = {.host = "127.0.0.1",
					 .port = port,
					 .path = "/",
					 .subprotocol = "bench",
					 .tls = clear ? NULL : &tls,
					 .ping_s = 20,
					 .silence_s = 30,
					 .speaks_first = true,
					 .handler = &handler};
	struct error error = {0};
	if (net_loop_create(&dialled.loop, &error) || net_dial(dialled.loop, &params, &error))
		die(error.message);
	net_loop_run(dialled.loop);
}

int main(int count, char **arguments)
{
	int option, ports[2], port = 0;
	while ((option = getopt(count, arguments, "p:t:c")) > 0) {
		if (option == 'p')
			piece = strtoul(optarg, NULL, 10);
		else if (option == 't')
			total = strtoul(optarg, NULL, 10);
		else
			clear = true;
	}
	if (count - optind != 2 || piece < 65536 || piece > MOST_BYTES)
		die("tls [-p PIECE] [-t TOTAL] [-c] write|read net|library|socket|dial");
	writing = !strcmp(arguments[optind], "write");
	const char *what = arguments[optind + 1];
	make_certificate();
	data = calloc(1, HEADER_BYTES + piece);
	if (pipe(ports) < 0)
		die("pipe");
	pid_t child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (!strcmp(what, "socket"))
			serve_socket(ports[1]);
		else if (!strcmp(what, "library"))
			serve_library(ports[1]);
		else
			serve_net(ports[1]);
		exit(0);
	}
	if (read(ports[0], &port, sizeof port) != sizeof port)
		die("the server did not start");
	double begun = seconds_now(), cpu = cpu_of(RUSAGE_SELF);
	if (!strcmp(what, "dial"))
		run_dial(port);
	else
		run_client(port, strcmp(what, "socket") != 0);
	double seconds = seconds_now() - begun, gigabytes = (double)(total / piece * piece) / 1e9;
	cpu = cpu_of(RUSAGE_SELF) - cpu;
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	printf("{\"mb_per_s\":%.0f,\"client_s_per_gb\":%.3f,\"server_s_per_gb\":%.3f}\n", gigabytes * 1e3 / seconds,
	       cpu / gigabytes, cpu_of(RUSAGE_CHILDREN) / gigabytes);
	return 0;
}
