/* See passed.h. */
#include "common/net/http/passed.h"

#include "common/net/address.h"

#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <string.h>

enum { MAC_BYTES = 32, VALUE_BYTES = 64 + 16 + 2 * MAC_BYTES };

static bool print_mac(const uint8_t key[NET_PASS_KEY_BYTES], const char *text, char out[2 * MAC_BYTES + 1])
{
	uint8_t mac[EVP_MAX_MD_SIZE];
	unsigned length = 0;
	if (!HMAC(EVP_sha256(), key, NET_PASS_KEY_BYTES, (const uint8_t *)text, strlen(text), mac, &length) ||
	    length != MAC_BYTES)
		return false;
	for (int i = 0; i < MAC_BYTES; i++)
		snprintf(out + 2 * i, 3, "%02x", mac[i]);
	return true;
}

static bool is_ours(const struct head *head, const struct head_field *field)
{
	static const char name[] = NET_PASSED_HEADER;
	return field->name.length == sizeof name - 1 && !memcmp(head->text + field->name.at, name, sizeof name - 1);
}

static void add(struct buffer *out, const struct head *head, struct head_text text)
{
	buffer_append(out, head->text + text.at, text.length);
}

enum status net_passed_print(const struct head *head, const char *peer, bool tls, const uint8_t key[NET_PASS_KEY_BYTES],
			     struct buffer *out)
{
	char said[VALUE_BYTES], mac[2 * MAC_BYTES + 1];
	snprintf(said, sizeof said, "1 %.63s %s", peer, tls ? "tls" : "plain");
	if (!print_mac(key, said, mac))
		return STATUS_OUT_OF_MEMORY;
	add(out, head, head->method_text);
	buffer_append_byte(out, ' ');
	add(out, head, head->target);
	buffer_append_text(out, head->http_11 ? " HTTP/1.1\r\n" : " HTTP/1.0\r\n");
	for (size_t i = 0; i < head->field_count; i++) {
		const struct head_field *field = &head->fields[i];
		if (is_ours(head, field))
			continue;
		add(out, head, field->name);
		buffer_append_text(out, ": ");
		add(out, head, field->value);
		buffer_append_text(out, "\r\n");
	}
	buffer_printf(out, NET_PASSED_HEADER ": %s %s\r\n\r\n", said, mac);
	return out->failed ? STATUS_LIMIT_EXCEEDED : STATUS_OK;
}

bool net_passed_read(const struct head *head, const uint8_t key[NET_PASS_KEY_BYTES], struct net_passed *out)
{
	char value[VALUE_BYTES], wanted[2 * MAC_BYTES + 1], how[8] = "";
	struct net_address address;
	*out = (struct net_passed){0};
	if (!head_copy(head, NET_PASSED_HEADER, value, sizeof value))
		return false;
	char *mac = strrchr(value, ' ');
	if (!mac || strlen(mac + 1) != 2 * MAC_BYTES)
		return false;
	*mac++ = 0;
	if (!print_mac(key, value, wanted) || CRYPTO_memcmp(mac, wanted, 2 * MAC_BYTES) != 0)
		return false;
	if (sscanf(value, "1 %63s %7s", out->peer, how) != 2 || !net_address_read(&address, out->peer))
		return false;
	out->tls = !strcmp(how, "tls");
	return out->tls || !strcmp(how, "plain");
}
