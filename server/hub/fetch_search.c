/* See fetch_search.h. Both hubs are asked for names, then for the files of each of the first few, all at the same time
 * and all within LIMIT_SEARCH_MS; within REACH_MS where the question is only whether they answer. If a hub does not
 * answer, only its own results are missing. */
#include "server/hub/fetch_search.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/wire/said.h"
#include "server/hub/fetch_inside.h"
#include "server/hub/hub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOOKED_INTO = 8 }; // models of each hub, whose files are asked for

enum { REACH_MS = 5000 }; // a person without a network knows within ten seconds what to do

// Hugging Face is asked twice: for repositories with GGUF files, and for those whose safetensors are converted.
enum hub { HUB_FACE, HUB_OLLAMA, HUB_WEIGHTS, HUBS };

struct result {
	char source[SOURCE_TEXT_BYTES], name[SOURCE_NAME_BYTES];
	const char *format; // static; NULL: not known
	uint64_t bytes;     // 0: not known
	int64_t downloads;  // -1: not known
	enum hub hub;
};

// One request.
struct lookup {
	struct search *search;
	struct web_question *question;
	struct buffer text;
	enum hub hub;
	const struct hub_found *about; // NULL: what there is
};

struct search {
	struct fetch_task task; // first member
	struct outbox_item item;
	struct search *next; // of the fetcher
	struct fetcher *fetcher;
	struct search_params params;
	char text[257];
	bool reaches;     // only whether the hubs answer is asked
	int64_t until_ms; // steady
	struct lookup lookups[HUBS * (LOOKED_INTO + 1)];
	size_t lookup_count, pending;
	bool finished;
	struct hub_found found[HUBS][LOOKED_INTO];
	size_t found_count[HUBS];
	char silent[HUBS][200]; // why a hub gave nothing; ""
	struct result results[LIMIT_HUB_FOUND];
	size_t result_count;
	struct error error;
};

static const char *const hub_names[] = {
	[HUB_FACE] = "Hugging Face", [HUB_OLLAMA] = "Ollama", [HUB_WEIGHTS] = "Hugging Face"};

static void search_destroy(struct search **pointer)
{
	struct search *search = *pointer;
	*pointer = NULL;
	for (size_t i = 0; i < search->lookup_count; i++) {
		web_cancel(&search->lookups[i].question);
		buffer_finish(&search->lookups[i].text);
	}
	free(search);
}

// ---- on the loop ----

static struct json *result_json(const struct search *search, const struct result *result)
{
	struct json *json = json_new_object();
	const struct search_params *params = &search->params;
	json_set_string(json, "source", result->source);
	json_set_string(json, "name", result->name);
	json_set_string(json, "origin", result->hub == HUB_OLLAMA ? "ollama" : "hf");
	if (result->bytes)
		json_set_integer(json, "bytes", (int64_t)result->bytes);
	else
		json_set_null(json, "bytes");
	json_set_string(json, "format", result->format);
	if (result->downloads >= 0)
		json_set_integer(json, "downloads", result->downloads);
	else
		json_set_null(json, "downloads");
	json_set_string(json, "fits", models_fit(&params->room, result->bytes));
	json_set_bool(json, "added", params->added(params->owner, result->source));
	return json;
}

static void deliver(struct outbox_item *item, bool tell)
{
	struct search *search = (struct search *)((char *)item - offsetof(struct search, item));
	struct json *json = NULL;
	if (!tell)
		error_set(&search->error, STATUS_UNAVAILABLE, "the server stops");
	if (!search->error.status) {
		struct json *results = json_new_array(), *unreachable = json_new_array();
		for (size_t i = 0; i < search->result_count; i++)
			json_push(results, result_json(search, &search->results[i]));
		for (int hub = 0; hub < HUBS; hub++)
			if (search->silent[hub][0] && (hub != HUB_WEIGHTS || !search->silent[HUB_FACE][0]))
				json_push(unreachable, json_new_string(search->silent[hub]));
		json = json_new_object();
		json_set(json, "results", results);
		json_set(json, "unreachable", unreachable);
		said_beside(json, "unreachable");
	}
	search->params.done(search->params.context, search->error.status, json, &search->error);
	search_destroy(&search);
}

// ---- on the fetcher's thread ----

