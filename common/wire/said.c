/* See said.h. A form is one line of the list: fixed bytes and conversions in turn, each conversion one arg. */
#include "common/wire/said.h"

#include "common/files/embedded.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	FEW_LETTERS = 6, // a form with fewer and with strings fits much that it is not meant for
	MOST_WORK =
		100000, // for a text, in forms and places looked at: about a millisecond; a sentence of ours takes 500
	FORM_WORK = 2000, // of it, for one form
};

struct form {
	const char *text;
	size_t fixed;     // bytes outside its conversions
	const char *tail; // those after the last conversion
	size_t tail_bytes;
	unsigned char group; // its first byte; 0: it begins with a conversion
	bool weak;           // tried last
	bool plain;          // without a conversion
	const char *places;  // what each conversion prints: 'n' a name, 'w' perhaps one word of ours, or NULL
};

// Forms that can fit a text, those with most fixed bytes first.
struct run {
	const struct form *at, *end;
};

// Made once, by whoever asks first; as long as the process.
static struct {
	struct json *list;  // holds the texts
	struct form *forms; // (count), by weakness, group and fixed bytes
	size_t count;
	struct run runs[2][256]; // of the strong and the weak ones
} known;
static pthread_once_t known_made = PTHREAD_ONCE_INIT;

struct conversion {
	char kind;         // 's', 'c', 'x', 'd' for integers, 'f' for other numbers; 0: none that is known
	size_t most;       // bytes of a string
	bool may_be_empty; // "%.0u" prints nothing for 0
};

struct part {
	const char *text; // (length)
	size_t length;
	bool words; // a string, which may be a sentence unless it is a name
};

struct walk {
	const char *end; // of the text
	struct part parts[SAID_ARGS];
	size_t count;
	int work; // left for the form
};

// ---- the list ----

// Returns what comes after the conversion that begins at `at`, a '%'.
static const char *read_conversion(const char *at, struct conversion *out)
{
	static const struct {
		const char *letters;
		char kind;
	} kinds[] = {{"s", 's'}, {"c", 'c'}, {"xX", 'x'}, {"diu", 'd'}, {"fFeEgG", 'f'}};
	*out = (struct conversion){.most = SIZE_MAX};
	at++;
	at += strspn(at, "-+#0");
	at += strspn(at, "0123456789*");
	if (*at == '.') {
		at++;
		out->may_be_empty = *at == '0';
		if (*at >= '0' && *at <= '9')
			out->most = strtoul(at, NULL, 10);
		at += strspn(at, "0123456789*");
	}
	at += strspn(at, "hlzjt");
	for (size_t i = 0; *at && i < sizeof kinds / sizeof *kinds; i++)
		if (strchr(kinds[i].letters, *at))
			out->kind = kinds[i].kind;
	return *at ? at + 1 : at;
}

// "20 % of" holds none; it is no format, but an arg of one.
static bool at_conversion(const char *form)
{
	return form[0] == '%' && form[1] != '%' && form[1] != ' ' && form[1];
}

static size_t fixed_bytes(const char *form)
{
	return form[0] == '%' && form[1] == '%' ? 2 : 1;
}

// A form; without fixed bytes if it is none that can be told from others.
static struct form weigh(const char *form)
{
	struct form out = {.text = form, .tail = form, .group = at_conversion(form) ? 0 : (unsigned char)*form};
	size_t args = 0, letters = 0;
	bool strings = false;
	while (*form) {
		struct conversion conversion;
		if (at_conversion(form)) {
			form = read_conversion(form, &conversion);
			if (!conversion.kind || ++args > SAID_ARGS)
				return (struct form){0};
			strings = strings || conversion.kind == 's';
			out.tail = form;
			continue;
		}
		letters += (*form >= 'a' && *form <= 'z') || (*form >= 'A' && *form <= 'Z');
		out.fixed++;
		form += fixed_bytes(form);
	}
	out.tail_bytes = strchr(out.tail, '%') ? 0 : strlen(out.tail);
	out.plain = !strchr(out.text, '%');
	out.weak = strings && letters < FEW_LETTERS;
	return letters ? out : (struct form){0};
}

