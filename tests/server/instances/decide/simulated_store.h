/* The real store under the simulated cluster (simulation.h): each change of an instance's state that the audit log
 * tells of is a batch of its row and its entry. Batches are committed by the store's own thread, to files, one after
 * the other; the virtual clock says when. Nobody is told of a change before that. A server that is killed loses the
 * batches that were not committed, and of some that were nobody was told; the next one knows what its store has.
 *
 * What must hold is in keeping_check, after each kill. Rows and entries are read from files that were opened again. */
#pragma once
#include "common/net/loop.h"
#include "server/store/store.h"
#include "tests/server/instances/decide/simulation.h"

#include <ftw.h>
#include <unistd.h>

enum { KEEPING_WAITING = 256, KEEPING_SEEDS = 100, EPOCHS_OF_A_START = 1024 };

struct keeping_commit {
	int instance; // whose news it is; -1: the entry is another batch's
	struct store_batch *batch;
	uint64_t epoch;
	bool fails; // the instance has failed
	int64_t at_ms;
};

struct keeping_row {
	bool there;
	uint64_t epoch;
	int64_t recoveries;
	char last[32]; // digits of devices
};

static struct {
	char directory[64];
	struct net_loop *loop;
	struct store *store;
	unsigned seeds;                                 // of this directory
	struct keeping_commit waiting[KEEPING_WAITING]; // oldest first
	unsigned waiting_count;
	struct {
		int64_t recoveries; // of changes that are under way, too
		uint64_t told_epoch;
		bool told_failed, found;
	} instances[INSTANCES];
} kept_in = {.directory = ""};

static uint64_t keeping_runs, keeping_commits, keeping_lost, keeping_starts;

static void keeping_must(enum status status, const char *what, const struct error *error)
{
	if (!status)
		return;
	fprintf(stderr, "the store of the simulation: %s: %s %s\n", what, status_text(status),
		error ? error->message : "");
	abort();
}

// A seed may be run again: the log has entries of the runs of before.
static const char *keeping_id(int instance, char id[48])
{
	snprintf(id, 48, "i_%llu_%d", (unsigned long long)keeping_runs, instance);
	return id;
}

// ---- files ----

static int keeping_remove(const char *path, const struct stat *status, int kind, struct FTW *ftw)
{
	(void)status, (void)kind, (void)ftw;
	return remove(path);
}

static void keeping_open(void)
{
	struct error error = {0};
	const struct store_params params = {.loop = kept_in.loop, .directory = kept_in.directory};
	keeping_must(store_create(&kept_in.store, &params, &error), "store_create", &error);
	keeping_starts++;
}

static void keeping_finish(void)
{
	store_destroy(&kept_in.store);
	if (kept_in.loop)
		net_loop_destroy(&kept_in.loop);
	if (kept_in.directory[0])
		nftw(kept_in.directory, keeping_remove, 16, FTW_DEPTH | FTW_PHYS);
	kept_in.directory[0] = 0;
}

