/* See source.h. */
#include "server/hub/source.h"

#include "common/base/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static enum status wrong(struct error *error, const char *what)
{
	error_set(error, STATUS_INVALID_PARAMS, "%s", what);
	error_hint(error, "a path of a file or a directory, https://..., hf:owner/repo/file.gguf, hf:owner/repo, or "
			  "ollama:name:tag");
	return STATUS_INVALID_PARAMS;
}

static bool is_alphanumeric(char letter)
{
	return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9');
}

static bool is_plain(char letter)
{
	return is_alphanumeric(letter) || letter == '.' || letter == '_' || letter == '-';
}

// The part of a name until one of `ends`, as the hubs allow it: it begins with a letter, a digit or '_'. Returns what
// follows it; NULL: it is not one.
static const char *take_part(const char *text, const char *ends, char part[SOURCE_PART_BYTES])
{
	size_t length = strcspn(text, ends);
	if (!length || length > 96 || (!is_alphanumeric(*text) && *text != '_'))
		return NULL;
	for (size_t i = 0; i < length; i++)
		if (!is_plain(text[i]) || (text[i] == '.' && text[i + 1] == '.'))
			return NULL;
	snprintf(part, SOURCE_PART_BYTES, "%.*s", (int)length, text);
	return text + length;
}

static bool has_control(const char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < 0x20 || *text == 0x7f)
			return true;
	return false;
}

static bool ends_with(const char *text, const char *end)
{
	size_t length = strlen(text), tail = strlen(end);
	return length >= tail && !strcasecmp(text + length - tail, end);
}

// Five digits; 0 if they are none.
static unsigned five_digits(const char *text)
{
	unsigned number = 0;
	for (int i = 0; i < 5; i++) {
		if (text[i] < '0' || text[i] > '9')
			return 0;
		number = number * 10 + (unsigned)(text[i] - '0');
	}
	return number;
}

unsigned source_parts(const char *file, size_t *number_at)
{
	static const char end[] = "-00001-of-00002.gguf";
	const size_t length = strlen(file), tail = sizeof end - 1;
	if (length <= tail)
		return 0;
	const char *at = file + length - tail;
	const unsigned number = five_digits(at + 1), count = five_digits(at + 10);
	if (*at != '-' || strncmp(at + 6, "-of-", 4) != 0 || strcasecmp(at + 15, ".gguf") != 0 || count < 2 ||
	    count > LIMIT_MODEL_PARTS || !number || number > count)
		return 0;
	*number_at = (size_t)(at + 1 - file);
	return count;
}

static void put_number(char *at, unsigned number)
{
	char digits[16];
	snprintf(digits, sizeof digits, "%05u", number % 100000);
	memcpy(at, digits, 5);
}

// Any part stands for all of them: the source is that of the first.
static void take_parts(struct source *out)
{
	size_t at;
	out->parts = source_parts(out->text, &at);
	if (out->parts)
		source_part(out, 1, out);
}

void source_part(const struct source *first, unsigned number, struct source *out)
{
	size_t at;
	if (out != first)
		*out = *first;
	if (source_parts(out->text, &at))
		put_number(out->text + at, number);
	if (out->kind == SOURCE_HUB_FILE && source_parts(out->file, &at))
		put_number(out->file + at, number);
	else if (out->location[0] && source_parts(out->text, &at))
		put_number(out->location + at, number); // which begins as the text does
}

bool source_part_path(const char *first, unsigned number, char *path, size_t size)
{
	size_t at;
	const int length = snprintf(path, size, "%s", first);
	if (length < 0 || (size_t)length >= size || !source_parts(path, &at))
		return false;
	put_number(path + at, number);
	return true;
}

// A path inside a repository: no part is empty, "." or "..".
static bool is_file(const char *file)
{
	if (strlen(file) >= SOURCE_FILE_BYTES || has_control(file) || strchr(file, '\\'))
		return false;
	for (const char *part = file;; part++) {
		size_t length = strcspn(part, "/");
		if (!length || (length <= 2 && !strncmp(part, "..", length)))
			return false;
		part += length;
		if (!*part)
			return true;
	}
}

// "@" and the 40 digits of a commit. Returns what follows; NULL: it is none.
static const char *take_revision(const char *at, char revision[SOURCE_REVISION_BYTES])
{
	if (strspn(at + 1, "0123456789abcdef") != SOURCE_REVISION_BYTES - 1)
		return NULL;
	snprintf(revision, SOURCE_REVISION_BYTES, "%s", at + 1);
	at += SOURCE_REVISION_BYTES;
	return *at && *at != '/' ? NULL : at;
}

