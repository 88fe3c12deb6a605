/* A node as a witness: what it signs, what it refuses and keeps, and what is on its disk afterwards. The log is one of
 * the verifier's tests, whose attacker holds the newest key. */
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/text/base64.h"
#include "engine/node/witness.h"
#include "tests/common/journal/sample_log.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

static struct net_loop *loop;
static char directory[64];
static struct witness *witness;
static struct sample_log honest;
static bool waiting; // for an answer that comes later

// ---- the server's part ----

static bool fetch(void *context, struct tree_node *node)
{
	const struct sample_log *log = context;
	struct tree tree = {0};
	for (uint64_t i = node->index << node->level; i < (node->index + 1) << node->level; i++)
		tree_append(&tree, &log->entries[i].leaf, NULL, NULL);
	tree_root(&tree, &node->hash);
	return true;
}

static struct json *segment_json(const struct sample_segment *segment)
{
	struct json *json = json_new_object();
	char key[NOTE_KEY_TEXT_BYTES];
	note_key_print(&segment->signer.key, key);
	json_set_integer(json, "number", (int64_t)segment->number);
	json_set_integer(json, "first", (int64_t)segment->first);
	json_set_string(json, "key", key);
	json_set_string(json, "certificate", segment->certificate);
	return json;
}

// The newest head, as the server shows it to who holds `from` entries.
static struct json *show(struct sample_log *log, uint64_t from)
{
	struct tree_source source = {fetch, log};
	struct tree_proof proof = {0};
	struct json *params = json_new_object(), *hashes = json_new_array(), *segments = json_new_array();
	char note[SAMPLE_NOTE], text[BASE64_TEXT_BYTES(TREE_HASH_BYTES)];
	sample_head(&log->tree, &sample_newest(log)->signer, note);
	if (from <= log->tree.size)
		assert_int_equal(tree_prove_consistency(&source, from, log->tree.size, &proof, NULL), STATUS_OK);
	for (size_t i = 0; i < proof.count; i++) {
		base64_encode(proof.hashes[i].bytes, TREE_HASH_BYTES, text);
		json_push(hashes, json_new_string(text));
	}
	for (size_t i = 0; i < log->segment_count; i++)
		if (!from ? i + 1 == log->segment_count : log->segments[i].number && log->segments[i].first >= from)
			json_push(segments, segment_json(&log->segments[i]));
	json_set_string(params, "checkpoint", note);
	json_set_integer(params, "from", (int64_t)from);
	json_set(params, "proof", hashes);
	json_set(params, "segments", segments);
	return params;
}

struct answer {
	unsigned count;
	struct json *result;
	struct error error;
};

static void answered(void *context, struct json *result, const struct error *error)
{
	struct answer *answer = context;
	answer->count++;
	answer->result = result;
	if (error)
		answer->error = *error;
	if (waiting)
		net_loop_stop(loop);
}

static void give_up(void *arg)
{
	(void)arg;
	net_loop_stop(loop);
}

// Ask the witness (params is taken) and wait for its answer.
static struct answer ask(struct json *params)
{
	struct answer answer = {0};
	struct net_timer timer = {0};
	witness_sign(witness, params, answered, &answer);
	waiting = !answer.count;
	net_timer_start(loop, &timer, 60000, give_up, NULL);
	if (waiting)
		net_loop_run(loop);
	waiting = false;
	net_timer_stop(loop, &timer);
	assert_int_equal(answer.count, 1);
	json_destroy(&params);
	return answer;
}

static void expect_signed(struct sample_log *log, uint64_t from)
{
	struct answer answer = ask(show(log, from));
	struct note_key key;
	struct buffer note;
	char text[SAMPLE_NOTE];
	int64_t at_s = 0;
	if (answer.error.status)
		fail_msg("%s", answer.error.message);
	assert_int_equal(json_get_integer(answer.result, "size", -1), log->tree.size);
	assert_int_equal(note_key_parse(&key, json_get_string(answer.result, "key", "")), STATUS_OK);
	assert_int_equal(key.algorithm, NOTE_COSIGNATURE);
	assert_string_equal(key.name, "exogpu-witness-nod_1");
	sample_head(&log->tree, &sample_newest(log)->signer, text);
	buffer_init(&note, NOTE_BYTES);
	buffer_append_text(&note, text);
	buffer_printf(&note, "%s\n", json_get_string(answer.result, "cosignature", ""));
	assert_true(note_check(buffer_text(&note), &key, &at_s));
	assert_true(at_s > 1700000000);
	buffer_finish(&note);
	json_destroy(&answer.result);
}

static void expect_held(struct sample_log *log, uint64_t from, uint64_t held)
{
	struct answer answer = ask(show(log, from));
	assert_int_equal(answer.error.status, STATUS_OK);
	assert_int_equal(json_get_integer(answer.result, "size", -1), held);
	assert_int_equal(json_type(json_get(answer.result, "cosignature")), JSON_NULL);
	json_destroy(&answer.result);
}

