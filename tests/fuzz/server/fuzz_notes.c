/* Fuzz target: what a session's worker writes into the memory that it shares with the server, and says by its stream
 * meanwhile (server/tenants/sharing.c, stream.c).
 *
 * Each byte is a turn, of the server or of the worker, and is followed by what that takes. As long as the worker says
 * only what is so, it lives, and what it has done is told at its next bell. Whatever it says otherwise, each call is
 * told once, a read is well only with the bytes that it is about, and nothing is kept of it after its end. */
#include "tests/server/tenants/notes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum turn {
	SERVER_READS,
	SERVER_FREES,
	WORKER_LOOKS,
	WORKER_HAS_READ,
	WORKER_RINGS,
	WORKER_ANSWERS,
	WORKER_HAS_READ_ANY, // from here on it may lie
	WORKER_ANSWERS_ANY,
	WORKER_SAYS,
	WORKER_SPOILS,
	NODE_SAYS_IT_ENDED,
	TURNS,
};

struct heard { // by the worker
	int64_t id;
	uint8_t which;
};

static struct {
	const uint8_t *data;
	size_t left;
	bool lies;
	bool reads[CALLS], done[CALLS]; // the newest call of this number: it is a read; a note says that it is done
	size_t puts, rings;
	struct heard notes[256], messages[256]; // those not answered yet
	size_t note_count, message_count;
} run;

static uint8_t next(void)
{
	if (!run.left)
		return 0;
	run.left--;
	return *run.data++;
}

// All of `to` that is left.
static size_t next_bytes(uint8_t *to, size_t size)
{
	const size_t taken = size < run.left ? size : run.left;
	memcpy(to, run.data, taken);
	run.data += taken;
	run.left -= taken;
	return taken;
}

static bool take(struct heard *list, size_t *count, struct heard *out)
{
	if (!*count)
		return false;
	const size_t at = next() % *count;
	*out = list[at];
	list[at] = list[--*count];
	return true;
}

static void server_reads(void)
{
	const uint8_t which = next() % CALLS;
	int64_t id;
	if (world.told[which] == STATUS_PENDING)
		return;
	run.reads[which] = true;
	run.done[which] = false;
	if (!ask(which, &id))
		run.messages[run.message_count++] = (struct heard){id, which};
}

static void server_frees(void)
{
	const uint8_t which = next() % CALLS;
	if (world.told[which] == STATUS_PENDING)
		return;
	run.reads[which] = run.done[which] = false;
	run.messages[run.message_count++] = (struct heard){send_free(which), which};
}

static void worker_looks(void)
{
	struct net_shared_note note;
	if (run.note_count == 256 || !net_shared_get(world.shared, &note))
		return;
	require(run.lies || (note.handle == 7 && note.offset < CALLS && note.bytes == PIECE &&
			     net_shared_at(world.shared, note.at, PIECE)));
	run.notes[run.note_count++] = (struct heard){(int64_t)note.call, (uint8_t)(note.offset % CALLS)};
}

static void put(uint64_t call)
{
	done(call);
	run.puts++;
}

static void worker_has_read(void)
{
	struct heard one;
	if (!take(run.notes, &run.note_count, &one))
		return;
	put((uint64_t)one.id);
	run.done[one.which] = true;
}

static void worker_rings(void)
{
	run.lies |= ++run.rings > run.puts; // for nothing
	ring();
	for (size_t i = 0; i < CALLS && !run.lies; i++)
		require(!run.done[i] || (!world.told[i] && world.with_body[i]));
}

static void worker_answers(void)
{
	struct heard one;
	if (!take(run.messages, &run.message_count, &one))
		return;
	answer(one.id, run.reads[one.which] ? "\"bytes\":65536" : "");
	require(run.lies || !world.told[one.which]);
}

static void worker_answers_any(void)
{
	static const char *const results[] = {"", "\"bytes\":65536", "\"bytes\":65535", "\"shared\":true",
					      "\"bytes\":-1"};
	const int64_t id = next();
	answer(id, results[next() % (sizeof results / sizeof *results)]);
}