static struct result *add_result(struct search *search, enum hub hub, const struct source *source, int64_t downloads)
{
	if (search->result_count == LIMIT_HUB_FOUND)
		return NULL;
	struct result *result = &search->results[search->result_count++];
	*result = (struct result){.hub = hub, .downloads = downloads};
	snprintf(result->source, sizeof result->source, "%s", source->text);
	source_name(source, result->name);
	return result;
}

static void take_files(struct lookup *lookup)
{
	struct hub_files files;
	struct search *search = lookup->search;
	struct error ignored = {0};
	const char *text = buffer_text(&lookup->text);
	if (hub_read_files(&lookup->about->source, text, lookup->text.length, &files, &ignored))
		return;
	for (size_t i = 0; i < files.count; i++) {
		const char *format = hub_format_of(files.files[i].source.file);
		struct result *result = format ? add_result(search, HUB_FACE, &files.files[i].source,
							    lookup->about->downloads)
					       : NULL;
		if (!result)
			continue;
		result->format = format;
		result->bytes = files.files[i].bytes;
	}
	hub_files_finish(&files);
}

// A repository without GGUF files, as one model.
static void take_weights(struct lookup *lookup)
{
	struct hub_files files;
	struct hub_weights weights = {0};
	struct source source;
	struct error ignored = {0};
	const struct source *repository = &lookup->about->source;
	const char *text = buffer_text(&lookup->text);
	if (hub_read_files(repository, text, lookup->text.length, &files, &ignored))
		return;
	if (!files.count && !hub_read_weights(text, lookup->text.length, &weights, &ignored) &&
	    !hub_weights_check(&weights, &ignored) &&
	    !source_pick(repository, "model.safetensors", &source, &ignored)) {
		struct result *result = add_result(lookup->search, HUB_WEIGHTS, &source, lookup->about->downloads);
		if (result)
			result->bytes = hub_weights_bytes(&weights);
	}
	hub_weights_finish(&weights);
	hub_files_finish(&files);
}

static void take_manifest(struct lookup *lookup)
{
	struct hub_layer layer;
	struct error ignored = {0};
	if (hub_read_manifest(buffer_text(&lookup->text), lookup->text.length, &layer, &ignored))
		return; // a model without a file, which runs elsewhere
	struct result *result = add_result(lookup->search, HUB_OLLAMA, &lookup->about->source, -1);
	if (result)
		result->bytes = layer.bytes;
}

static void ask(struct search *search, enum hub hub, const struct hub_found *about);

static void take_names(struct lookup *lookup)
{
	if (lookup->search->reaches)
		return;
	struct error error = {0};
	struct search *search = lookup->search;
	const enum hub hub = lookup->hub;
	struct hub_found *found = search->found[hub];
	size_t *count = &search->found_count[hub];
	const char *text = buffer_text(&lookup->text);
	if (hub == HUB_OLLAMA)
		*count = hub_read_ollama_page(text, lookup->text.length, found, LOOKED_INTO);
	else if (hub_read_search(text, lookup->text.length, found, LOOKED_INTO, count, &error))
		snprintf(search->silent[hub], sizeof search->silent[hub], "%.190s", error.message);
	for (size_t i = 0; i < *count; i++)
		ask(search, hub, &found[i]);
}

static void look_whether_done(struct search *search)
{
	if (search->pending || search->finished)
		return;
	search->finished = true;
	for (struct search **link = &search->fetcher->searches; *link; link = &(*link)->next)
		if (*link == search) {
			*link = search->next;
			break;
		}
	outbox_post(search->fetcher->params.outbox, &search->item);
}

static bool on_body(void *context, const uint8_t *bytes, size_t length)
{
	return !buffer_append(&((struct lookup *)context)->text, bytes, length);
}

static void on_answer(void *context, const struct web_answer *answer)
{
	struct lookup *lookup = context;
	struct search *search = lookup->search;
	struct error error = {0};
	bool final;
	lookup->question = NULL;
	if (!answer->status && answer->headers->status != 200)
		fetch_explain(answer->headers, answer->url, false, &final, &error);
	else if (answer->status)
		error = answer->error;
	else if (lookup->text.failed)
		error_set(&error, STATUS_LIMIT_EXCEEDED, "its answer is too long");
	if (error.status && !lookup->about)
		snprintf(search->silent[lookup->hub], sizeof search->silent[lookup->hub], "%s: %.160s",
			 hub_names[lookup->hub], error.message);
	else if (error.status && lookup->hub == HUB_FACE) // what it is called is known all the same
		add_result(search, HUB_FACE, &lookup->about->source, lookup->about->downloads);
	else if (!error.status && !lookup->about)
		take_names(lookup);
	else if (!error.status && lookup->hub == HUB_FACE)
		take_files(lookup);
	else if (!error.status && lookup->hub == HUB_WEIGHTS)
		take_weights(lookup);
	else if (!error.status)
		take_manifest(lookup);
	search->pending--;
	look_whether_done(search);
}