static bool is_safetensors(const char *path)
{
	return ends_with(path, ".safetensors") || ends_with(path, ".safetensors.index.json");
}

static enum status parse_hub(const char *text, struct source *out, struct error *error)
{
	const char *at = take_part(text, "/", out->owner);
	if (at && *at == '/')
		at = take_part(at + 1, "/@", out->repository);
	else
		at = NULL;
	if (at && *at == '@' && !(at = take_revision(at, out->revision)))
		return wrong(error, "behind @ the commit is named by its 40 hexadecimal digits");
	if (!at || (*at && !is_file(at + 1)))
		return wrong(error, "this does not name a file on Hugging Face: hf:owner/repo/file.gguf");
	const bool weights = *at && is_safetensors(at);
	out->kind = !*at ? SOURCE_HUB : weights ? SOURCE_HUB_WEIGHTS : SOURCE_HUB_FILE;
	if (weights && strchr(at + 1, '/'))
		return wrong(error, "of safetensors only those at the top of a repository can be added");
	if (*at && !weights && !ends_with(at, ".gguf"))
		return wrong(error, "only files of GGUF and safetensors can be added; their names end with .gguf or "
				    ".safetensors");
	snprintf(out->file, sizeof out->file, "%s", weights ? "model.safetensors" : *at ? at + 1 : "");
	snprintf(out->text, sizeof out->text, "hf:%s/%s%s%s%s%s", out->owner, out->repository,
		 out->revision[0] ? "@" : "", out->revision, *at ? "/" : "", out->file);
	return STATUS_OK;
}

static enum status parse_ollama(const char *text, struct source *out, struct error *error)
{
	const char *at = text;
	snprintf(out->owner, sizeof out->owner, "library");
	snprintf(out->tag, sizeof out->tag, "latest");
	if (strchr(text, '/')) {
		at = take_part(text, "/", out->owner);
		at = at ? at + 1 : NULL;
	}
	if (at)
		at = take_part(at, ":", out->repository);
	if (at && *at == ':')
		at = take_part(at + 1, "", out->tag);
	if (!at || *at)
		return wrong(error, "this does not name a model of Ollama: ollama:name:tag");
	out->kind = SOURCE_OLLAMA;
	bool library = !strcmp(out->owner, "library");
	snprintf(out->text, sizeof out->text, "ollama:%s%s%s:%s", library ? "" : out->owner, library ? "" : "/",
		 out->repository, out->tag);
	return STATUS_OK;
}

// The name of a file, without its folder.
static enum status parse_upload(const char *name, struct source *out, struct error *error)
{
	if (strlen(name) > 255 || !is_file(name) || strchr(name, '/') || *name == '.') {
		error_set(error, STATUS_INVALID_PARAMS, "\"%.60s\" is not the name of a file", name);
		error_hint(error, "1 to 255 bytes, without its folder, without / \\ and control characters, not "
				  "beginning with .");
		return STATUS_INVALID_PARAMS;
	}
	if (!ends_with(name, ".gguf")) {
		error_set(error, STATUS_INVALID_PARAMS, "\"%.60s\" does not end with .gguf", name);
		error_hint(error, "models are files in the format GGUF; others are converted first, with llama.cpp's "
				  "convert_hf_to_gguf.py");
		return STATUS_INVALID_PARAMS;
	}
	out->kind = SOURCE_UPLOAD;
	snprintf(out->file, sizeof out->file, "%s", name);
	snprintf(out->text, sizeof out->text, "upload:%s", name);
	return STATUS_OK;
}

static enum status parse_url(const char *text, struct source *out, struct error *error)
{
	const char *host = strstr(text, "://") + 3;
	size_t length = strcspn(host, "/?#");
	if (!length || has_control(text) || strpbrk(text, " \"<>\\^`{|}"))
		return wrong(error, "this is not a URL");
	if (memchr(host, '@', length)) {
		error_set(error, STATUS_INVALID_PARAMS, "a URL with a user name or password is not accepted");
		error_hint(error, "give an access token with --token-file");
		return STATUS_INVALID_PARAMS;
	}
	out->kind = SOURCE_URL;
	snprintf(out->location, sizeof out->location, "%.*s", (int)strcspn(text, "#"), text);
	snprintf(out->text, sizeof out->text, "%.*s", (int)strcspn(text, "?#"), text);
	return STATUS_OK;
}

// The bytes that a file: URL stands for, in place.
static bool decode(char *text)
{
	char *to = text;
	for (const char *from = text; *from; from++, to++) {
		unsigned value;
		*to = *from;
		if (*from != '%')
			continue;
		if (!from[1] || !from[2] || strspn(from + 1, "0123456789abcdefABCDEF") < 2 ||
		    sscanf(from + 1, "%2x", &value) != 1 || !value)
			return false;
		*to = (char)value;
		from += 2;
	}
	*to = 0;
	return true;
}

