/* Fuzz target: the head of a request that one server passes on to another (common/net/http/passed.h).
 *
 * Whatever the first takes, the second has to read as the same request: method, target, version and headers, in their
 * order, and with the address that the first one said, whatever the client itself wrote into that header. Without the
 * key nothing is believed. */
#include "common/net/http/passed.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
	if (!condition)
		abort();
}

static bool same(const struct head *one, struct head_text text, const struct head *other, struct head_text as)
{
	return text.length == as.length && !memcmp(one->text + text.at, other->text + as.at, text.length);
}

static bool is_ours(const struct head *head, const struct head_field *field)
{
	return field->name.length == strlen(NET_PASSED_HEADER) &&
	       !memcmp(head->text + field->name.at, NET_PASSED_HEADER, field->name.length);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t key[NET_PASS_KEY_BYTES] = "the servers of a cluster share i",
			     other[NET_PASS_KEY_BYTES] = "another";
	static struct head head, again;
	struct net_passed passed;
	struct buffer out;
	size_t taken = 0, at = 0;
	head_begin(&head);
	if (head_take(&head, data, size, &taken) != HEAD_WHOLE)
		return 0;
	require(!net_passed_read(&head, key, &passed)); // a MAC that nobody made
	buffer_init(&out, 4 * HEAD_BYTES);
	require(!net_passed_print(&head, "2001:db8::7", true, key, &out));
	head_begin(&again);
	const enum head_result result = head_take(&again, out.data, out.length, &taken);
	if (result != HEAD_WHOLE) { // our header was one too many
		require(result == HEAD_REFUSED && again.status == 431);
		buffer_finish(&out);
		return 0;
	}
	require(taken == out.length && again.method == head.method && again.http_11 == head.http_11);
	require(again.close == head.close && again.upgrade == head.upgrade && again.has_body == head.has_body);
	require(again.chunked == head.chunked && again.body_bytes == head.body_bytes && again.expects == head.expects);
	require(same(&head, head.method_text, &again, again.method_text) &&
		same(&head, head.target, &again, again.target));
	for (size_t i = 0; i < head.field_count; i++) {
		if (is_ours(&head, &head.fields[i]))
			continue;
		require(at < again.field_count && same(&head, head.fields[i].name, &again, again.fields[at].name) &&
			same(&head, head.fields[i].value, &again, again.fields[at].value));
		at++;
	}
	require(at + 1 == again.field_count && is_ours(&again, &again.fields[at]));
	require(!net_passed_read(&again, other, &passed) && net_passed_read(&again, key, &passed));
	require(!strcmp(passed.peer, "2001:db8::7") && passed.tls);
	buffer_finish(&out);
	return 0;
}