static void expect_refused(struct json *params, enum status status)
{
	struct answer answer = ask(params);
	assert_int_equal(answer.error.status, status);
	assert_true(answer.error.message[0]);
	assert_null(answer.result);
}

static unsigned count_evidence(void)
{
	char path[128];
	unsigned count = 0;
	const struct dirent *file;
	snprintf(path, sizeof(path), "%s/witness", directory);
	DIR *files = opendir(path);
	while (files && (file = readdir(files)))
		count += !strncmp(file->d_name, "refused-", 8);
	if (files)
		closedir(files);
	return count;
}

static void begin_for(const char *server)
{
	assert_int_equal(witness_create(&witness, &(struct witness_params){.loop = loop,
									   .directory = directory,
									   .node_id = "nod_1",
									   .server = server}),
			 STATUS_OK);
}

static void begin(void)
{
	begin_for("exogpu:server:clu_1");
}

// Those of the folder and of what was set aside. Returns how many folders there were.
static unsigned remove_all(void)
{
	char path[600];
	unsigned count = 0;
	const struct dirent *one, *file;
	DIR *folders = opendir(directory);
	while (folders && (one = readdir(folders))) {
		if (strncmp(one->d_name, "witness", 7) != 0)
			continue;
		snprintf(path, sizeof(path), "%s/%.200s", directory, one->d_name);
		DIR *files = opendir(path);
		while (files && (file = readdir(files))) {
			snprintf(path, sizeof(path), "%s/%.200s/%.200s", directory, one->d_name, file->d_name);
			unlink(path);
		}
		if (files)
			closedir(files);
		snprintf(path, sizeof(path), "%s/%.200s", directory, one->d_name);
		rmdir(path);
		count++;
	}
	if (folders)
		closedir(folders);
	return count;
}

static int setup(void **state)
{
	(void)state;
	snprintf(directory, sizeof(directory), "/tmp/exogpu-witness-XXXXXX");
	memset(&honest, 0, sizeof(honest));
	sample_rotate(&honest);
	sample_add(&honest, 5);
	log_set_level(LOG_ERROR);
	if (!mkdtemp(directory) || net_loop_create(&loop, NULL))
		return -1;
	begin();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	witness_destroy(&witness);
	net_loop_destroy(&loop);
	remove_all();
	return rmdir(directory);
}

static void test_grows(void **state)
{
	struct stat file;
	char path[128], note[SAMPLE_NOTE] = "";
	struct checkpoint head;
	(void)state;
	expect_signed(&honest, 0);
	sample_add(&honest, 7);
	expect_signed(&honest, 5);
	expect_signed(&honest, 12); // the same once more
	sample_add(&honest, 1);
	expect_held(&honest, 5, 12); // the server has forgotten
	expect_held(&honest, 0, 12);
	expect_signed(&honest, 12);
	// What it holds outlives it, and is a head that anyone can check.
	witness_destroy(&witness);
	begin();
	sample_add(&honest, 20);
	expect_held(&honest, 0, 13);
	expect_signed(&honest, 13);
	snprintf(path, sizeof(path), "%s/witness/key", directory);
	assert_int_equal(stat(path, &file), 0);
	assert_int_equal(file.st_mode & 0777, 0600);
	snprintf(path, sizeof(path), "%s/witness/head", directory);
	FILE *stream = fopen(path, "re");
	assert_non_null(stream);
	assert_true(fread(note, 1, sizeof(note) - 1, stream) > 100);
	fclose(stream);
	assert_int_equal(checkpoint_parse(&head, note, NULL), STATUS_OK);
	assert_int_equal(head.size, 33);
	assert_true(note_check(note, &honest.segments[0].signer.key, NULL));
	assert_int_equal(count_evidence(), 0);
}

static void test_follows_keys(void **state)
{
	(void)state;
	expect_signed(&honest, 0);
	sample_add(&honest, 3);
	sample_rotate(&honest);
	sample_add(&honest, 2);
	sample_rotate(&honest);
	sample_add(&honest, 2);
	expect_signed(&honest, 5);
	sample_rotate(&honest);
	sample_add(&honest, 1);
	witness_destroy(&witness);
	begin();
	expect_signed(&honest, 12);
}

