/* Fuzz target: rows of state.db that somebody else wrote: what a start loads of them, and what `exogpu state settle`
 * lists and would take away (server/store/load.c, bound_rows.c, settle.c).
 *
 * The tables have lost their rules, as they have for who writes what he likes, and hold a row or two of each kind that
 * the log has. Each step of the input puts a row, or takes one away:
 *
 *   u8 table (and 8: take away; and 16: eight tables on) | u8 which id (over 200: the value that follows) | a value for
 * each column that grants a value: u8 its type and what of it: as it was, NULL, an integer, a real, a text or bytes of
 * as many as follow
 *
 * Listing them changes nothing and never fails, and nothing that it finds fault with is loaded. */
#include "common/base/log.h"
#include "server/store/inside.h"
#include "server/store/sqlite/database.h"
#include "tests/fuzz/server/sqlite_memory.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { STEPS = 24, TABLES = BOUND_KINDS - 1, LISTED = 256, NEW_ID = 200 }; // an instance's workers are in its row

static char folder[] = "/dev/shm/exogpu-fuzz-XXXXXX";
static struct {
	struct net_loop *loop;
	struct store *store;
	sqlite3 *other; // who writes what he likes
	sqlite3_stmt *begin, *end, *empty[TABLES], *refill[TABLES], *take[TABLES], *put[TABLES], *version;
	bool spoilt[TABLES]; // it has something else than the log
	const uint8_t *data;
	size_t left;
	char listed[LISTED][BOUND_SUBJECT_BYTES];
	size_t listed_count, loaded;
} world;

static void require(bool condition)
{
	if (!condition)
		abort();
}

// ---- the database ----

static int remove_one(const char *name, const struct stat *info, int kind, struct FTW *where)
{
	(void)info, (void)kind, (void)where;
	return remove(name);
}

static void remove_folder(void)
{
	nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void run_sql(const char *sql)
{
	require(sqlite3_exec(world.other, sql, NULL, NULL, NULL) == SQLITE_OK);
}

static void put_rows(struct store_batch *batch)
{
	const struct store_token token = {.token_id = "tokenaaaaa", .name = "a", .scopes = 2, .expires_ms = 6};
	const struct store_token child = {
		.token_id = "tokenbbbbb", .parent_id = "tokenaaaaa", .name = "b", .scopes = 2};
	const struct store_node node = {.node_id = "node_1", .name = "one", .record = "{}"};
	const struct store_device device = {
		.device_id = "dev_1", .node_id = "node_1", .hardware_key = "pci:1", .record = "{}"};
	const struct store_certificate certificate = {
		.serial = "01ab", .node_id = "node_1", .sha256 = "aa", .key_sha256 = "bb", .not_after_ms = 2};
	const struct store_ticket ticket = {.ticket_id = "ticketaaaa", .made_by = "owner:0", .uses = 2, .used = 1};
	const struct store_lend lend = {.lend_id = "lendaaaaaa", .name = "l", .made_by = "owner:0", .uses = 2};
	const struct store_tab tab = {.node_id = "tab_1", .lend_id = "lendaaaaaa"};
	const struct store_model model = {.model_id = "mod_1",
					  .name = "m",
					  .source = "/m",
					  .request = "",
					  .path = "/m",
					  .state = "ready",
					  .state_reason = "",
					  .sha256 = "cc",
					  .architecture = ""};
	const struct store_instance instance = {.instance_id = "ins_1",
						.model_id = "mod_1",
						.model_name = "m",
						.wanted = "{}",
						.last = "{}",
						.workers = "[1]",
						.created_ms = 1};
	store_put_token(batch, &token);
	store_put_token(batch, &child);
	store_put_node(batch, &node);
	store_put_device(batch, &device);
	store_put_certificate(batch, &certificate);
	store_put_ticket(batch, &ticket);
	store_put_lend(batch, &lend);
	store_put_tab(batch, &tab);
	store_put_model(batch, &model);
	require(!store_put_instance(batch, &instance));
}

static void make_database(void)
{
	struct store *store = NULL;
	struct store_batch *batch = NULL;
	struct error error = {0};
	const struct store_params params = {.loop = world.loop, .directory = folder};
	const struct journal_entry entry = {
		.count = 1, .actor = "owner:0", .action = "token.create", .outcome = "ok", .detail = "{}"};
	require(!store_create(&store, &params, &error) && !store_batch_create(&batch));
	put_rows(batch);
	require(!store_put_audit(batch, &entry) && !store_commit_wait(store, &batch, &error));
	store_destroy(&store);
}

// The tables as who can write the file may leave them: of any types, without rules.
static void loosen(void)
{
	static const char *const rules[] = {" STRICT", " NOT NULL"};
	char sql[512];
	run_sql("PRAGMA writable_schema = ON");
	for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
		snprintf(sql, sizeof sql,
			 "UPDATE sqlite_schema SET sql = replace(sql, '%s', '') WHERE type = 'table' AND name IN "
			 "('nodes', 'devices', 'tokens', 'certificates', 'tickets', 'lends', 'tabs', 'alert_channels', "
			 "'models', "
			 "'instances') AND "
			 "sql NOT LIKE '%%WITHOUT ROWID%%'",
			 rules[i]);
		run_sql(sql);
	}
	run_sql("PRAGMA writable_schema = RESET");
}

