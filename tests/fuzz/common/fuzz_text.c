/* Fuzz target: what is read from a line of text: a token, a ticket, the address of a server, and a time.
 *
 * The first byte says which. A time that parses must print and parse to itself; a ticket's authority, too. */
#include "common/base/clock.h"
#include "common/text/ticket_text.h"
#include "engine/node/options.h"
#include "server/security/tokens/token_text.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
	if (!condition)
		abort();
}

static void read_time(const char *text)
{
	int64_t wall_ms, again;
	char printed[CLOCK_TEXT_BYTES];
	if (clock_parse(text, &wall_ms))
		return;
	require(clock_parse(clock_format(wall_ms, printed), &again) == STATUS_OK);
	require(again == wall_ms || wall_ms < 0 || strlen(printed) != CLOCK_TEXT_BYTES - 1 || printed[0] == '9');
}

static void read_token(const char *text)
{
	const char *id = NULL, *secret = NULL;
	if (token_text_parse(text, &id, &secret))
		return;
	require(strlen(text) == TOKEN_TEXT_LENGTH);
	require(id == text + 4 && secret == id + TOKEN_ID_DIGITS + 1);
}

static void read_ticket(const char *text)
{
	struct ticket_parts parts;
	struct error error = {0};
	char digits[BASE62_SHA256_DIGITS];
	if (ticket_text_parse(text, &parts, &error)) {
		require(error.message[0] && error.hint[0] && !parts.id);
		return;
	}
	require(strlen(text) == TICKET_TEXT_LENGTH);
	require(parts.id == text + 8 && parts.secret == parts.id + TICKET_ID_DIGITS + 1);
	base62_print256(parts.authority_sha256, digits);
	require(!memcmp(digits, parts.secret + TICKET_SECRET_DIGITS + 1, sizeof digits));
}

static void read_address(const char *text)
{
	char host[256];
	int port = 0;
	struct error error = {0};
	if (node_address_parse(text, host, &port, &error))
		require(error.message[0]);
	else
		require(host[0] && strlen(host) < sizeof host && port > 0 && port < 65536);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 1)
		return 0;
	char *text = malloc(size); // exactly as long as the input, so that reading past its end is seen
	require(text);
	memcpy(text, data + 1, size - 1);
	text[size - 1] = 0;
	if (data[0] == 'K')
		read_ticket(text);
	else if (data[0] == 'A')
		read_address(text);
	else if (data[0] & 1)
		read_token(text);
	else
		read_time(text);
	free(text);
	return 0;
}
