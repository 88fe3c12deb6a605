/* Types and functions that the interpreter's files share.
 *
 *   text --lexer--> tokens --parse, parse_expression--> tree of nodes --execute, evaluate--> text
 *
 * A template and a rendering have one arena each for all their memory, which is freed as a whole. So an error can leave
 * from any depth: work_fail notes the error and jumps to one of the two functions that begin such work
 * (jinja_template_create and jinja_render). Nothing that they call owns anything outside the arena. */
#pragma once
#include "common/base/limits.h"
#include "engine/jinja/jinja.h"

#include <setjmp.h>

// ---- memory and failure (work.c) ----

struct chunk;
struct work {
	jmp_buf failed;
	struct error *error;
	enum status status; // why it failed
	int line;           // of the template, that is being worked on
	unsigned depth;     // of nested work
	struct chunk *chunks;
	size_t bytes, bytes_most; // of all chunks
	uint64_t steps, steps_most;
};
_Noreturn void work_fail(struct work *work, enum status status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
// Memory that stays until work_free, aligned for anything, not cleared. Never NULL.
void *work_take(struct work *work, size_t bytes);
void *work_take_list(struct work *work, size_t count, size_t each);
void work_spend(struct work *work, uint64_t steps);
// Each work_enter has its work_leave; too many nested ones are a failure.
void work_enter(struct work *work);
void work_leave(struct work *work);
void work_free(struct work *work);

// ---- text (text.c) ----

enum origin { ORIGIN_OWN, ORIGIN_FOREIGN, ORIGIN_MIXED };
struct text {
	const char *bytes;      // (length), not ended by a NUL
	const uint8_t *origins; // (length), enum origin, of ORIGIN_MIXED only
	uint32_t length;
	uint8_t origin; // enum origin
};
struct builder { // a text that grows
	struct work *work;
	char *bytes;      // (capacity)
	uint8_t *origins; // (capacity)
	size_t length, capacity;
	bool own, foreign; // which kinds of text it contains
};
struct text text_of(const char *own); // keeps the pointer
struct text text_part(struct text text, size_t from, size_t to);
bool text_is(struct text text, const char *what);
bool text_equal(struct text a, struct text b);
int text_compare(struct text a, struct text b); // by code points
// The index of `what` in the text from `from` on, or SIZE_MAX.
size_t text_find(struct work *work, struct text text, struct text what, size_t from);
// Character by character. The length of the character at a place; the number of characters; the place of the n-th.
unsigned text_step(struct text text, size_t at);
size_t text_count(struct text text);
size_t text_place(struct text text, size_t character);
bool is_space(uint32_t character);
enum trim { TRIM_LEFT = 1, TRIM_RIGHT = 2, TRIM_BOTH = 3 };
struct text text_trim(struct text text, enum trim trim, const struct text *characters); // NULL: white space
uint8_t text_origin(struct text text, size_t at);

void builder_text(struct builder *builder, struct text text);
void builder_bytes(struct builder *builder, const char *bytes, size_t length, uint8_t origin);
void builder_own(struct builder *builder, const char *text);
void builder_character(struct builder *builder, uint32_t character, uint8_t origin);
struct text builder_end(struct builder *builder);

// ---- tokens (lexer.c) ----

enum symbol {
	SYMBOL_END,
	SYMBOL_DATA,       // text of the template
	SYMBOL_OUTPUT,     // {{
	SYMBOL_OUTPUT_END, // }}
	SYMBOL_BLOCK,      // {%
	SYMBOL_BLOCK_END,  // %}
	SYMBOL_NAME,
	SYMBOL_TEXT,
	SYMBOL_INTEGER,
	SYMBOL_FLOAT,
	SYMBOL_OPERATOR, // its characters are the text
};
struct token {
	enum symbol symbol;
	int line;
	struct text text;
	union {
		int64_t integer;
		double number;
	};
};
// Ends with SYMBOL_END.
struct token *lexer_read(struct work *work, const char *text, size_t length);

// ---- the tree (parse.c, parse_expression.c) ----

enum node_kind {
	NODE_TEXT, // expressions
	NODE_INTEGER,
	NODE_FLOAT,
	NODE_TRUE,
	NODE_FALSE,
	NODE_NONE,
	NODE_NAME,
	NODE_LIST,
	NODE_TUPLE,
	NODE_DICT, // children: key, value, key, value
	NODE_ATTRIBUTE,
	NODE_ITEM,
	NODE_SLICE, // first: the value; children: from, to, step, each may be NODE_ABSENT
	NODE_ABSENT,
	NODE_CALL,    // first: what; children: arguments
	NODE_FILTER,  // first: value, NULL in a filter block; text: name
	NODE_TEST,    // first: value; text: name
	NODE_KEYWORD, // an argument: text = first
	NODE_SPREAD,  // *first
	NODE_SPREAD_NAMED,
	NODE_NOT,
	NODE_NEGATE,
	NODE_PLUS,
	NODE_AND,
	NODE_OR,
	NODE_CONDITION, // first if second else third
	NODE_COMPARE,   // first, then children: NODE_OPERAND
	NODE_OPERAND,   // text: operator; first: operand
	NODE_BINARY,    // text: operator
	NODE_DATA,      // statements
	NODE_OUTPUT,
	NODE_IF,         // children: NODE_BRANCH
	NODE_BRANCH,     // first: condition, NULL for else; children
	NODE_FOR,        // first: target, second: the items, third: condition; children; otherwise: else
	NODE_SET,        // first: target, second: value
	NODE_SET_BLOCK,  // first: target, second: filters; children
	NODE_MACRO,      // text: name, first: list of NODE_PARAMETER; children
	NODE_PARAMETER,  // name, first: default
	NODE_CALL_BLOCK, // first: the call, second: parameters; children
	NODE_FILTER_BLOCK,
	NODE_WITH,  // first: list of NODE_SET; children
	NODE_SCOPE, // a generation block
	NODE_DO,
	NODE_BREAK,
	NODE_CONTINUE,
};
struct name { // each is there once: two are the same if their pointers are
	struct name *next;
	struct text text;
};
struct node {
	enum node_kind kind;
	int line;
	unsigned depth; // of the nodes below
	struct node *next;
	struct node *first, *second, *third, *children, *otherwise;
	const struct name *name; // of NODE_NAME, NODE_PARAMETER, NODE_MACRO, NODE_ATTRIBUTE
	struct text text;
	union {
		int64_t integer;
		double number;
	};
	bool recursive;               // NODE_FOR
	bool more, more_named, calls; // NODE_MACRO: it names varargs, kwargs, caller
};
enum { NAME_SLOTS = 256 };
struct parser {
	struct work *work;
	const struct token *at;
	struct name *names[NAME_SLOTS];
	struct node *macro; // whose body is read
	unsigned loops;     // around the place
};
struct node *parse_expression(struct parser *parser); // with conditions
struct node *parse_tuple(struct parser *parser, bool conditions);
struct node *parse_target(struct parser *parser, bool attributes);
struct node *parse_postfix_filters(struct parser *parser, struct node *node);
struct node *parse_arguments(struct parser *parser); // behind "("
struct node *parse_all(struct parser *parser);
struct node *node_make(struct parser *parser, enum node_kind kind);
void node_hold(struct parser *parser, struct node *node, const struct node *below);
const struct name *parse_intern(struct parser *parser, struct text text);
bool at_operator(const struct parser *parser, const char *what);
bool at_name(const struct parser *parser, const char *what);
bool take_operator(struct parser *parser, const char *what);
bool take_name(struct parser *parser, const char *what);
void expect_operator(struct parser *parser, const char *what);
_Noreturn void parse_fail(struct parser *parser, const char *wanted);

struct jinja_template {
	struct work work;
	struct node *body; // a list
	struct name *names[NAME_SLOTS];
};
const struct name *name_find(struct name *const names[NAME_SLOTS], struct text text);

// ---- values (value.c, show.c) ----

enum value_kind {
	VALUE_UNDEFINED,
	VALUE_NONE,
	VALUE_BOOL,
	VALUE_INTEGER,
	VALUE_FLOAT,
	VALUE_TEXT,
	VALUE_LIST,
	VALUE_TUPLE,
	VALUE_GENERATOR, // a list that is read once
	VALUE_DICT,
	VALUE_NAMESPACE,
	VALUE_MACRO,
	VALUE_FUNCTION,
	VALUE_LOOP,
};
struct value {
	uint8_t kind;  // enum value_kind
	uint8_t owner; // VALUE_UNDEFINED: the kind of the value that lacks it, or VALUE_UNDEFINED: a variable
	union {
		bool boolean;
		int64_t integer;
		double number;
		struct text text; // of VALUE_UNDEFINED: its name
		struct list *list;
		struct dict *dict;
		struct macro *macro;
		struct function *function;
		struct loop *loop;
	};
};
struct list {
	struct value *items; // (count)
	size_t count, capacity;
	size_t read; // of a generator
};
struct member {
	struct value key, value;
};
struct dict {
	struct member *members; // (count), in order
	size_t count, capacity;
};
struct run;
struct arguments {
	const struct value *values; // (count)
	size_t count;
	const struct member *named; // (named_count), the keys are text
	size_t named_count;
};
enum { MOST_PARAMETERS = 6 };
struct call {
	struct value self;
	const struct arguments *arguments;       // all, as they come
	const struct value *at[MOST_PARAMETERS]; // in the order of the builtin's parameters; NULL: not given
};
struct builtin {
	const char *name;
	const char *parameters; // their names; "*": it reads the arguments itself
	struct value (*call)(struct run *run, const struct call *call);
};
struct function {
	const struct builtin *builtin;
	struct value self;
};
struct variable {
	struct variable *next;
	const struct name *name;
	struct value value;
};
struct scope {
	struct scope *parent;
	struct variable *variables;
};
struct macro {
	const struct node *node; // NODE_MACRO or NODE_CALL_BLOCK
	struct text name;
	const struct node *parameters, *body;
	struct scope *scope; // where it is written
};
struct loop {
	const struct node *node;
	struct scope *scope;       // around it
	const struct value *items; // (count)
	size_t count, index, depth;
	const struct value *changed; // what loop.changed was last asked about
};
struct run {
	struct work work;
	const struct jinja_template *template;
	struct scope *scope;
	struct builder *out;
	struct value own, values; // dicts, or undefined
	struct value loop;        // the innermost, or undefined
	const char *const *own_texts;
	int64_t now_ms;
	enum leaving { LEAVING_NOT, LEAVING_ITERATION, LEAVING_LOOP } leaving;
};

struct value value_none(void);
struct value value_bool(bool value);
struct value value_integer(int64_t value);
struct value value_float(double value);
struct value value_text(struct text text);
struct value value_own(const char *text);
struct value value_list(struct run *run, enum value_kind kind, size_t capacity);
struct value value_dict(struct run *run, enum value_kind kind);
struct value value_undefined(struct text name, enum value_kind owner);
void value_list_add(struct run *run, struct list *list, struct value value);
void dict_set(struct run *run, struct dict *dict, struct value key, struct value value);
const struct value *dict_get(struct run *run, const struct dict *dict, struct value key); // NULL: not there
const struct value *dict_text(struct run *run, const struct dict *dict, struct text key);
struct value value_from_json(struct run *run, const struct json *json, enum origin origin);

const char *value_name(struct value value); // of its kind, as Python has it
bool value_true(struct run *run, struct value value);
bool value_equal(struct run *run, struct value a, struct value b);
int value_compare(struct run *run, struct value a, struct value b); // -1, 0, 1
bool value_contains(struct run *run, struct value inside, struct value what);
bool value_number(struct value value, double *out); // of numbers and booleans
bool value_index(struct value value, int64_t *out);
int64_t need_integer(struct run *run, struct value value);
struct text need_text(struct run *run, struct value value);
// The items to iterate over. For a generator the remaining items, which it then no longer has.
struct list value_items(struct run *run, struct value value);
size_t value_length(struct run *run, struct value value);
_Noreturn void undefined_fail(struct run *run, struct value value);
struct value value_attribute(struct run *run, struct value value, struct text name);
struct value value_item(struct run *run, struct value value, struct value key);
struct value value_slice(struct run *run, struct value value, const struct value bounds[3]);

struct text value_show(struct run *run, struct value value); // str()
void value_repr(struct run *run, struct builder *out, struct value value);
void show_float(struct builder *out, double number);
struct json_form {
	struct text between, colon;
	int indent; // -1: on one line
	bool ascii, sorted;
};
struct text value_to_json(struct run *run, struct value value, const struct json_form *form);

// ---- evaluation (evaluate.c, call.c, execute.c) ----

struct value evaluate(struct run *run, const struct node *node);
struct value evaluate_filters(struct run *run, const struct node *node, struct value value);
struct value binary(struct run *run, const char *operator, struct value a, struct value b);
struct value call_builtin(struct run *run, const struct builtin *builtin, struct value self,
			  const struct arguments *arguments);
struct value call_value(struct run *run, struct value callee, const struct arguments *arguments);
struct arguments evaluate_arguments(struct run *run, const struct node *list, const struct member *more);
struct value call_filter(struct run *run, struct text name, struct value value, const struct arguments *arguments);
bool call_test(struct run *run, struct text name, struct value value, const struct arguments *arguments);
void execute(struct run *run, const struct node *list);
struct text execute_to_text(struct run *run, const struct node *list);
struct text execute_loop_again(struct run *run, const struct loop *loop, struct value items);
struct text execute_macro(struct run *run, const struct macro *macro, const struct arguments *arguments);
void scope_set(struct run *run, const struct name *name, struct value value);
struct scope *scope_enter(struct run *run, struct scope *parent); // returns the one to leave to

// ---- built-in functions, filters and tests ----

const struct builtin *jinja_builtin(const struct builtin *list, struct text name);
extern const struct builtin jinja_text_methods[], jinja_list_methods[], jinja_dict_methods[], jinja_loop_methods[],
	jinja_functions[], jinja_text_filters[], jinja_list_filters[], jinja_value_filters[], jinja_cycler_methods[];
struct value format_percent(struct run *run, struct text form, const struct value *values, size_t count);
struct value format_braces(struct run *run, struct text form, const struct arguments *arguments);
struct text text_replace(struct run *run, struct text text, struct text old, struct text new, int64_t most);
// A path of attributes and indices, as "function.name".
struct value value_path(struct run *run, struct value value, struct value path);
