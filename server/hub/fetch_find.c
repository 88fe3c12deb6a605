/* See fetch_inside.h: turns a source into the URL of a file, by asking the hub. */
#include "server/hub/fetch_inside.h"
#include "server/hub/hub.h"

#include <stdio.h>
#include <string.h>

enum { FIND_MS = 30000 };

static const char *hub_of(const struct fetch_job *job)
{
	const char *set = job->fetcher->params.hub_url;
	return set ? set : HUB_URL;
}

static const char *ollama_of(const struct fetch_job *job)
{
	const char *set = job->fetcher->params.ollama_url;
	return set ? set : OLLAMA_URL;
}

static enum status pick(struct fetch_job *job, struct error *error)
{
	char why[200];
	struct hub_files files;
	const struct hub_file *chosen = NULL;
	const char *listing = buffer_text(&job->answer);
	enum status status = hub_read_files(&job->source, listing, job->answer.length, &files, error);
	if (!status && !files.count) {
		hub_files_finish(&files);
		return fetch_weights_begin(job, listing, job->answer.length, true, error);
	}
	if (!status)
		status = hub_choose(&files, &job->room, &chosen, why, error);
	if (!status) {
		job->source = chosen->source;
		if (job->source.parts) {
			job->all_bytes = (int64_t)chosen->bytes;
			status = fetch_job_take_part(job, 1, error);
		} else {
			job->promised.bytes = (int64_t)chosen->bytes;
			snprintf(job->promised.sha256, sizeof job->promised.sha256, "%s", chosen->sha256);
		}
		if (!status && !hub_file_url(hub_of(job), &job->source, job->url, sizeof job->url))
			status = error_set(error, STATUS_INVALID_PARAMS, "its URL is too long");
	}
	if (!status)
		fetch_tell_picked(job, why);
	hub_files_finish(&files);
	return status;
}

static enum status read_manifest(struct fetch_job *job, struct error *error)
{
	struct hub_layer layer;
	enum status status = hub_read_manifest((const char *)job->answer.data, job->answer.length, &layer, error);
	if (status)
		return status;
	job->promised.bytes = (int64_t)layer.bytes;
	snprintf(job->promised.sha256, sizeof job->promised.sha256, "%s", layer.digest);
	snprintf(job->advice_sha256, sizeof job->advice_sha256, "%s", layer.parameters);
	if (!hub_blob_url(ollama_of(job), &job->source, layer.digest, job->url, sizeof job->url))
		return error_set(error, STATUS_INVALID_PARAMS, "its URL is too long");
	return STATUS_OK;
}

static bool on_body(void *context, const uint8_t *bytes, size_t length)
{
	struct fetch_job *job = context;
	return !buffer_append(&job->answer, bytes, length);
}

static void on_answer(void *context, const struct web_answer *answer)
{
	struct fetch_job *job = context;
	struct error error = {0};
	bool final = answer->final;
	job->finding = NULL;
	if (answer->status) {
		fetch_job_failed(job, &answer->error, final, 0);
		return;
	}
	if (answer->headers->status != 200) {
		fetch_explain(answer->headers, answer->url, job->token != NULL, &final, &error);
		fetch_job_failed(job, &error, final, fetch_headers_wait_s(answer->headers));
		return;
	}
	if (job->answer.failed)
		error_set(&error, STATUS_LIMIT_EXCEEDED, "the hub's answer is too long");
	else if (job->source.kind == SOURCE_OLLAMA)
		read_manifest(job, &error);
	else if (job->source.kind == SOURCE_HUB_WEIGHTS)
		fetch_weights_begin(job, buffer_text(&job->answer), job->answer.length, false, &error);
	else
		pick(job, &error);
	if (error.status)
		fetch_job_failed(job, &error, true, 0);
	else
		fetch_job_found(job);
}

static void ask(struct fetch_job *job, const char *url, const char *accept)
{
	struct error error = {0};
	buffer_clear(&job->answer);
	const struct web_params params = {.url = url,
					  .token = job->token,
					  .accept = accept,
					  .first = -1,
					  .limit_ms = FIND_MS,
					  .body = on_body,
					  .done = on_answer,
					  .context = job};
	if (web_ask(job->fetcher->web, &params, &job->finding, &error))
		fetch_job_failed(job, &error, true, 0);
}

void fetch_job_find(struct fetch_job *job)
{
	char url[FETCH_URL_BYTES];
	struct error error = {0};
	struct source part;
	const struct source *source = &job->source;
	if (job->weights && fetch_weights_find(job, hub_of(job))) {
		fetch_job_found(job);
		return;
	}
	if (source->parts) {
		source_part(source, job->number, &part);
		source = &part;
	}
	switch (source->kind) {
	case SOURCE_URL:
		snprintf(job->url, sizeof job->url, "%s", source->location);
		fetch_job_found(job);
		return;
	case SOURCE_HUB_FILE:
		if (hub_file_url(hub_of(job), source, job->url, sizeof job->url)) {
			fetch_job_found(job);
			return;
		}
		break;
	case SOURCE_HUB:
	case SOURCE_HUB_WEIGHTS:
		if (hub_files_url(hub_of(job), source, url, sizeof url)) {
			ask(job, url, "application/json");
			return;
		}
		break;
	case SOURCE_OLLAMA:
		if (hub_manifest_url(ollama_of(job), source, url, sizeof url)) {
			ask(job, url, "application/vnd.docker.distribution.manifest.v2+json");
			return;
		}
		break;
	case SOURCE_PATH:
	case SOURCE_UPLOAD:
	case SOURCE_UNKNOWN:
		break;
	}
	error_set(&error, STATUS_INVALID_PARAMS, "this source is not known");
	fetch_job_failed(job, &error, true, 0);
}
