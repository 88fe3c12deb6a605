/* See ptx.h. A scanner that gives one token at a time, and above it one function for each thing that is read. */
#include "engine/cuda/ptx.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PTX_KERNELS_STEP = 16, PTX_BLOCK_MOST = 1024, PTX_SHOWN = 32 };

enum token_kind {
	TOKEN_END,
	TOKEN_WORD,   // name, 7.5, .entry
	TOKEN_STRING, // with its quotes
	TOKEN_MARK,   // any other single character
	TOKEN_BROKEN, // a comment or a string without an end
};

struct token {
	enum token_kind kind;
	const char *text; // (length), in the module's text
	size_t length;
};

struct scanner {
	const char *at, *end;
	unsigned line;
	struct token token; // the one that is being looked at
};

static enum status wrong(const struct scanner *scanner, struct error *error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static enum status wrong(const struct scanner *scanner, struct error *error, const char *format, ...)
{
	char text[256];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	return error_set(error, STATUS_INVALID_PARAMS, "this PTX, line %u: %s", scanner->line, text);
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_name(char c)
{
	return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' || c == '%';
}

// Go behind white space, comments and lines of the preprocessor's. False if a comment does not end.
static bool skip_blank(struct scanner *scanner)
{
	while (scanner->at < scanner->end) {
		size_t left = (size_t)(scanner->end - scanner->at);
		const char *at = scanner->at, *past;
		if (*at == '\n' || strchr(" \t\r\f\v", *at)) {
			scanner->line += *at == '\n';
			scanner->at++;
		} else if (*at == '#' || (left > 1 && at[0] == '/' && at[1] == '/')) {
			past = memchr(at, '\n', left);
			scanner->at = past ? past : scanner->end;
		} else if (left > 1 && at[0] == '/' && at[1] == '*') {
			past = memmem(at + 2, left - 2, "*/", 2);
			if (!past)
				return false;
			for (; scanner->at < past + 2; scanner->at++)
				scanner->line += *scanner->at == '\n';
		} else {
			return true;
		}
	}
	return true;
}

static void advance(struct scanner *scanner)
{
	struct token *token = &scanner->token;
	bool whole = skip_blank(scanner);
	const char *at = scanner->at;
	*token = (struct token){.kind = whole ? TOKEN_END : TOKEN_BROKEN, .text = at};
	if (!whole || at == scanner->end)
		return;
	if (*at == '"') {
		const char *past = memchr(at + 1, '"', (size_t)(scanner->end - at - 1));
		token->kind = past ? TOKEN_STRING : TOKEN_BROKEN;
		at = past ? past + 1 : scanner->end;
		for (const char *c = token->text; c < at; c++)
			scanner->line += *c == '\n';
	} else if (is_name(*at) || *at == '.') {
		bool number = is_digit(*at); // a dot is part of a number; elsewhere it begins the next word
		token->kind = TOKEN_WORD;
		at++;
		while (at < scanner->end && (is_name(*at) || (number && *at == '.')))
			at++;
	} else {
		token->kind = TOKEN_MARK;
		at++;
	}
	token->length = (size_t)(at - token->text);
	scanner->at = at;
}

static bool at_word(const struct scanner *scanner, const char *word)
{
	const struct token *token = &scanner->token;
	return token->kind == TOKEN_WORD && token->length == strlen(word) && !memcmp(token->text, word, token->length);
}

static bool at_mark(const struct scanner *scanner, char mark)
{
	return scanner->token.kind == TOKEN_MARK && *scanner->token.text == mark;
}

static bool at_name(const struct scanner *scanner)
{
	return scanner->token.kind == TOKEN_WORD && *scanner->token.text != '.' && !is_digit(*scanner->token.text);
}

// The value of a decimal number; UINT32_MAX if the token is not one, or is larger.
static uint32_t number_of(const struct scanner *scanner)
{
	uint64_t value = 0;
	const struct token *token = &scanner->token;
	if (token->kind != TOKEN_WORD || token->length > 9)
		return UINT32_MAX;
	for (size_t i = 0; i < token->length; i++) {
		if (!is_digit(token->text[i]))
			return UINT32_MAX;
		value = 10 * value + (uint64_t)(token->text[i] - '0');
	}
	return (uint32_t)value;
}

static enum status read_header(struct scanner *scanner, struct error *error)
{
	advance(scanner);
	if (!at_word(scanner, ".version"))
		return wrong(scanner, error, "PTX begins with .version");
	advance(scanner);
	if (scanner->token.kind != TOKEN_WORD || !is_digit(*scanner->token.text))
		return wrong(scanner, error, ".version needs a version number");
	advance(scanner);
	if (!at_word(scanner, ".target"))
		return wrong(scanner, error, ".target must follow .version");
	do {
		advance(scanner);
		if (!at_name(scanner))
			return wrong(scanner, error, ".target needs a name, as sm_80");
		advance(scanner);
	} while (at_mark(scanner, ','));
	if (!at_word(scanner, ".address_size"))
		return wrong(scanner, error, ".address_size 64 must follow .target");
	advance(scanner);
	if (number_of(scanner) != 64)
		return wrong(scanner, error, "only .address_size 64 runs here");
	advance(scanner);
	return STATUS_OK;
}

// The size of an element of a fundamental type; 0 if the word is not one.
static unsigned type_bytes(const struct token *token)
{
	static const struct {
		const char *word;
		unsigned bytes;
	} types[] = {
		{".b8", 1},   {".u8", 1},  {".s8", 1},  {".b16", 2}, {".u16", 2}, {".s16", 2},   {".f16", 2},
		{".bf16", 2}, {".b32", 4}, {".u32", 4}, {".s32", 4}, {".f32", 4}, {".f16x2", 4}, {".bf16x2", 4},
		{".tf32", 4}, {".b64", 8}, {".u64", 8}, {".s64", 8}, {".f64", 8}, {".b128", 16},
	};
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (token->length == strlen(types[i].word) && !memcmp(token->text, types[i].word, token->length))
			return types[i].bytes;
	return 0;
}

// How much of a token a message shows.
static int shown(const struct token *token)
{
	return token->length < PTX_SHOWN ? (int)token->length : PTX_SHOWN;
}

// [4][2]: how many elements; 1 without brackets, UINT32_MAX for what no argument of ours can be.
static enum status read_dimensions(struct scanner *scanner, uint64_t *elements, struct error *error)
{
	*elements = 1;
	while (at_mark(scanner, '[')) {
		advance(scanner);
		uint32_t count = number_of(scanner);
		advance(scanner);
		if (!count || count == UINT32_MAX || !at_mark(scanner, ']'))
			return wrong(scanner, error, "an array needs a size in brackets");
		*elements *= count;
		if (*elements > UINT32_MAX)
			*elements = UINT32_MAX;
		advance(scanner);
	}
	return STATUS_OK;
}

// .param .u64 .ptr .global .align 16 name    or    .param .align 8 .b8 name[24]
static enum status read_argument(struct scanner *scanner, struct exogpu_kernel *kernel, struct error *error)
{
	unsigned bytes = 0, index = kernel->argument_count;
	uint64_t elements = 1;
	if (index == EXOGPU_KERNEL_ARGUMENTS)
		return wrong(scanner, error, "kernel %s takes more than %d arguments", kernel->name,
			     EXOGPU_KERNEL_ARGUMENTS);
	if (!at_word(scanner, ".param"))
		return wrong(scanner, error, "kernel %s: an argument begins with .param", kernel->name);
	for (advance(scanner); scanner->token.kind == TOKEN_WORD && *scanner->token.text == '.'; advance(scanner)) {
		if (at_word(scanner, ".align")) {
			advance(scanner);
			if (number_of(scanner) == UINT32_MAX)
				return wrong(scanner, error, "kernel %s: .align needs a number", kernel->name);
		} else if (type_bytes(&scanner->token)) {
			bytes = type_bytes(&scanner->token);
		} else if (!at_word(scanner, ".ptr") && !at_word(scanner, ".global") && !at_word(scanner, ".const") &&
			   !at_word(scanner, ".shared") && !at_word(scanner, ".local")) {
			return wrong(scanner, error, "kernel %s: argument %u has the type %.*s, which cannot be passed",
				     kernel->name, index, shown(&scanner->token), scanner->token.text);
		}
	}
	if (!bytes || !at_name(scanner))
		return wrong(scanner, error, "kernel %s: argument %u has no %s", kernel->name, index,
			     bytes ? "name" : "type");
	advance(scanner);
	enum status status = read_dimensions(scanner, &elements, error);
	if (status)
		return status;
	if (bytes * elements != 4 && bytes * elements != 8) {
		error_hint(error, "use 4 or 8 bytes an argument, and a buffer for larger structures");
		return wrong(scanner, error, "kernel %s: argument %u has %llu bytes; only 4 and 8 can be passed",
			     kernel->name, index, (unsigned long long)(bytes * elements));
	}
	kernel->arguments[kernel->argument_count++] = bytes * elements == 4 ? EXOGPU_ARGUMENT_WORD
									    : EXOGPU_ARGUMENT_DWORD;
	return STATUS_OK;
}

static enum status read_arguments(struct scanner *scanner, struct exogpu_kernel *kernel, struct error *error)
{
	if (!at_mark(scanner, '('))
		return STATUS_OK;
	advance(scanner);
	if (at_mark(scanner, ')')) {
		advance(scanner);
		return STATUS_OK;
	}
	for (;; advance(scanner)) {
		enum status status = read_argument(scanner, kernel, error);
		if (status)
			return status;
		if (at_mark(scanner, ')')) {
			advance(scanner);
			return STATUS_OK;
		}
		if (!at_mark(scanner, ','))
			return wrong(scanner, error, "kernel %s: a comma or ) must follow argument %u", kernel->name,
				     kernel->argument_count - 1);
	}
}

// .reqntid x, y, z: the only block that the kernel may be launched with. Other directives leave the choice.
static enum status read_block(struct scanner *scanner, struct exogpu_kernel *kernel, struct error *error)
{
	unsigned dimension = 0;
	kernel->block[1] = kernel->block[2] = 1;
	do {
		advance(scanner);
		uint32_t value = number_of(scanner);
		if (dimension == 3 || !value || value > PTX_BLOCK_MOST)
			return wrong(scanner, error, "kernel %s: .reqntid needs 1 to 3 sizes of a block", kernel->name);
		kernel->block[dimension++] = value;
		advance(scanner);
	} while (at_mark(scanner, ','));
	return STATUS_OK;
}

// A kernel may be declared and then defined: the same name again must be the same kernel.
static enum status add_kernel(struct ptx *ptx, const struct scanner *scanner, const struct exogpu_kernel *kernel,
			      struct error *error)
{
	for (unsigned i = 0; i < ptx->count; i++)
		if (!strcmp(ptx->kernels[i].name, kernel->name)) {
			if (!memcmp(&ptx->kernels[i], kernel, sizeof(*kernel)))
				return STATUS_OK;
			return wrong(scanner, error, "kernel %s is defined twice", kernel->name);
		}
	if (ptx->count == EXOGPU_MODULE_KERNELS)
		return wrong(scanner, error, "more than %d kernels", EXOGPU_MODULE_KERNELS);
	if (ptx->count % PTX_KERNELS_STEP == 0) {
		size_t room = ptx->count + PTX_KERNELS_STEP;
		struct exogpu_kernel *more = realloc(ptx->kernels, room * sizeof(*more));
		if (!more)
			return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for %zu kernels", room);
		ptx->kernels = more;
	}
	ptx->kernels[ptx->count++] = *kernel;
	return STATUS_OK;
}

static enum status read_kernel(struct scanner *scanner, struct ptx *ptx, struct error *error)
{
	struct exogpu_kernel kernel;
	memset(&kernel, 0, sizeof(kernel)); // it is compared as bytes
	advance(scanner);
	if (!at_name(scanner) || scanner->token.length >= sizeof(kernel.name))
		return wrong(scanner, error, ".entry needs a name of at most %zu characters", sizeof(kernel.name) - 1);
	memcpy(kernel.name, scanner->token.text, scanner->token.length);
	advance(scanner);
	enum status status = read_arguments(scanner, &kernel, error);
	while (!status && !at_mark(scanner, '{') && !at_mark(scanner, ';')) {
		if (at_word(scanner, ".reqntid"))
			status = read_block(scanner, &kernel, error);
		else if (scanner->token.kind == TOKEN_END || scanner->token.kind == TOKEN_BROKEN)
			status = wrong(scanner, error, "the text ends before kernel %s begins", kernel.name);
		else
			advance(scanner);
	}
	return status ? status : add_kernel(ptx, scanner, &kernel, error);
}

static enum status read_module(struct scanner *scanner, struct ptx *ptx, struct error *error)
{
	size_t depth = 0;
	enum status status = read_header(scanner, error);
	while (!status && scanner->token.kind != TOKEN_END) {
		if (scanner->token.kind == TOKEN_BROKEN)
			return wrong(scanner, error, "the text ends within a comment or a string");
		if (!depth && at_word(scanner, ".entry")) {
			status = read_kernel(scanner, ptx, error);
			continue; // at what follows it
		}
		if (at_mark(scanner, '}') && !depth)
			return wrong(scanner, error, "a } without its {");
		depth += at_mark(scanner, '{');
		depth -= at_mark(scanner, '}');
		advance(scanner);
	}
	if (!status && depth)
		status = wrong(scanner, error, "the text ends before its last }");
	if (!status && !ptx->count)
		status = wrong(scanner, error, "there is no kernel (.entry)");
	return status;
}

enum status ptx_init(struct ptx *ptx, const uint8_t *text, size_t length, struct error *error)
{
	struct scanner scanner = {.at = (const char *)text, .end = (const char *)text + length, .line = 1};
	*ptx = (struct ptx){0};
	if (!length)
		return error_set(error, STATUS_INVALID_PARAMS, "this PTX is empty");
	for (size_t i = 0; i < length; i++) {
		scanner.line += text[i] == '\n';
		if (text[i] == 127 || (text[i] < ' ' && !(text[i] >= '\t' && text[i] <= '\r')))
			return wrong(&scanner, error, "byte %zu is 0x%02x, and PTX is text", i, text[i]);
	}
	scanner.line = 1;
	enum status status = read_module(&scanner, ptx, error);
	if (status)
		ptx_finish(ptx);
	return status;
}

void ptx_finish(struct ptx *ptx)
{
	free(ptx->kernels);
	*ptx = (struct ptx){0};
}
