/* The server's side of the WebSocket handshake (RFC 6455, 4.2). Thread: the loop's. */
#include "common/net/ws/conn.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

enum { KEY_TEXT = 24, OFFERED_BYTES = 128, SHA1_BYTES = 20 };

// The first subprotocol of a comma-separated list that is spoken here; NULL: none.
static const char *choose_subprotocol(const char *offered, const struct net_listener *listener)
{
	static const char between[] = ", \t";
	while (*(offered += strspn(offered, between))) {
		size_t length = strcspn(offered, between);
		for (const char *const *one = listener->subprotocols; *one; one++)
			if (strlen(*one) == length && !memcmp(*one, offered, length))
				return *one;
		offered += length;
	}
	return NULL;
}

// 16 bytes in Base64.
static bool is_key(const char *text)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	return strlen(text) == KEY_TEXT && strspn(text, digits) == KEY_TEXT - 2 && !strcmp(text + KEY_TEXT - 2, "==");
}

struct handshake {
	char key[KEY_TEXT + 1];
	const char *subprotocol; // NULL: none was named
};

// NULL, or what is wrong with it.
static const char *read_handshake(struct handshake *out, const struct head *head, const struct net_listener *listener)
{
	char version[8], offered[OFFERED_BYTES];
	if (!head->http_11 || head->has_body || !head_lists(head, "connection", "upgrade"))
		return "this is not a request for a WebSocket";
	if (!head_copy(head, "sec-websocket-version", version, sizeof version) || strcmp(version, "13") != 0)
		return "this version of WebSocket is not supported";
	if (!head_copy(head, "sec-websocket-key", out->key, sizeof out->key) || !is_key(out->key))
		return "Sec-WebSocket-Key is not a key";
	if (!head_copy(head, "sec-websocket-protocol", offered, sizeof offered))
		return "this subprotocol is not supported";
	out->subprotocol = choose_subprotocol(offered, listener);
	return offered[0] && !out->subprotocol ? "this subprotocol is not supported" : NULL;
}

static void refuse(struct net_arrival *arrival, const char *wrong)
{
	struct net_response response = {.status = 400, .content_type = "application/json"};
	buffer_init(&response.owned, 1024);
	buffer_printf(&response.owned, "{\"error\":\"invalid_request\",\"message\":\"%s\",\"hint\":\"%s\"}\n", wrong,
		      "WebSocket version 13, subprotocol exogpu.v1");
	response.body = response.owned.data;
	response.body_bytes = response.owned.length;
	net_http_refuse(arrival, &response);
}

static bool accept_text(const char *key, char out[4 * (SHA1_BYTES + 2) / 3 + 4])
{
	char text[KEY_TEXT + 40];
	unsigned char hash[EVP_MAX_MD_SIZE];
	unsigned hash_bytes = 0;
	const int length = snprintf(text, sizeof text, "%s258EAFA5-E914-47DA-95CA-C5AB0DC85B11", key);
	if (EVP_Digest(text, (size_t)length, hash, &hash_bytes, EVP_sha1(), NULL) != 1 || hash_bytes != SHA1_BYTES)
		return false;
	return EVP_EncodeBlock((unsigned char *)out, hash, SHA1_BYTES) > 0;
}

static int send_accept(struct net_arrival *arrival, const struct handshake *handshake)
{
	char accept[4 * (SHA1_BYTES + 2) / 3 + 4], text[512];
	const char *subprotocol = handshake->subprotocol;
	if (!accept_text(handshake->key, accept))
		return -1;
	const int length = snprintf(text, sizeof text,
				    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
				    "Sec-WebSocket-Accept: %s\r\n%s%s%s\r\n",
				    accept, subprotocol ? "Sec-WebSocket-Protocol: " : "",
				    subprotocol ? subprotocol : "", subprotocol ? "\r\n" : "");
	return length < (int)sizeof text ? net_arrival_send(arrival, text, (size_t)length) : -1;
}

void net_upgrade(struct net_arrival *arrival, const struct head *head)
{
	struct net_listener *listener = arrival->listener;
	struct net_request request;
	struct net_response response = {0};
	struct handshake handshake;
	void *user = NULL;
	const char *wrong = read_handshake(&handshake, head, listener);
	if (wrong || !listener->handler->upgrade) {
		refuse(arrival, wrong ? wrong : "there is no WebSocket here");
		return;
	}
	net_http_read_request(arrival, head, &request);
	buffer_init(&response.owned, 2048);
	if (!listener->handler->upgrade(listener->handler_context, &request, &user, &response)) {
		net_http_refuse(arrival, &response);
		return;
	}
	buffer_finish(&response.owned);
	net_arrival_stage(arrival, DOOR_SERVED);
	net_arrival_know(arrival, response.holder);
	if (response.patient)
		net_arrival_bear(arrival);
	if (send_accept(arrival, &handshake) || !net_conn_accept(arrival, user)) {
		listener->handler->closed(user, NULL, 0);
		net_arrival_end(arrival);
	}
}