static int by_run(const void *a, const void *b)
{
	const struct form *one = a, *other = b;
	if (one->weak != other->weak || one->group != other->group)
		return one->weak != other->weak ? one->weak - other->weak : one->group - other->group;
	return one->fixed != other->fixed ? (one->fixed < other->fixed ? 1 : -1) : strcmp(one->text, other->text);
}

static void make_known(void)
{
	const struct embedded_file *file = embedded_find("schema/sentences.json");
	size_t count = 0;
	if (!file || json_parse(&known.list, (const char *)file->data, file->length, NULL))
		return;
	const struct json *places = json_get(known.list, "places");
	for (const struct json *area = json_first(known.list); area; area = json_next(area))
		count += json_count(area);
	known.forms = calloc(count, sizeof *known.forms);
	if (!known.forms)
		return;
	for (const struct json *area = json_first(known.list); area; area = json_next(area))
		for (const struct json *one = json_first(area); one && area != places; one = json_next(one)) {
			struct form form = weigh(json_string(one, ""));
			form.places = json_get_string(places, json_string(one, ""), NULL);
			if (form.fixed)
				known.forms[known.count++] = form;
		}
	qsort(known.forms, known.count, sizeof *known.forms, by_run);
	for (struct form *form = known.forms; form < known.forms + known.count; form++) {
		struct run *run = &known.runs[form->weak][form->group];
		*run = (struct run){run->at ? run->at : form, form + 1};
	}
}

// ---- one form ----

static size_t digits(const char *at, const char *end, bool hex)
{
	size_t length = 0;
	while (at + length < end &&
	       ((at[length] >= '0' && at[length] <= '9') ||
		(hex && ((at[length] >= 'a' && at[length] <= 'f') || (at[length] >= 'A' && at[length] <= 'F')))))
		length++;
	return length;
}

// The bytes at `at` that are a number as printf writes it; 0: none.
static size_t number(const struct conversion *conversion, const char *at, const char *end)
{
	const char *from = at;
	while (at < end && *at == ' ')
		at++;
	if (at < end && (*at == '-' || *at == '+'))
		at++;
	if (conversion->kind == 'f' && end - at >= 3 && (!memcmp(at, "inf", 3) || !memcmp(at, "nan", 3)))
		return (size_t)(at - from) + 3;
	const size_t whole = digits(at, end, conversion->kind == 'x');
	if (!whole)
		return 0;
	at += whole;
	if (conversion->kind != 'f')
		return (size_t)(at - from);
	if (end - at >= 2 && *at == '.')
		at += digits(at + 1, end, false) ? 1 + digits(at + 1, end, false) : 0;
	if (end - at >= 3 && *at == 'e' && (at[1] == '-' || at[1] == '+'))
		at += digits(at + 2, end, false) ? 2 + digits(at + 2, end, false) : 0;
	return (size_t)(at - from);
}

static bool match(struct walk *walk, const char *form, const char *at);

static bool match_part(struct walk *walk, const char *form, const char *at, size_t length, bool words)
{
	const size_t place = walk->count;
	walk->parts[walk->count++] = (struct part){.text = at, .length = length, .words = words};
	if (match(walk, form, at + length))
		return true;
	walk->count = place;
	return false;
}

// A string that a conversion follows at once: the longest that is a form by itself, as in "through " and "the server".
static bool match_plain(struct walk *walk, size_t most, const char *form, const char *at)
{
	const struct run run = known.runs[false][(unsigned char)*at];
	for (const struct form *one = run.at; one < run.end && --walk->work > 0; one++)
		if (one->plain && one->fixed <= most && !memcmp(one->text, at, one->fixed) &&
		    match_part(walk, form, at, one->fixed, true))
			return true;
	return false;
}