static bool make_url(const struct search *search, enum hub hub, const struct hub_found *about,
		     char url[FETCH_URL_BYTES])
{
	const struct fetcher_params *params = &search->fetcher->params;
	const char *face = params->hub_url ? params->hub_url : HUB_URL;
	const char *ollama = params->ollama_url ? params->ollama_url : OLLAMA_URL;
	const char *page = params->ollama_url ? params->ollama_url : OLLAMA_SEARCH_URL;
	if (hub != HUB_OLLAMA)
		return about ? hub_files_url(face, &about->source, url, FETCH_URL_BYTES)
			     : hub_search_url(face, search->text, search->reaches ? 1 : LOOKED_INTO, hub == HUB_WEIGHTS,
					      url, FETCH_URL_BYTES);
	return about ? hub_manifest_url(ollama, &about->source, url, FETCH_URL_BYTES)
		     : hub_ollama_search_url(page, search->text, url, FETCH_URL_BYTES);
}

static void ask(struct search *search, enum hub hub, const struct hub_found *about)
{
	char url[FETCH_URL_BYTES];
	struct error error = {0};
	struct lookup *lookup = &search->lookups[search->lookup_count];
	const int64_t left_ms = search->until_ms - clock_steady_ms();
	*lookup = (struct lookup){.search = search, .hub = hub, .about = about};
	buffer_init(&lookup->text, LIMIT_FETCH_JSON_BYTES);
	search->lookup_count++;
	const bool manifest = hub == HUB_OLLAMA && about;
	const struct web_params params = {
		.url = url,
		.accept = manifest ? "application/vnd.docker.distribution.manifest.v2+json" : NULL,
		.first = -1,
		.limit_ms = left_ms > 0 ? left_ms : 1,
		.body = on_body,
		.done = on_answer,
		.context = lookup,
	};
	if (!make_url(search, hub, about, url) || web_ask(search->fetcher->web, &params, &lookup->question, &error)) {
		if (!about)
			snprintf(search->silent[hub], sizeof search->silent[hub], "%s: %.160s", hub_names[hub],
				 error.message);
		return;
	}
	search->pending++;
}

static void run(struct fetch_task *task, struct fetcher *fetcher)
{
	struct search *search = (struct search *)task;
	if (!fetcher) {
		error_set(&search->error, STATUS_UNAVAILABLE, "the server stops");
		outbox_post(search->fetcher->params.outbox, &search->item);
		return;
	}
	search->next = fetcher->searches;
	fetcher->searches = search;
	search->until_ms = clock_steady_ms() + (search->reaches ? REACH_MS : (int)LIMIT_SEARCH_MS);
	for (int hub = 0; hub < HUBS; hub++)
		if (hub != HUB_WEIGHTS || !search->reaches)
			ask(search, (enum hub)hub, NULL);
	look_whether_done(search);
}

enum status search_start(struct fetcher *fetcher, const struct search_params *params, struct error *error)
{
	struct search *search = calloc(1, sizeof *search);
	if (!search)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a search");
	search->fetcher = fetcher;
	search->params = *params;
	search->task.run = run;
	search->item.deliver = deliver;
	search->reaches = !params->text;
	snprintf(search->text, sizeof search->text, "%s", params->text ? params->text : "gguf");
	fetcher_post(fetcher, &search->task);
	return STATUS_OK;
}

void searches_drop(struct fetcher *fetcher)
{
	while (fetcher->searches) {
		struct search *search = fetcher->searches;
		error_set(&search->error, STATUS_UNAVAILABLE, "the server stops");
		search->finished = true;
		fetcher->searches = search->next;
		for (size_t i = 0; i < search->lookup_count; i++)
			web_cancel(&search->lookups[i].question);
		outbox_post(fetcher->params.outbox, &search->item);
	}
}