// Files of safetensors stand for their directory, all of which is the model.
static void cut_to_folder(char *path)
{
	size_t length = strlen(path);
	if (is_safetensors(path))
		length = (size_t)(strrchr(path, '/') - path);
	while (length > 1 && path[length - 1] == '/')
		length--;
	path[length ? length : 1] = 0;
}

static enum status parse_path(const char *text, struct source *out, struct error *error)
{
	bool url = !strncmp(text, "file:", 5);
	if (url)
		text += strncmp(text, "file://", 7) ? 5 : 7;
	snprintf(out->location, sizeof out->location, "%s", text);
	if ((url && !decode(out->location)) || has_control(out->location))
		return wrong(error, "this is not a path");
	if (*out->location != '/')
		return wrong(error, "a path must be absolute: the server may run in another directory");
	cut_to_folder(out->location);
	out->kind = SOURCE_PATH;
	snprintf(out->text, sizeof out->text, "%s", out->location);
	return STATUS_OK;
}

static enum status parse(const char *text, struct source *out, struct error *error)
{
	*out = (struct source){.kind = SOURCE_UNKNOWN};
	if (!*text || strlen(text) >= SOURCE_TEXT_BYTES)
		return wrong(error, "a source has 1 to 2,048 bytes");
	if (!strncmp(text, "hf:", 3))
		return parse_hub(text + 3, out, error);
	if (!strncmp(text, "ollama:", 7))
		return parse_ollama(text + 7, out, error);
	if (!strncmp(text, "upload:", 7))
		return parse_upload(text + 7, out, error);
	if (!strncmp(text, "https://", 8) || !strncmp(text, "http://", 7))
		return parse_url(text, out, error);
	return parse_path(text, out, error);
}

enum status source_parse(const char *text, struct source *out, struct error *error)
{
	const enum status status = parse(text, out, error);
	if (!status && out->kind != SOURCE_OLLAMA && out->kind != SOURCE_HUB && out->kind != SOURCE_UPLOAD)
		take_parts(out);
	return status;
}

enum status source_pick(const struct source *repository, const char *file, struct source *out, struct error *error)
{
	char text[2 * SOURCE_PART_BYTES + SOURCE_REVISION_BYTES + SOURCE_FILE_BYTES + 8];
	if (strlen(file) >= SOURCE_FILE_BYTES)
		return wrong(error, "a file's name is too long");
	snprintf(text, sizeof text, "hf:%s/%s%s%s/%s", repository->owner, repository->repository,
		 repository->revision[0] ? "@" : "", repository->revision, file);
	return source_parse(text, out, error);
}

void source_name(const struct source *source, char name[SOURCE_NAME_BYTES])
{
	const char *from = source->text, *slash;
	if (source->kind == SOURCE_HUB_FILE || source->kind == SOURCE_UPLOAD)
		from = source->file;
	else if (source->kind == SOURCE_HUB || source->kind == SOURCE_HUB_WEIGHTS)
		from = source->repository;
	else if (source->kind == SOURCE_OLLAMA)
		from = strchr(source->text, ':') + 1;
	slash = strrchr(from, '/');
	if (slash && slash[1])
		from = slash + 1;
	size_t length = strlen(from);
	if (ends_with(from, ".gguf") && length > 5)
		length -= 5;
	if (source->parts && length > 15) // -00001-of-00002
		length -= 15;
	if (length > SOURCE_NAME_BYTES - 9) // room for what makes it unique
		length = SOURCE_NAME_BYTES - 9;
	for (size_t i = 0; i < length; i++)
		name[i] = is_plain(from[i]) || from[i] == ':' ? from[i] : '-';
	name[length] = 0;
	if (!source_name_usable(name))
		snprintf(name, SOURCE_NAME_BYTES, "model");
}

bool source_name_usable(const char *name)
{
	size_t length = strlen(name);
	return length && length < SOURCE_NAME_BYTES && !has_control(name) && !strpbrk(name, "/\\?#%") && *name != ' ' &&
	       name[length - 1] != ' ' && *name != '.' && strncmp(name, "mod_", 4) != 0;
}

bool source_append_encoded(char *text, size_t size, const char *part)
{
	size_t used = strlen(text);
	for (; *part; part++) {
		bool plain = is_plain(*part) || *part == '/' || *part == '~';
		if (used + (plain ? 1 : 3) >= size)
			return false;
		snprintf(text + used, size - used, plain ? "%c" : "%%%02X", (unsigned char)*part);
		used += plain ? 1 : 3;
	}
	return true;
}