// A string: as short as it can be for the rest to match, but the last of a form takes what is left.
static bool match_string(struct walk *walk, const struct conversion *conversion, const char *form, const char *at)
{
	const size_t left = (size_t)(walk->end - at), most = left < conversion->most ? left : conversion->most;
	if (!*form)
		return left <= most && match_part(walk, form, at, left, true);
	if (left && at_conversion(form) && match_plain(walk, most, form, at))
		return true;
	for (size_t length = 0; length <= most && --walk->work > 0; length++)
		if ((at_conversion(form) || (length < left && at[length] == *form)) &&
		    match_part(walk, form, at, length, true))
			return true;
	return false;
}

static bool match(struct walk *walk, const char *form, const char *at)
{
	if (--walk->work <= 0)
		return false;
	for (; *form && !at_conversion(form); form += fixed_bytes(form))
		if (at == walk->end || *at++ != *form)
			return false;
	if (!*form)
		return at == walk->end;
	struct conversion conversion;
	form = read_conversion(form, &conversion);
	if (walk->count == SAID_ARGS)
		return false;
	if (conversion.kind == 's')
		return match_string(walk, &conversion, form, at);
	const size_t length = conversion.kind != 'c' ? number(&conversion, at, walk->end) : at < walk->end;
	return (length || conversion.may_be_empty) && match_part(walk, form, at, length, false);
}

// ---- a text ----

static struct json *read_text(const char *text, size_t length, int depth, int *work);
enum which { STRONG, WEAK, BEHIND }; // BEHIND: strong ones that do not begin with a conversion
static struct json *read_form(const char *text, size_t length, enum which which, int depth, int *work);

static struct json *text_value(const char *text, size_t length)
{
	char copy[SAID_BYTES + 1];
	memcpy(copy, text, length);
	copy[length] = 0;
	return json_new_string(copy);
}

static struct json *made(const char *key, struct json *args)
{
	struct json *said = json_new_object();
	json_set_string(said, "key", key);
	json_set(said, "args", args);
	return said;
}

// The same of a part of a text. A single word may be what somebody called a machine or a file: "nodes".
static struct json *read_words(const char *text, size_t length, int depth, int *work)
{
	return memchr(text, ' ', length) ? read_text(text, length, depth, work) : NULL;
}

// `place`: see struct form.
static struct json *value_of(const struct part *part, char place, int depth, int *work)
{
	struct json *inner = NULL;
	if (part->words && place == 'w')
		inner = read_text(part->text, part->length, depth + 1, work);
	else if (part->words && place != 'n')
		inner = read_words(part->text, part->length, depth + 1, work);
	return inner ? inner : text_value(part->text, part->length);
}

// A sentence and what was printed behind it, such as "; its interface runs at %.0f Mbit/s" or, behind a full stop,
// " Of %lu entries only the hashes are kept". Both are known.
static struct json *read_appended(const char *text, size_t length, int depth, int *work)
{
	*work -= (int)length;
	for (size_t at = 1; at + 2 < length && *work > 0; at++) {
		const bool joined = strchr(";:,", text[at]) && text[at + 1] == ' ';
		if (!joined && (text[at] != ' ' || text[at - 1] != '.'))
			continue;
		struct json *second = read_form(text + at, length - at, BEHIND, depth + 1, work);
		struct json *first = second ? read_text(text, at, depth + 1, work) : NULL;
		if (first) {
			struct json *args = json_new_array();
			json_push(args, first);
			json_push(args, second);
			return made("%s%s", args);
		}
		json_destroy(&second);
	}
	return NULL;
}

