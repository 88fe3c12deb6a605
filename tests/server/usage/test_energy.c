/* Whose the energy of a device is: a simulated device whose steps are known to the millisecond, its counter read as a
 * node reads it, and what requests are given, compared with what their rows drew. */
#include "server/usage/energy.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
// cmocka.h needs the four above it.
#include <cmocka.h>

enum { REQUESTS = 40 };

struct request {
	struct energy_owner owner;
	int64_t from_ms, to_ms;
	double rows;                          // in each step
	double spent_s, told_s, drawn, given; // drawn: as the simulation knows
	bool settled;
};

struct world {
	struct energy *energy;
	struct request requests[REQUESTS];
	double counter, idle_watts, work_watts; // work: above idle
	double idle_drawn, work_drawn, idle_given, other_given, given;
	double busy_s, unclaimed_s; // of all requests; that they have not been told of
	uint64_t seed;
};
static struct world world;

static uint64_t draw(void)
{
	world.seed = world.seed * 6364136223846793005u + 1442695040888963407u;
	return world.seed >> 33;
}

static void given(void *context, const struct energy_given *given)
{
	(void)context;
	assert_string_equal(given->device_id, "gpu");
	world.idle_given += given->idle_joules;
	world.given += given->joules;
	if (!given->owner) {
		world.other_given += given->joules;
		return;
	}
	((struct request *)given->owner)->given += given->joules;
}

static void settled(void *context, struct energy_owner *owner)
{
	(void)context;
	((struct request *)owner)->settled = true;
}

static void begin(uint64_t seed)
{
	world = (struct world){.seed = seed, .idle_watts = 70, .work_watts = 500};
	assert_int_equal(energy_create(&world.energy, &(struct energy_params){.give = given, .settled = settled}),
			 STATUS_OK);
}

static bool runs(const struct request *request, int64_t now_ms)
{
	return now_ms >= request->from_ms && now_ms < request->to_ms;
}

// A millisecond of the device.
static void pass(int64_t now_ms)
{
	double rows = 0;
	for (int i = 0; i < REQUESTS; i++)
		rows += runs(&world.requests[i], now_ms) ? world.requests[i].rows : 0;
	world.counter += world.idle_watts / 1000;
	world.idle_drawn += world.idle_watts / 1000;
	if (rows <= 0)
		return;
	world.counter += world.work_watts / 1000;
	world.work_drawn += world.work_watts / 1000;
	world.busy_s += 0.001;
	world.unclaimed_s += 0.001;
	for (int i = 0; i < REQUESTS; i++) {
		struct request *request = &world.requests[i];
		if (!runs(request, now_ms))
			continue;
		request->spent_s += 0.001 * request->rows / rows;
		request->drawn += world.work_watts / 1000 * request->rows / rows;
	}
}

// What is not told yet, as instances tell it: with each message the whole time, and that of those who are in it.
static void tell(struct request *request)
{
	const double more = request->spent_s - request->told_s;
	request->told_s = request->spent_s;
	world.unclaimed_s -= more;
	energy_share(world.energy, &request->owner, "gpu", more);
}

static bool anyone(int64_t now_ms)
{
	bool any = false;
	for (int i = 0; i < REQUESTS; i++)
		any |= runs(&world.requests[i], now_ms);
	return any;
}

static void read_counter(int64_t now_ms)
{
	energy_read(world.energy, &(struct energy_reading){.device_id = "gpu",
							   .device_name = "GPU",
							   .now_ms = now_ms,
							   .joules = world.counter,
							   .source = STORE_ENERGY_COUNTER,
							   .computes = anyone(now_ms),
							   .in_use = anyone(now_ms)});
}

static void simulate(int64_t until_ms)
{
	double told_s = 0;
	int64_t read_ms = 0, state_ms = 0;
	for (int64_t now_ms = 1; now_ms <= until_ms; now_ms++) {
		pass(now_ms);
		bool told = false;
		for (int i = 0; i < REQUESTS; i++)
			if (now_ms == world.requests[i].to_ms) {
				tell(&world.requests[i]);
				told = true;
			}
		if (now_ms - state_ms >= 1000 && anyone(now_ms)) {
			for (int i = 0; i < REQUESTS; i++)
				if (runs(&world.requests[i], now_ms))
					tell(&world.requests[i]);
			state_ms = now_ms;
			told = true;
		}
		if (told) {
			energy_unclaimed(world.energy, "gpu", world.unclaimed_s - told_s);
			told_s = world.unclaimed_s;
		}
		if (now_ms - read_ms >= (anyone(now_ms) ? 500 : 1000) + (int64_t)(draw() % 20)) {
			read_counter(now_ms);
			read_ms = now_ms;
		}
	}
	read_counter(until_ms + 1000);
}