// Where nothing waits for a disk, if there is such a place.
static void keeping_make(void)
{
	struct error error = {0};
	keeping_finish();
	snprintf(kept_in.directory, sizeof kept_in.directory, "%s/exogpu-simulation-XXXXXX",
		 access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
	if (!mkdtemp(kept_in.directory))
		abort();
	keeping_must(net_loop_create(&kept_in.loop, &error), "net_loop_create", &error);
	kept_in.seeds = 0;
	keeping_open();
}

// ---- batches ----

static void keeping_committed(void *context, enum status status, const struct error *error)
{
	(void)context;
	keeping_must(status, "a commit", error);
	net_loop_stop(kept_in.loop);
}

static void keeping_commit(struct store_batch **batch)
{
	keeping_must(store_commit(kept_in.store, batch, keeping_committed, NULL), "store_commit", NULL);
	net_loop_run(kept_in.loop);
	keeping_commits++;
}

static struct store_batch *keeping_batch(void)
{
	struct store_batch *batch = NULL;
	keeping_must(store_batch_create(&batch), "store_batch_create", NULL);
	return batch;
}

static void keeping_put(struct world *world, struct store_batch *batch, int instance, bool new)
{
	const struct instance *one = &world->instances[instance];
	char id[48], last[PARTS + 1] = "";
	for (unsigned i = 0; i < one->worker_count; i++)
		last[i] = (char)('0' + one->workers[i].device);
	const struct store_instance row = {.instance_id = keeping_id(instance, id),
					   .model_id = "m",
					   .model_name = "model",
					   .wanted = "{}",
					   .last = last,
					   .workers = "",
					   .epoch = (int64_t)one->epoch,
					   .recoveries = kept_in.instances[instance].recoveries,
					   .created_ms = 1};
	keeping_must((new ? store_put_instance : store_change_instance)(batch, &row), "a row", NULL);
}

static void keeping_enqueue(struct world *world, const struct keeping_commit *commit)
{
	const int64_t last_ms = kept_in.waiting_count ? kept_in.waiting[kept_in.waiting_count - 1].at_ms : 0,
		      at_ms = world->now_ms + 1 + (int64_t)draw(world, draw(world, 2) ? 20 : 4000);
	if (kept_in.waiting_count == KEEPING_WAITING)
		abort();
	kept_in.waiting[kept_in.waiting_count] = *commit;
	kept_in.waiting[kept_in.waiting_count++].at_ms = at_ms > last_ms ? at_ms : last_ms;
}

static void keeping_tell(const struct keeping_commit *commit)
{
	if (commit->instance < 0)
		return;
	kept_in.instances[commit->instance].told_epoch = commit->epoch;
	kept_in.instances[commit->instance].told_failed |= commit->fails;
}

static void keeping_changed(struct world *world, struct instance *instance, const char *action)
{
	const int number = (int)(instance - world->instances);
	char id[48];
	struct keeping_commit commit = {.instance = number,
					.batch = keeping_batch(),
					.epoch = instance->epoch,
					.fails = instance->state == INSTANCE_FAILED};
	if (commit.fails) {
		keeping_must(store_remove_instance(commit.batch, keeping_id(number, id)), "no row", NULL);
	} else {
		kept_in.instances[number].recoveries++;
		keeping_put(world, commit.batch, number, false);
	}
	if (world->planted == PLANTED_TWO_BATCHES) {
		struct keeping_commit row = commit;
		row.instance = -1;
		keeping_enqueue(world, &row);
		commit.batch = keeping_batch();
	}
	const struct journal_entry entry = {
		.count = 1, .actor = "server", .action = action, .target = keeping_id(number, id)};
	keeping_must(store_put_audit(commit.batch, &entry), "an entry", NULL);
	keeping_enqueue(world, &commit);
	if (world->planted == PLANTED_TOLD_EARLY)
		keeping_tell(&commit);
}

static void keeping_take_first(void)
{
	memmove(kept_in.waiting, kept_in.waiting + 1, --kept_in.waiting_count * sizeof kept_in.waiting[0]);
}

static int64_t keeping_next(const struct world *world)
{
	(void)world;
	return kept_in.waiting_count ? kept_in.waiting[0].at_ms : INT64_MAX;
}

static void keeping_happen(struct world *world)
{
	while (kept_in.waiting_count && kept_in.waiting[0].at_ms <= world->now_ms) {
		keeping_commit(&kept_in.waiting[0].batch);
		keeping_tell(&kept_in.waiting[0]);
		keeping_take_first();
	}
}

static void keeping_drop(void)
{
	for (; kept_in.waiting_count; keeping_take_first())
		store_batch_destroy(&kept_in.waiting[0].batch);
}

// ---- killed ----

struct keeping_reading {
	struct keeping_row rows[INSTANCES];
	unsigned entries;
};

static void keeping_row(void *context, const struct store_instance *row)
{
	struct keeping_reading *reading = context;
	char id[48];
	for (int i = 0; i < INSTANCES; i++) {
		struct keeping_row *one = &reading->rows[i];
		if (strcmp(row->instance_id, keeping_id(i, id)) != 0)
			continue;
		*one = (struct keeping_row){
			.there = true, .epoch = (uint64_t)row->epoch, .recoveries = row->recoveries};
		snprintf(one->last, sizeof one->last, "%s", row->last);
	}
}

static void keeping_listed(void *context, enum status status, struct json *result, const struct error *error)
{
	struct keeping_reading *reading = context;
	keeping_must(status, "store_list_audit", error);
	for (const struct json *entry = json_first(json_get(result, "entries")); entry; entry = json_next(entry))
		reading->entries++;
	if (json_get_bool(result, "more", false))
		keeping_must(STATUS_LIMIT_EXCEEDED, "too many entries for one page", NULL);
	json_destroy(&result);
	net_loop_stop(kept_in.loop);
}

static unsigned keeping_count(struct keeping_reading *reading, int instance, const char *action)
{
	char id[48];
	const struct store_audit_filter filter = {
		.after = -1, .limit = 500, .action = action, .text = keeping_id(instance, id)};
	reading->entries = 0;
	keeping_must(store_list_audit(kept_in.store, &filter, keeping_listed, reading), "store_list_audit", NULL);
	net_loop_run(kept_in.loop);
	return reading->entries;
}

static void keeping_check(struct world *world, struct keeping_reading *reading, int instance)
{
	struct instance *one = &world->instances[instance];
	const struct keeping_row *row = &reading->rows[instance];
	const unsigned placed = keeping_count(reading, instance, "instance.placed_anew"),
		       failed = keeping_count(reading, instance, "instance.failed");
	if (failed != !row->there || (row->there && row->recoveries != (int64_t)placed))
		broken(world, "row and entry are one", one,
		       failed ? "an entry says that it has failed" : "the row is of another change than the entries");
	if ((row->there && row->epoch < kept_in.instances[instance].told_epoch) ||
	    (row->there && kept_in.instances[instance].told_failed))
		broken(world, "what is told is on disk", one, "a change that was told of is gone");
}

// Of the next server, by its row.
static void keeping_restore(struct world *world, int instance, const struct keeping_row *row)
{
	struct instance *one = &world->instances[instance];
	kept_in.instances[instance].found = row->there && row->epoch == one->epoch;
	if (!row->there) {
		one->state = INSTANCE_FAILED; // it is in no list
		one->worker_count = 0;
		return;
	}
	if (one->state == INSTANCE_FAILED) // nobody was told
		one->state = INSTANCE_PAUSED;
	one->epoch = row->epoch + (world->planted == PLANTED_EPOCHS_AGAIN ? 0 : EPOCHS_OF_A_START);
	kept_in.instances[instance].recoveries = row->recoveries;
	one->missing_count = 0;
	for (const char *digit = row->last; *digit; digit++)
		one->missing[one->missing_count++] = (unsigned)(*digit - '0');
}

static void keeping_restart(struct world *world)
{
	struct error error = {0};
	struct keeping_reading reading = {.entries = 0};
	struct store_batch *batch = keeping_batch();
	for (uint64_t left = draw(world, kept_in.waiting_count + 1); left; left--) { // and nobody hears of it
		keeping_commit(&kept_in.waiting[0].batch);
		keeping_take_first();
	}
	keeping_lost += kept_in.waiting_count;
	keeping_drop();
	store_destroy(&kept_in.store);
	keeping_open();
	keeping_must(store_load_instances(kept_in.store, keeping_row, &reading, &error), "rows", &error);
	for (int i = 0; i < INSTANCES; i++) {
		keeping_check(world, &reading, i);
		keeping_restore(world, i, &reading.rows[i]);
		if (reading.rows[i].there)
			keeping_put(world, batch, i, false);
	}
	keeping_must(store_commit_wait(kept_in.store, &batch, &error), "epochs", &error);
}

static bool keeping_found(struct world *world, struct instance *instance)
{
	return kept_in.instances[instance - world->instances].found;
}

// ---- a run ----

static void keeping_begin(struct world *world)
{
	struct store_batch *batch;
	if (!kept_in.store || kept_in.seeds++ == KEEPING_SEEDS)
		keeping_make();
	memset(kept_in.instances, 0, sizeof kept_in.instances);
	keeping_runs++;
	batch = keeping_batch();
	for (int i = 0; i < INSTANCES; i++) {
		kept_in.instances[i].told_epoch = world->instances[i].epoch;
		keeping_put(world, batch, i, true);
	}
	keeping_commit(&batch);
}

static void keeping_end(void)
{
	struct store_batch *batch = keeping_batch();
	char id[48];
	keeping_drop();
	for (int i = 0; i < INSTANCES; i++)
		keeping_must(store_remove_instance(batch, keeping_id(i, id)), "no row", NULL);
	keeping_commit(&batch);
}

static const struct keeping real_keeping = {.begin = keeping_begin,
					    .changed = keeping_changed,
					    .restart = keeping_restart,
					    .found = keeping_found,
					    .next = keeping_next,
					    .happen = keeping_happen,
					    .end = keeping_end};