static void worker_has_read_any(void)
{
	uint64_t call = 0;
	uint8_t bytes[sizeof call];
	memcpy(&call, bytes, next_bytes(bytes, next() & 1 ? sizeof call : 1));
	put(call);
}

static void worker_says(void)
{
	char text[257];
	text[next_bytes((uint8_t *)text, next())] = 0;
	say(text);
}

// How many notes there are, more or fewer; or anything but that.
static void worker_spoils(void)
{
	enum { LANE = (NET_SHARED_ALL_BYTES - LIMIT_SHARED_BYTES) / 2 };
	const size_t where = next(), at = where * 2 * LANE / 256;
	uint8_t bytes[64] = {0};
	const size_t size = next_bytes(bytes, next() % sizeof bytes), room = 2 * LANE - at;
	uint32_t counts[2], more;
	memcpy(&counts[0], lanes(), sizeof *counts);
	memcpy(&counts[1], lanes() + LANE, sizeof *counts);
	memcpy(&more, bytes, sizeof more);
	if (where & 1)
		counts[where >> 1 & 1] += more;
	else
		memcpy(lanes() + at, bytes, size < room ? size : room);
	memcpy(lanes(), &counts[0], sizeof *counts);
	memcpy(lanes() + LANE, &counts[1], sizeof *counts);
}

static void turn(enum turn turn)
{
	run.lies |= turn >= WORKER_HAS_READ_ANY;
	switch (turn) {
	case SERVER_READS:
		server_reads();
		break;
	case SERVER_FREES:
		server_frees();
		break;
	case WORKER_LOOKS:
		worker_looks();
		break;
	case WORKER_HAS_READ:
		worker_has_read();
		break;
	case WORKER_RINGS:
		worker_rings();
		break;
	case WORKER_ANSWERS:
		worker_answers();
		break;
	case WORKER_HAS_READ_ANY:
		worker_has_read_any();
		break;
	case WORKER_ANSWERS_ANY:
		worker_answers_any();
		break;
	case WORKER_SAYS:
		worker_says();
		break;
	case WORKER_SPOILS:
		worker_spoils();
		break;
	case NODE_SAYS_IT_ENDED:
		tenancy_worker_ended(&world.tenants, "", "wrk_1", "signal 9");
		break;
	case TURNS:
		break;
	}
}

// As many notes were put as taken, whatever lies in the lane, and the next one is the first of it.
static void settle(struct net_shared *from, struct net_shared *to, uint8_t *lane, uint32_t *last)
{
	static const struct net_shared_note none;
	struct net_shared_note note;
	_Atomic uint32_t *count = (_Atomic uint32_t *)lane;
	memset(lane, 0, (NET_SHARED_ALL_BYTES - LIMIT_SHARED_BYTES) / 2);
	for (*count = *last; net_shared_noted(to);)
		++*count;
	const uint32_t taken = *count;
	do
		net_shared_put(from, &none);
	while (*count % NET_SHARED_NOTES || (int32_t)(*count - taken) < 0);
	*last = *count;
	while (net_shared_get(to, &note))
		;
	net_shared_wait(to);
}

// All that is as with new memory, whose pages cost a hundred times what else is done here.
static void use_again(void)
{
	static uint32_t last[2];
	if (!world.kept)
		return;
	require(!net_shared_in_use(world.kept));
	settle(world.kept, world.shared, lanes(), &last[0]);
	settle(world.shared, world.kept, lanes() + (NET_SHARED_ALL_BYTES - LIMIT_SHARED_BYTES) / 2, &last[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size > 4096)
		return 0;
	require(world.loop || !load(NULL));
	use_again();
	memset(&run, 0, sizeof run);
	run.data = data;
	run.left = size;
	memset(world.told, 0, sizeof world.told);
	set_up(NULL);
	if (!world.kept)
		world.kept = net_shared_ref(world.arrival->sharing.memory);
	while (run.left && world.worker && run.message_count < 256) {
		turn((enum turn)(next() % TURNS));
		require(run.lies || world.worker);
		for (size_t i = 0; i < CALLS; i++)
			require(world.told[i] || !run.reads[i] || world.with_body[i]);
		require(!world.worker || world.worker->rpc.waiting <= CALLS);
	}
	tear_down(NULL);
	return 0;
}