static void assert_within(double value, double expected, double part, const char *what)
{
	if (!(fabs(value - expected) <= part * fabs(expected)))
		fail_msg("%s: %g, expected %g within %g %%", what, value, expected, part * 100);
}

// Requests that come and go at any time, alone and together, of unlike numbers of rows.
static void each_gets_what_its_rows_drew(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 20; seed++) {
		begin(seed);
		for (int i = 0; i < REQUESTS; i++) {
			struct request *request = &world.requests[i];
			request->from_ms = 10000 + (int64_t)(draw() % 90000);
			request->to_ms = request->from_ms + 1000 + (int64_t)(draw() % 20000);
			request->rows = draw() % 4 ? 1 : 1 + (double)(draw() % 256);
		}
		simulate(140000);
		double requests = 0;
		for (int i = 0; i < REQUESTS; i++) {
			assert_true(world.requests[i].settled);
			requests += world.requests[i].given;
		}
		// What the counter says is all given, up to what came before the first reading.
		assert_within(world.idle_given + world.given, world.counter, 0.02, "idle and work");
		assert_within(requests + world.idle_given, world.counter, 0.05, "requests and idle");
		assert_within(requests, world.work_drawn, 0.05, "requests");
		assert_within(world.idle_given, world.idle_drawn, 0.05, "idle");
		double wrong = 0;
		for (int i = 0; i < REQUESTS; i++)
			wrong += fabs(world.requests[i].given - world.requests[i].drawn);
		print_message("seed %llu: %.0f J of requests, %.2f %% at another's account\n", (unsigned long long)seed,
			      requests, 50 * wrong / requests);
		assert_true(wrong / 2 < 0.05 * requests);
		energy_destroy(&world.energy);
	}
}

static void one_that_ends_among_many_pays_its_part(void **state)
{
	(void)state;
	begin(7);
	for (int i = 0; i < 10; i++)
		world.requests[i] = (struct request){.from_ms = 10000, .to_ms = i ? 30000 : 10700, .rows = 1};
	simulate(40000);
	assert_within(world.requests[0].given, world.requests[0].drawn, 0.1, "the short one");
	assert_within(world.requests[1].given, world.requests[1].drawn, 0.05, "a long one");
	energy_destroy(&world.energy);
}

static void read_at(int64_t now_ms, double joules, bool in_use)
{
	energy_read(world.energy, &(struct energy_reading){.device_id = "gpu",
							   .device_name = "GPU",
							   .now_ms = now_ms,
							   .joules = joules,
							   .source = STORE_ENERGY_INTEGRATED,
							   .in_use = in_use});
}

static void other_work_is_nobodys(void **state)
{
	(void)state;
	begin(1);
	read_at(1000, 5000, false);
	read_at(2000, 5070, false);
	assert_true(world.idle_given == 70 && world.given == 0);
	read_at(3000, 5370, true); // a model loads
	assert_true(fabs(world.idle_given - 140) < 1e-9 && fabs(world.other_given - 230) < 1e-9);
	read_at(4000, 5470, false); // its clock is still high: that is idle, and the idle power rises slowly
	assert_true(fabs(world.idle_given - 240) < 1e-9);
	assert_true(energy_idle_watts(world.energy, "gpu") > 70 && energy_idle_watts(world.energy, "gpu") < 71);
	energy_destroy(&world.energy);
}

static void readings_that_say_nothing(void **state)
{
	(void)state;
	begin(1);
	struct request request = {.rows = 1};
	energy_share(world.energy, &request.owner, "gpu", 1); // it is not read
	assert_null(request.owner.shares);
	read_at(1000, 1000, false);
	read_at(2000, 10, false);  // the node has begun anew
	read_at(3000, 1e9, false); // a megawatt
	read_at(4000, NAN, false);
	read_at(200000, 2e9, false); // minutes later
	assert_true(world.idle_given + world.given == 0);
	read_at(201000, 2e9 + 70, false);
	assert_true(world.idle_given == 70);
	energy_share(world.energy, &request.owner, "gpu", 1);
	assert_non_null(request.owner.shares);
	energy_sweep(world.energy, 202000);
	assert_false(request.settled);
	energy_sweep(world.energy, 201000 + ENERGY_STALE_MS); // its node is gone: nobody waits for ever
	assert_true(request.settled && request.given == 0);
	energy_share(world.energy, &request.owner, "gpu", 1);
	assert_null(request.owner.shares);
	read_at(300000, 2e9, false);
	energy_share(world.energy, &request.owner, "gpu", 1);
	energy_leave(world.energy, &request.owner);
	assert_null(request.owner.shares);
	energy_destroy(&world.energy);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_gets_what_its_rows_drew),
		cmocka_unit_test(one_that_ends_among_many_pays_its_part),
		cmocka_unit_test(other_work_is_nobodys),
		cmocka_unit_test(readings_that_say_nothing),
	};
	return cmocka_run_group_tests_name("energy", tests, NULL, NULL);
}