static void prepare(sqlite3_stmt **out, const char *sql)
{
	require(sqlite3_prepare_v3(world.other, sql, -1, SQLITE_PREPARE_PERSISTENT, out, NULL) == SQLITE_OK);
}

static void open_other(void)
{
	char path[128];
	snprintf(path, sizeof path, "%s/state.db", folder);
	require(sqlite3_open(path, &world.other) == SQLITE_OK);
	run_sql("PRAGMA synchronous = OFF; PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON");
	loosen();
	run_sql("ATTACH ':memory:' AS base");
	for (enum bound_kind kind = 0; kind < TABLES; kind++) {
		const struct bound_table *table = &bound_tables[kind];
		char sql[1024], marks[64] = "";
		for (int i = 0; i < table->count; i++)
			snprintf(marks + strlen(marks), sizeof marks - strlen(marks), "%s?%d", i ? ", " : "", i + 1);
		snprintf(sql, sizeof sql, "CREATE TABLE base.%s AS SELECT * FROM main.%s", table->name, table->name);
		run_sql(sql);
		snprintf(sql, sizeof sql, "DELETE FROM main.%s", table->name);
		prepare(&world.empty[kind], sql);
		snprintf(sql, sizeof sql, "INSERT INTO main.%s SELECT * FROM base.%s", table->name, table->name);
		prepare(&world.refill[kind], sql);
		snprintf(sql, sizeof sql, "DELETE FROM main.%s WHERE %.*s = ?1", table->name,
			 (int)strcspn(table->columns, ","), table->columns);
		prepare(&world.take[kind], sql);
		snprintf(sql, sizeof sql, "INSERT OR IGNORE INTO main.%s (%s) VALUES (%s)", table->name, table->columns,
			 marks);
		prepare(&world.put[kind], sql);
	}
	prepare(&world.begin, "BEGIN IMMEDIATE");
	prepare(&world.end, "COMMIT");
	prepare(&world.version, "PRAGMA data_version");
}

static void list_row(void *context, const struct store_settled *row);
static const struct store_settling listing = {.actor = "owner:0", .row = list_row};

static void begin_once(void)
{
	struct error error = {0};
	if (world.loop)
		return;
	log_set_level(LOG_ERROR);
	// One page at a time: otherwise SQLite allocates twenty for every sorted list, which takes most of a run.
	require(sqlite3_config(SQLITE_CONFIG_PAGECACHE, NULL, 0, 0) == SQLITE_OK);
	require(sqlite_memory_use() == SQLITE_OK);
	require(mkdtemp(folder) && !atexit(remove_folder) && !net_loop_create(&world.loop, NULL));
	make_database();
	open_other();
	const struct store_params params = {.loop = world.loop, .directory = folder, .settling = &listing};
	require(!store_create(&world.store, &params, &error) && !world.listed_count);
}

// ---- who writes what he likes ----

static uint8_t next(void)
{
	if (!world.left)
		return 0;
	world.left--;
	return *world.data++;
}

static void step(sqlite3_stmt *statement)
{
	const int code = sqlite3_step(statement);
	require(code == SQLITE_DONE || code == SQLITE_ROW || code == SQLITE_CONSTRAINT || code == SQLITE_MISMATCH);
	sqlite3_reset(statement);
}

static void bind(sqlite3_stmt *statement, int column, const char *usual)
{
	const uint8_t how = next();
	int64_t integer = 0;
	size_t length = next();
	double real;
	length = length < world.left ? length : world.left;
	memcpy(&integer, world.data, length < sizeof integer ? length : sizeof integer);
	memcpy(&real, &integer, sizeof real);
	switch (how % 6) {
	case 0:
		sqlite3_bind_text(statement, column, usual, -1, SQLITE_STATIC);
		return; // without a length
	case 1:
		sqlite3_bind_null(statement, column);
		break;
	case 2:
		sqlite3_bind_int64(statement, column, integer);
		break;
	case 3:
		sqlite3_bind_double(statement, column, real);
		break;
	case 4:
		sqlite3_bind_text(statement, column, (const char *)world.data, (int)length, SQLITE_STATIC);
		break;
	default:
		sqlite3_bind_blob(statement, column, world.data, (int)length, SQLITE_STATIC);
		break;
	}
	world.data += length;
	world.left -= length;
}