// Two sentences, of which one is known; the other may be missing, or be a name.
static struct json *read_joint(const char *text, size_t length, int depth, int *work)
{
	static const char *const joints[] = {"; ", ": ", ", "};
	*work -= (int)length;
	for (size_t i = 0; i < sizeof joints / sizeof *joints; i++)
		for (size_t at = 0; at + 2 < length && *work > 0; at++) {
			if (text[at] != joints[i][0] || text[at + 1] != ' ' || (i == 2 && at))
				continue;
			struct json *second = read_words(text + at + 2, length - at - 2, depth + 1, work), *args;
			if (!second && !at)
				return NULL;
			struct json *first = at ? read_words(text, at, depth + 1, work) : NULL;
			if (!first && !second)
				continue;
			args = json_new_array();
			if (at)
				json_push(args, first ? first : text_value(text, at));
			json_push(args, json_new_string(joints[i]));
			json_push(args, second ? second : text_value(text + at + 2, length - at - 2));
			return made(at ? "%s%s%s" : "%s%s", args);
		}
	return NULL;
}

// The next of both runs, by their fixed bytes; NULL at the end.
static const struct form *next_form(struct run *one, struct run *other)
{
	if (one->at == one->end && other->at == other->end)
		return NULL;
	const bool first = other->at == other->end || (one->at < one->end && one->at->fixed >= other->at->fixed);
	return first ? one->at++ : other->at++;
}

static bool fits(const struct form *form, const char *text, size_t length, struct walk *walk, int *work)
{
	--*work;
	if (form->fixed > length || memcmp(text + length - form->tail_bytes, form->tail, form->tail_bytes) != 0)
		return false;
	walk->end = text + length;
	walk->count = 0;
	walk->work = FORM_WORK;
	const bool fitting = match(walk, form->text, text);
	*work -= FORM_WORK - walk->work;
	return fitting;
}

// The text by the first form that fits.
static struct json *read_form(const char *text, size_t length, enum which which, int depth, int *work)
{
	struct walk walk;
	struct run own = known.runs[which == WEAK][(unsigned char)*text], open = known.runs[which == WEAK][0];
	if (which == BEHIND)
		open.at = open.end;
	const struct form *form;
	while (*work > 0 && (form = next_form(&own, &open))) {
		if (!fits(form, text, length, &walk, work))
			continue;
		struct json *args = json_new_array();
		const size_t placed = form->places ? strlen(form->places) : 0;
		for (size_t i = 0; i < walk.count; i++)
			json_push(args, value_of(&walk.parts[i], i < placed ? form->places[i] : '.', depth, work));
		return made(form->text, args);
	}
	return NULL;
}

static struct json *read_text(const char *text, size_t length, int depth, int *work)
{
	if (depth >= SAID_DEPTH || length < 3 || --*work <= 0)
		return NULL;
	struct json *said = read_form(text, length, STRONG, depth, work);
	if (!said)
		said = read_appended(text, length, depth, work);
	if (!said)
		said = read_joint(text, length, depth, work);
	return said ? said : read_form(text, length, WEAK, depth, work);
}

struct json *said_read(const char *text)
{
	const size_t length = strnlen(text, SAID_BYTES + 1);
	int work = MOST_WORK;
	pthread_once(&known_made, make_known);
	return length <= SAID_BYTES ? read_text(text, length, 0, &work) : NULL;
}

static void set_beside(struct json *object, const char *name, struct json *said)
{
	char beside[64];
	snprintf(beside, sizeof beside, "%.50s_said", name);
	json_remove(object, beside);
	if (said)
		json_set(object, beside, said);
}

void said_set(struct json *object, const char *name, const char *text)
{
	json_set_string(object, name, text);
	set_beside(object, name, text ? said_read(text) : NULL);
}

// NULL: none of them is known.
static struct json *read_each(const struct json *texts)
{
	bool any = false;
	struct json *list = json_new_array();
	for (const struct json *one = json_first(texts); one; one = json_next(one)) {
		struct json *said = said_read(json_string(one, ""));
		any = any || said;
		json_push(list, said ? said : json_new_null());
	}
	if (!any)
		json_destroy(&list);
	return list;
}

void said_beside(struct json *object, const char *name)
{
	const struct json *member = json_get(object, name);
	const char *text = json_string(member, NULL);
	struct json *said = text ? said_read(text) : NULL;
	if (json_type(member) == JSON_ARRAY)
		said = read_each(member);
	set_beside(object, name, said);
}
