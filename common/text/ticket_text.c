/* See ticket_text.h. */
#include "common/text/ticket_text.h"

#include <string.h>

enum {
	ID_AT = 8,
	SECRET_AT = ID_AT + TICKET_ID_DIGITS + 1,
	AUTHORITY_AT = SECRET_AT + TICKET_SECRET_DIGITS + 1,
	CRC_AT = AUTHORITY_AT + BASE62_SHA256_DIGITS + 1,
};

enum status ticket_text_make(const uint8_t authority_sha256[32], char *text)
{
	memcpy(text, "exojoin_", ID_AT);
	enum status status = base62_random(text + ID_AT, TICKET_ID_DIGITS);
	if (!status)
		status = base62_random(text + SECRET_AT, TICKET_SECRET_DIGITS);
	if (status) {
		explicit_bzero(text, CRC_AT);
		return status;
	}
	base62_print256(authority_sha256, text + AUTHORITY_AT);
	text[SECRET_AT - 1] = text[AUTHORITY_AT - 1] = text[CRC_AT - 1] = '_';
	base62_crc(text, CRC_AT - 1, text + CRC_AT);
	text[TICKET_TEXT_LENGTH] = 0;
	return STATUS_OK;
}

static bool well_formed(const char *text)
{
	return strnlen(text, TICKET_TEXT_LENGTH + 1) == TICKET_TEXT_LENGTH && !memcmp(text, "exojoin_", ID_AT) &&
	       text[SECRET_AT - 1] == '_' && text[AUTHORITY_AT - 1] == '_' && text[CRC_AT - 1] == '_' &&
	       base62_all(text + ID_AT, TICKET_ID_DIGITS) && base62_all(text + SECRET_AT, TICKET_SECRET_DIGITS) &&
	       base62_all(text + AUTHORITY_AT, BASE62_SHA256_DIGITS) && base62_all(text + CRC_AT, BASE62_CRC_DIGITS);
}

enum status ticket_text_parse(const char *text, struct ticket_parts *parts, struct error *error)
{
	char crc[BASE62_CRC_DIGITS];
	*parts = (struct ticket_parts){0};
	if (!well_formed(text)) {
		error_set(error, STATUS_INVALID_PARAMS, "this is not a ticket, or not the whole of one");
		error_hint(error, "a ticket is exojoin_ and %d more characters; copy it again, the whole of it",
			   TICKET_TEXT_LENGTH - ID_AT);
		return STATUS_INVALID_PARAMS;
	}
	base62_crc(text, CRC_AT - 1, crc);
	if (memcmp(crc, text + CRC_AT, sizeof crc) != 0 ||
	    !base62_read256(text + AUTHORITY_AT, parts->authority_sha256)) {
		*parts = (struct ticket_parts){0};
		error_set(error, STATUS_INVALID_PARAMS, "this ticket was mistyped: a character of it is wrong");
		error_hint(error, "copy it again, the whole of it");
		return STATUS_INVALID_PARAMS;
	}
	parts->id = text + ID_AT;
	parts->secret = text + SECRET_AT;
	return STATUS_OK;
}
