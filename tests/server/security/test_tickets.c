/* Tickets over a real store: made, used, used up, revoked, expired, mistyped, and known again after a restart. */
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/text/ticket_text.h"
#include "server/security/tickets.h"
#include "tests/server/store/support.h"

#include <signal.h>
#include <sys/resource.h>

static const uint8_t authority[32] = {0xff, 1, 2, 3};
static const struct audit_actor admin = {.actor = "token:tester", .name = "tester"};

struct world {
	struct support *support;
	struct store *store;
	struct audit *audit;
	struct tickets *tickets;
};

static struct {
	int count;
	enum status status;
	char id[TICKET_ID_BYTES];
} told;

static void on_done(void *context, enum status status, const struct ticket *ticket, const struct error *error)
{
	(void)context, (void)error;
	told.count++;
	told.status = status;
	snprintf(told.id, sizeof told.id, "%s", ticket ? ticket->ticket_id : "");
}

static void open_world(struct world *world, struct support *support)
{
	struct error error = {0};
	*world = (struct world){.support = support};
	if (store_create(&world->store, &(struct store_params){.loop = support->loop, .directory = support->directory},
			 &error) ||
	    audit_create(&world->audit, &(struct audit_params){.loop = support->loop, .store = world->store}, &error) ||
	    tickets_create(&world->tickets, world->store, world->audit, authority, &error))
		fail_msg("%s", error.message);
	told.count = 0;
}

static void close_world(struct world *world)
{
	tickets_destroy(&world->tickets);
	audit_destroy(&world->audit);
	store_destroy(&world->store);
}

static void make(struct world *world, const struct ticket_params *params, char text[TICKET_TEXT_BYTES])
{
	struct error error = {0};
	int before = told.count;
	if (tickets_make(world->tickets, params, text, on_done, NULL, &error))
		fail_msg("%s", error.message);
	support_run_until(world->support->loop, &told.count, before + 1);
	assert_int_equal(told.status, STATUS_OK);
}

static int stored;
static void on_stored(void *context, enum status status, const struct error *error)
{
	(void)context, (void)error;
	assert_int_equal(status, STATUS_OK);
	stored++;
}

// As a join does, but for the certificate.
static enum status use(struct world *world, const char *text, struct error *error)
{
	struct store_batch *batch;
	struct ticket *ticket;
	assert_int_equal(store_batch_create(&batch), STATUS_OK);
	*error = (struct error){0};
	enum status status = tickets_use(world->tickets, text, batch, &ticket, error);
	if (status) {
		assert_null(ticket);
		store_batch_destroy(&batch);
		return status;
	}
	int before = stored;
	assert_int_equal(store_commit(world->store, &batch, on_stored, NULL), STATUS_OK);
	support_run_until(world->support->loop, &stored, before + 1);
	tickets_used(world->tickets, ticket);
	return STATUS_OK;
}

static void a_ticket_is_good_for_its_uses(void **state)
{
	struct world world;
	struct error error;
	struct ticket_parts parts;
	char text[TICKET_TEXT_BYTES];
	open_world(&world, *state);
	make(&world, &(struct ticket_params){.uses = 2, .by = &admin}, text);
	assert_int_equal(strlen(text), TICKET_TEXT_LENGTH);
	assert_int_equal(ticket_text_parse(text, &parts, NULL), STATUS_OK);
	assert_memory_equal(parts.authority_sha256, authority, sizeof authority);
	assert_memory_equal(parts.id, told.id, TICKET_ID_DIGITS);
	assert_int_equal(use(&world, text, &error), STATUS_OK);
	close_world(&world);
	open_world(&world, *state); // what was used is on disk
	assert_int_equal(tickets_at(world.tickets, 0)->used, 1);
	assert_string_equal(tickets_at(world.tickets, 0)->made_by, "token:tester");
	assert_int_equal(use(&world, text, &error), STATUS_OK);
	assert_int_equal(use(&world, text, &error), STATUS_UNAUTHENTICATED);
	assert_non_null(strstr(error.message, "used up"));
	assert_null(tickets_at(world.tickets, 1));
	close_world(&world);
}