// Each with the newest key, and the best proof that there is.
static void test_refuses(void **state)
{
	static struct sample_log other;
	(void)state;
	sample_add(&honest, 3);
	sample_rotate(&honest);
	sample_add(&honest, 4);
	expect_signed(&honest, 0); // 12 entries
	other = honest;            // fewer
	other.tree = other.segments[1].before;
	sample_write(&other.entries[8], 8, "x.y");
	tree_append(&other.tree, &other.entries[8].leaf, NULL, NULL);
	expect_refused(show(&other, 12), STATUS_CONFLICT);
	for (unsigned i = 9; i < 12; i++) // as many, not the same
		tree_append(&other.tree, &other.entries[i].leaf, NULL, NULL);
	expect_refused(show(&other, 12), STATUS_CONFLICT);
	sample_add(&other, 5); // more, that do not continue these
	expect_refused(show(&other, 12), STATUS_CONFLICT);
	other = honest; // more, that do, without the proof
	sample_add(&other, 5);
	struct json *params = show(&other, 12);
	json_set(params, "proof", json_new_array());
	expect_refused(params, STATUS_CONFLICT);
	other = honest; // a key that nobody has passed the log to
	sample_rotate(&other);
	sample_certify(sample_newest(&other), &sample_newest(&other)->signer, sample_newest(&other)->certificate);
	sample_add(&other, 1);
	expect_refused(show(&other, 12), STATUS_CONFLICT);
	other = honest; // the next one, without its certificate
	sample_rotate(&other);
	sample_add(&other, 1);
	params = show(&other, 12);
	json_set(params, "segments", json_new_array());
	expect_refused(params, STATUS_CONFLICT);
	memset(&other, 0, sizeof(other)); // another log
	sample_rotate(&other);
	sample_add(&other, 20);
	expect_refused(show(&other, 12), STATUS_CONFLICT);
	assert_int_equal(count_evidence(), 7);
	for (int i = 0; i < 5; i++)
		expect_refused(show(&other, 12), STATUS_CONFLICT);
	assert_int_equal(count_evidence(), 8); // and no more
	params = show(&honest, 12);
	json_set_string(params, "checkpoint", "nonsense");
	expect_refused(params, STATUS_INVALID_PARAMS);
	sample_add(&honest, 1); // it still signs what is right
	expect_signed(&honest, 12);
}

static void test_one_at_a_time(void **state)
{
	struct answer first = {0}, second = {0};
	struct json *params = show(&honest, 0);
	(void)state;
	witness_sign(witness, params, answered, &first);
	assert_int_equal(first.count, 0);
	witness_sign(witness, params, answered, &second);
	assert_int_equal(second.count, 1);
	assert_int_equal(second.error.status, STATUS_RATE_LIMITED);
	witness_destroy(&witness); // while it is saved
	assert_int_equal(first.count, 1);
	assert_int_equal(first.error.status, STATUS_UNAVAILABLE);
	json_destroy(&params);
	begin();
	sample_add(&honest, 1);
	expect_held(&honest, 0, 5); // it was on disk, and not answered
	expect_signed(&honest, 5);
}

static void damage(const char *name)
{
	char path[128];
	snprintf(path, sizeof(path), "%s/witness/%s", directory, name);
	FILE *file = fopen(path, "r+e");
	assert_non_null(file);
	fputs("xxxxxxxxxxxx", file);
	fclose(file);
	witness_destroy(&witness);
	begin();
}

static void test_damaged(void **state)
{
	static const char *const names[] = {"head", "log-key", "key"};
	char path[128];
	(void)state;
	expect_signed(&honest, 0);
	for (int i = 0; i < 3; i++) {
		damage(names[i]);
		struct answer answer = ask(show(&honest, 0));
		assert_int_equal(answer.error.status, STATUS_UNAVAILABLE);
		assert_non_null(strstr(answer.error.message, names[i]));
		assert_true(answer.error.hint[0]);
	}
	// Another key than the one that signed the head does not make it a head of this witness.
	snprintf(path, sizeof(path), "%s/witness/key", directory);
	unlink(path);
	witness_destroy(&witness);
	begin();
	expect_refused(show(&honest, 0), STATUS_UNAVAILABLE);
}

// A node that has joined another cluster begins anew, and keeps what it had; one of the same cluster does not.
static void test_other_cluster(void **state)
{
	static struct sample_log other;
	(void)state;
	memset(&other, 0, sizeof(other));
	sample_rotate(&other);
	sample_add(&other, 3);
	expect_signed(&honest, 0);
	expect_refused(show(&other, 5), STATUS_CONFLICT);
	witness_destroy(&witness);
	begin();
	expect_held(&other, 0, 5);
	witness_destroy(&witness);
	begin_for("exogpu:server:clu_2");
	expect_signed(&other, 0);
	witness_destroy(&witness);
	begin_for("exogpu:server:clu_2");
	sample_add(&other, 1);
	expect_signed(&other, 3);
	assert_int_equal(remove_all(), 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_grows, setup, teardown),
		cmocka_unit_test_setup_teardown(test_follows_keys, setup, teardown),
		cmocka_unit_test_setup_teardown(test_refuses, setup, teardown),
		cmocka_unit_test_setup_teardown(test_one_at_a_time, setup, teardown),
		cmocka_unit_test_setup_teardown(test_damaged, setup, teardown),
		cmocka_unit_test_setup_teardown(test_other_cluster, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