static void write_row(void)
{
	static const char *const ids[] = {"tokenaaaaa", "tokenbbbbb", "node_1", "dev_1",  "01ab",       "ticketaaaa",
					  "mod_1",      "ins_1",      "other",  "node_2", "lendaaaaaa", "tab_1"};
	const uint8_t what = next(), which = next();
	const enum bound_kind kind = (enum bound_kind)((what % 8 + (what & 16 ? 8 : 0)) % TABLES);
	sqlite3_stmt *statement = what & 8 ? world.take[kind] : world.put[kind];
	world.spoilt[kind] = true;
	const char *id = ids[which % (sizeof ids / sizeof *ids)];
	if (which < NEW_ID)
		sqlite3_bind_text(statement, 1, id, -1, SQLITE_STATIC);
	else
		bind(statement, 1, id);
	for (int i = 1; i < bound_tables[kind].count && !(what & 8); i++)
		bind(statement, i + 1, ids[(which + (unsigned)i) % (sizeof ids / sizeof *ids)]);
	step(statement);
	sqlite3_clear_bindings(statement);
}

// Another number once somebody else has changed the database.
static int64_t version(void)
{
	require(sqlite3_step(world.version) == SQLITE_ROW);
	const int64_t number = sqlite3_column_int64(world.version, 0);
	sqlite3_reset(world.version);
	return number;
}

// ---- what is listed, and what is loaded ----

static void list_row(void *context, const struct store_settled *row)
{
	(void)context;
	require(!row->gone && row->text[0] && strlen(row->subject) < BOUND_SUBJECT_BYTES);
	bool fault = false; // else it rests on another, and is good itself
	for (enum bound_fault one = 0; one < BOUND_FAULTS; one++)
		fault = fault || !strcmp(row->text, bound_fault_text(one));
	if (fault && world.listed_count < LISTED)
		snprintf(world.listed[world.listed_count++], BOUND_SUBJECT_BYTES, "%s", row->subject);
}

static bool is_listed(const char *kind, const char *id)
{
	char subject[BOUND_SUBJECT_BYTES];
	snprintf(subject, sizeof subject, "%s %s", kind, id);
	for (size_t i = 0; i < world.listed_count; i++)
		if (!strcmp(world.listed[i], subject))
			return true;
	return false;
}

static void loaded(const char *kind, const char *id)
{
	world.loaded++;
	require(id && id[0] && !is_listed(kind, id));
}

static void load_node(void *context, const struct store_node *row)
{
	(void)context;
	loaded("node", row->node_id);
}
static void load_device(void *context, const struct store_device *row)
{
	(void)context;
	loaded("device", row->device_id);
}
static void load_token(void *context, const struct store_token *row)
{
	(void)context;
	loaded("token", row->token_id);
}
static void load_certificate(void *context, const struct store_certificate *row)
{
	(void)context;
	loaded("certificate", row->serial);
}
static void load_ticket(void *context, const struct store_ticket *row)
{
	(void)context;
	loaded("ticket", row->ticket_id);
}
static void load_lend(void *context, const struct store_lend *row)
{
	(void)context;
	loaded("lend", row->lend_id);
}
static void load_tab(void *context, const struct store_tab *row)
{
	(void)context;
	loaded("tab", row->node_id);
}
static void load_channel(void *context, const struct store_channel *row)
{
	(void)context;
	loaded("channel", row->channel_id);
}
static void load_model(void *context, const struct store_model *row)
{
	(void)context;
	loaded("model", row->model_id);
}
static void load_instance(void *context, const struct store_instance *row)
{
	(void)context;
	loaded("instance", row->instance_id);
}

static void load(void)
{
	struct store *store = world.store;
	struct error error = {0};
	require(!store_load_nodes(store, load_node, NULL, &error) &&
		!store_load_devices(store, load_device, NULL, &error) &&
		!store_load_tokens(store, load_token, NULL, &error) &&
		!store_load_certificates(store, load_certificate, NULL, &error) &&
		!store_load_tickets(store, load_ticket, NULL, &error) &&
		!store_load_lends(store, load_lend, NULL, &error) && !store_load_tabs(store, load_tab, NULL, &error) &&
		!store_load_channels(store, load_channel, NULL, &error) &&
		!store_load_models(store, load_model, NULL, &error) &&
		!store_load_instances(store, load_instance, NULL, &error));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct error error = {0};
	begin_once();
	world.data = data;
	world.left = size;
	step(world.begin);
	for (enum bound_kind kind = 0; kind < TABLES; kind++) {
		if (!world.spoilt[kind])
			continue;
		step(world.empty[kind]);
		step(world.refill[kind]);
		world.spoilt[kind] = false;
	}
	for (unsigned i = 0; i < STEPS && world.left; i++)
		write_row();
	step(world.end);
	const int64_t before = version();
	world.listed_count = world.loaded = 0;
	require(!store_settle(world.store, &listing, &error));
	load();
	require(version() == before);
	require(size || (!world.listed_count && world.loaded == 10));
	return 0;
}