static void two_that_come_at_once_do_not_share_the_last_use(void **state)
{
	struct world world;
	struct error error = {0};
	struct store_batch *first, *second;
	struct ticket *ticket, *other;
	char text[TICKET_TEXT_BYTES];
	open_world(&world, *state);
	make(&world, &(struct ticket_params){.by = &admin}, text);
	assert_int_equal(store_batch_create(&first), STATUS_OK);
	assert_int_equal(store_batch_create(&second), STATUS_OK);
	assert_int_equal(tickets_use(world.tickets, text, first, &ticket, &error), STATUS_OK);
	assert_int_equal(tickets_use(world.tickets, text, second, &other, &error), STATUS_UNAUTHENTICATED);
	tickets_unuse(world.tickets, ticket); // the first one's batch failed: the use is given back
	store_batch_destroy(&first);
	error = (struct error){0};
	assert_int_equal(tickets_use(world.tickets, text, second, &other, &error), STATUS_OK);
	tickets_unuse(world.tickets, other);
	store_batch_destroy(&second);
	close_world(&world);
}

static void revoked_and_expired_are_said_to_who_has_the_secret(void **state)
{
	struct world world;
	struct error error = {0};
	char text[TICKET_TEXT_BYTES], wrong[TICKET_TEXT_BYTES], brief[TICKET_TEXT_BYTES];
	char id[TICKET_ID_BYTES];
	open_world(&world, *state);
	make(&world, &(struct ticket_params){.uses = 5, .by = &admin}, text);
	memcpy(id, told.id, sizeof id);
	assert_int_equal(tickets_revoke(world.tickets, id, &admin, on_done, NULL, &error), STATUS_OK);
	// In the same turn, before it is on disk.
	assert_int_equal(use(&world, text, &error), STATUS_UNAUTHENTICATED);
	assert_non_null(strstr(error.message, "revoked"));
	support_run_until(world.support->loop, &told.count, 2);
	error = (struct error){0};
	assert_int_equal(tickets_revoke(world.tickets, id, &admin, on_done, NULL, &error), STATUS_CONFLICT);
	assert_int_equal(tickets_revoke(world.tickets, "0000000000", &admin, on_done, NULL, &error), STATUS_NOT_FOUND);
	assert_int_equal(tickets_revoke(world.tickets, "short", &admin, on_done, NULL, &error), STATUS_NOT_FOUND);
	// The same id with another secret learns nothing of it.
	memcpy(wrong, text, sizeof wrong);
	wrong[20] = wrong[20] == 'a' ? 'b' : 'a';
	base62_crc(wrong, TICKET_TEXT_LENGTH - 7, wrong + TICKET_TEXT_LENGTH - 6);
	assert_int_equal(use(&world, wrong, &error), STATUS_UNAUTHENTICATED);
	assert_non_null(strstr(error.message, "not known"));
	make(&world, &(struct ticket_params){.expires_in_s = 1, .by = &admin}, brief);
	for (int64_t until = clock_wall_ms() + 1100; clock_wall_ms() < until;)
		usleep(20000);
	assert_int_equal(use(&world, brief, &error), STATUS_UNAUTHENTICATED);
	assert_non_null(strstr(error.message, "expired"));
	close_world(&world);
}

static void a_slip_of_typing_is_told(void **state)
{
	struct world world;
	struct error error;
	char text[TICKET_TEXT_BYTES];
	static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
	open_world(&world, *state);
	make(&world, &(struct ticket_params){.by = &admin}, text);
	for (size_t at = 0; at < TICKET_TEXT_LENGTH; at++)
		for (size_t i = 0; digits[i]; i++) {
			char kept = text[at];
			text[at] = digits[i];
			if (kept != digits[i])
				assert_int_equal(ticket_text_parse(text, &(struct ticket_parts){0}, NULL),
						 STATUS_INVALID_PARAMS);
			text[at] = kept;
		}
	text[TICKET_TEXT_LENGTH - 1] = 0;
	assert_int_equal(use(&world, text, &error), STATUS_UNAUTHENTICATED);
	assert_non_null(strstr(error.message, "not the whole"));
	assert_int_equal(use(&world, "", &error), STATUS_UNAUTHENTICATED);
	close_world(&world);
}

