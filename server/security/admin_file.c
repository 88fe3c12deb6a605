/* The file with the first admin token: tokens_ensure_admin_file of tokens.h. Thread: the loop's, while the server
 * starts. */
#include "common/base/clock.h"
#include "common/files/private_file.h"
#include "server/security/tokens/tokens.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

enum { RENEW_MS = 24 * 60 * 60 * 1000 }; // a token that ends within a day is replaced at start

// The first line of our own file. False if it is missing, or not ours alone.
static bool read_file(const char *path, char text[TOKEN_TEXT_BYTES])
{
	struct buffer file;
	buffer_init(&file, TOKEN_TEXT_BYTES - 1);
	bool ours = !private_file_read(path, &file, NULL);
	snprintf(text, TOKEN_TEXT_BYTES, "%.*s", ours ? (int)strcspn(buffer_text(&file), "\r\n") : 0,
		 buffer_text(&file));
	if (file.data)
		OPENSSL_cleanse(file.data, file.length);
	buffer_finish(&file);
	return ours;
}

static enum status write_file(const char *path, const char *text, struct error *error)
{
	char line[TOKEN_TEXT_BYTES + 1];
	int length = snprintf(line, sizeof line, "%s\n", text);
	const struct private_file file = {.path = path, .bytes = line, .length = (size_t)length, .sync = true};
	enum status status = private_file_write(&file, error);
	OPENSSL_cleanse(line, sizeof line);
	return status;
}

enum status tokens_ensure_admin_file(struct tokens *tokens, const char *path, char text[TOKEN_TEXT_BYTES],
				     struct error *error)
{
	struct token *token = NULL;
	text[0] = 0;
	if (read_file(path, text) && !tokens_authenticate(tokens, text, SCOPE_ADMIN, &token, NULL) &&
	    token->scopes & SCOPE_ADMIN && token->expires_ms - clock_wall_ms() > RENEW_MS)
		return STATUS_OK;
	OPENSSL_cleanse(text, TOKEN_TEXT_BYTES);
	const struct token_create_params params = {.name = "admin.token", .scopes = SCOPE_ADMIN};
	enum status status = tokens_make_wait(tokens, &params, text, error);
	if (!status)
		status = write_file(path, text, error);
	if (status)
		OPENSSL_cleanse(text, TOKEN_TEXT_BYTES);
	return status;
}