static void there_are_limits(void **state)
{
	struct world world;
	struct error error = {0};
	char text[TICKET_TEXT_BYTES];
	open_world(&world, *state);
	const struct ticket_params wrong[] = {{.expires_in_s = -1, .by = &admin},
					      {.expires_in_s = 30 * 24 * 3600 + 1, .by = &admin},
					      {.uses = -1, .by = &admin},
					      {.uses = 1001, .by = &admin}};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		assert_int_equal(tickets_make(world.tickets, &wrong[i], text, on_done, NULL, &error),
				 STATUS_INVALID_PARAMS);
	// A token takes half of the places, and tokens together leave some to the owner, who takes all that are left.
	static const struct audit_actor other = {.actor = "token:other", .peer = "::1"},
					owner = {.actor = "owner:0", .peer = "unix"};
	const struct audit_actor *const by[] = {&admin, &other, &owner};
	int made = 0;
	for (int i = 0; i < 3; i++) {
		const int wanted = i == 0 ? LIMIT_TICKETS / 2 : i == 1 ? LIMIT_TICKETS / 2 - 50 : 50;
		for (int j = 0; j < wanted; j++, made++)
			assert_int_equal(tickets_make(world.tickets, &(struct ticket_params){.by = by[i]}, text,
						      on_done, NULL, &error),
					 STATUS_OK);
		error = (struct error){0};
		assert_int_equal(
			tickets_make(world.tickets, &(struct ticket_params){.by = by[i]}, text, on_done, NULL, &error),
			STATUS_LIMIT_EXCEEDED);
		assert_string_equal(text, "");
	}
	support_run_until(world.support->loop, &told.count, made);
	assert_int_equal(told.status, STATUS_OK);
	// What is over takes no place, however often that is: each of these is revoked, and another made for it.
	for (int i = 0; i < 600; i++) {
		const struct ticket *ticket = tickets_at(world.tickets, 0);
		for (size_t j = 0; ticket && ticket->revoked_ms; j++)
			ticket = tickets_at(world.tickets, j);
		assert_non_null(ticket);
		assert_int_equal(tickets_revoke(world.tickets, ticket->ticket_id, &owner, on_done, NULL, &error),
				 STATUS_OK);
		assert_int_equal(
			tickets_make(world.tickets, &(struct ticket_params){.by = &owner}, text, on_done, NULL, &error),
			STATUS_OK);
		support_run_until(world.support->loop, &told.count, made += 2);
	}
	size_t count = 0;
	while (tickets_at(world.tickets, count))
		count++;
	assert_in_range(count, LIMIT_TICKETS, LIMIT_TICKETS + 202);
	close_world(&world);
}

static void limit_file_size(rlim_t bytes)
{
	struct rlimit limit;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	limit.rlim_cur = bytes;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static const struct audit_actor machine_owner = {.actor = "owner:0", .peer = "unix"};

static enum status try_make(struct world *world, struct error *error)
{
	char text[TICKET_TEXT_BYTES];
	const int before = told.count;
	*error = (struct error){0};
	enum status status = tickets_make(world->tickets, &(struct ticket_params){.by = &machine_owner}, text, on_done,
					  NULL, error);
	if (!status)
		support_run_until(world->support->loop, &told.count, before + 1);
	return status ? status : told.status;
}

// Whether the disk takes it, too.
static void revoke_until(struct world *world, const char *id, enum status wanted)
{
	struct error error = {0};
	const int before = told.count;
	if (tickets_revoke(world->tickets, id, &machine_owner, on_done, NULL, &error))
		fail_msg("%s", error.message);
	support_run_until(world->support->loop, &told.count, before + 1);
	assert_int_equal(told.status, wanted);
}

static const struct ticket *find_ticket(const struct world *world, const char *id)
{
	const struct ticket *ticket = NULL;
	for (size_t i = 0; (ticket = tickets_at(world->tickets, i)) && strcmp(ticket->ticket_id, id) != 0; i++)
		;
	return ticket;
}

static size_t count_tickets(const struct world *world)
{
	size_t count = 0;
	while (tickets_at(world->tickets, count))
		count++;
	return count;
}

// Revocations that the disk did not take are not forgotten, however many tickets end after them, until it has taken
// them: after a restart the tickets would be good again.
static void a_revocation_that_is_not_on_disk_is_not_forgotten(void **state)
{
	struct world world;
	struct error error = {0};
	char text[TICKET_TEXT_BYTES], id[TICKET_ID_BYTES], other[TICKET_ID_BYTES];
	open_world(&world, *state);
	make(&world, &(struct ticket_params){.by = &machine_owner}, text);
	memcpy(id, told.id, sizeof id);
	limit_file_size(4096);
	revoke_until(&world, id, STATUS_UNAVAILABLE);
	limit_file_size(RLIM_INFINITY);
	for (int i = 0; i < 300; i++) {
		assert_int_equal(try_make(&world, &error), STATUS_OK);
		memcpy(other, told.id, sizeof other);
		revoke_until(&world, other, STATUS_OK);
	}
	assert_in_range(count_tickets(&world), 201, 203); // older ones are forgotten, and this one is not
	assert_non_null(find_ticket(&world, id));
	assert_int_equal(use(&world, text, &error), STATUS_UNAUTHENTICATED);
	revoke_until(&world, id, STATUS_OK);
	assert_int_equal(tickets_revoke(world.tickets, id, &machine_owner, on_done, NULL, &error), STATUS_CONFLICT);
	for (int i = 0; i < 2; i++)
		assert_int_equal(try_make(&world, &error), STATUS_OK);
	assert_null(find_ticket(&world, id)); // the oldest of those that are over
	close_world(&world);
	open_world(&world, *state);
	assert_int_equal(use(&world, text, &error), STATUS_UNAUTHENTICATED);
	close_world(&world);
}

// The table may be full of those: the next one is refused, and nothing is written behind its end.
static void a_table_full_of_revocations_that_are_not_on_disk(void **state)
{
	enum { PLACES = LIMIT_TICKETS + 200, ROUND = 400 };
	static char ids[PLACES][TICKET_ID_BYTES];
	struct world world;
	struct error error = {0};
	int places = 0;
	open_world(&world, *state);
	while (places < PLACES) { // fewer at once than may be good
		const int from = places;
		for (; places < from + ROUND; places++) {
			assert_int_equal(try_make(&world, &error), STATUS_OK);
			memcpy(ids[places], told.id, TICKET_ID_BYTES);
		}
		limit_file_size(4096);
		for (int i = from; i < places; i++)
			revoke_until(&world, ids[i], STATUS_UNAVAILABLE);
		limit_file_size(RLIM_INFINITY);
	}
	assert_int_equal(count_tickets(&world), PLACES);
	assert_int_equal(try_make(&world, &error), STATUS_LIMIT_EXCEEDED);
	assert_non_null(strstr(error.message, "1200 tickets are over, but cannot be forgotten"));
	assert_non_null(strstr(error.hint, "free space on the disk"));
	assert_int_equal(count_tickets(&world), PLACES);
	for (int i = 0; i < 210; i++) // more than are kept of those that are over
		revoke_until(&world, ids[i], STATUS_OK);
	assert_int_equal(try_make(&world, &error), STATUS_OK);
	assert_int_equal(count_tickets(&world), PLACES - 210 + 1);
	close_world(&world);
}

static void numbers_of_256_bits_go_there_and_back(void **state)
{
	uint8_t bytes[32], back[32];
	char digits[BASE62_SHA256_DIGITS];
	(void)state;
	for (int i = 0; i < 1000; i++) {
		for (size_t at = 0; at < sizeof bytes; at++)
			bytes[at] = i == 0 ? 0 : i == 1 ? 0xff : (uint8_t)(rand() >> 7);
		base62_print256(bytes, digits);
		assert_true(base62_all(digits, sizeof digits));
		assert_true(base62_read256(digits, back));
		assert_memory_equal(bytes, back, sizeof bytes);
	}
	memset(digits, 'z', sizeof digits); // 62^43 - 1 has more than 256 bits
	assert_false(base62_read256(digits, back));
	digits[4] = '-';
	assert_false(base62_read256(digits, back));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_ticket_is_good_for_its_uses, support_setup, support_teardown),
		cmocka_unit_test_setup_teardown(two_that_come_at_once_do_not_share_the_last_use, support_setup,
						support_teardown),
		cmocka_unit_test_setup_teardown(revoked_and_expired_are_said_to_who_has_the_secret, support_setup,
						support_teardown),
		cmocka_unit_test_setup_teardown(a_slip_of_typing_is_told, support_setup, support_teardown),
		cmocka_unit_test_setup_teardown(there_are_limits, support_setup, support_teardown),
		cmocka_unit_test_setup_teardown(a_revocation_that_is_not_on_disk_is_not_forgotten, support_setup,
						support_teardown),
		cmocka_unit_test_setup_teardown(a_table_full_of_revocations_that_are_not_on_disk, support_setup,
						support_teardown),
		cmocka_unit_test(numbers_of_256_bits_go_there_and_back),
	};
	log_set_level(LOG_WARNING); // a thousand are made
	return cmocka_run_group_tests(tests, NULL, NULL);
}
