/* See fetch_inside.h: the sampling defaults that a model's authors publish beside its file, in generation_config.json
 * (Hugging Face) or in the parameters layer (Ollama). They are requested during the download. If there are none, or
 * they cannot be read, the model is still good. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/hub/fetch_inside.h"
#include "server/hub/hub.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

enum { ADVICE_MS = 30000, AGAIN_MS = 2000, FAILURES_MOST = 3 };

// The digest in Ollama's manifest.
static bool is_promised(const struct fetch_job *job)
{
	unsigned char digest[32];
	char text[65];
	if (!job->advice_sha256[0])
		return true;
	if (EVP_Digest(job->answer.data, job->answer.length, digest, NULL, EVP_sha256(), NULL) != 1)
		return false;
	for (size_t i = 0; i < sizeof digest; i++)
		snprintf(text + 2 * i, 3, "%02x", digest[i]);
	return !strcmp(text, job->advice_sha256);
}

static void read_advice(struct fetch_job *job)
{
	if (job->answer.length > SAMPLING_CONFIG_BYTES || !is_promised(job)) {
		log_warning("models", "%s: its sampling defaults cannot be read: it is %s", job->source.text,
			    job->answer.length > SAMPLING_CONFIG_BYTES ? "longer than 64 KiB"
								       : "not what its manifest promises");
		return;
	}
	sampling_add_config((const char *)job->answer.data, job->answer.length, &job->sampling);
}

static bool on_body(void *context, const uint8_t *bytes, size_t length)
{
	struct fetch_job *job = context;
	return job->answer.length <= SAMPLING_CONFIG_BYTES && !buffer_append(&job->answer, bytes, length);
}

static void on_answer(void *context, const struct web_answer *answer)
{
	struct fetch_job *job = context;
	struct error error = {0};
	bool final = answer->final;
	const long status = answer->status ? 0 : answer->headers->status;
	job->finding = NULL;
	if (job->answer.length > SAMPLING_CONFIG_BYTES || status == 200) {
		read_advice(job);
		job->advised = true;
		return;
	}
	if (answer->status)
		error = answer->error;
	else
		fetch_explain(answer->headers, answer->url, job->token != NULL, &final, &error);
	// It is not there, or not for everybody; or it is asked for again, which holds the file's own way up in
	// nothing.
	job->advised = final || ++job->advice_failures == FAILURES_MOST;
	job->advice_due_ms = clock_steady_ms() + AGAIN_MS;
	if (job->advised && !final)
		log_warning("models", "%s: its sampling defaults are unknown: %s", job->source.text, error.message);
}

static bool find_url(const struct fetch_job *job, char *url, size_t size)
{
	const struct fetcher_params *hubs = &job->fetcher->params;
	const char *hub = hubs->hub_url ? hubs->hub_url : HUB_URL,
		   *ollama = hubs->ollama_url ? hubs->ollama_url : OLLAMA_URL;
	switch (job->source.kind) {
	case SOURCE_HUB:
	case SOURCE_HUB_FILE:
		return hub_config_url(hub, &job->source, url, size);
	case SOURCE_OLLAMA:
		return job->advice_sha256[0] && hub_blob_url(ollama, &job->source, job->advice_sha256, url, size);
	case SOURCE_HUB_WEIGHTS: // generation_config.json is one of the files
	case SOURCE_URL:
	case SOURCE_PATH:
	case SOURCE_UPLOAD:
	case SOURCE_UNKNOWN:
		break;
	}
	return false;
}

void fetch_job_ask_advice(struct fetch_job *job)
{
	char url[FETCH_URL_BYTES];
	struct error error = {0};
	if (job->advised || job->finding || clock_steady_ms() < job->advice_due_ms)
		return;
	buffer_clear(&job->answer);
	const struct web_params params = {.url = url,
					  .token = job->token,
					  .accept = "application/json",
					  .first = -1,
					  .limit_ms = ADVICE_MS,
					  .body = on_body,
					  .done = on_answer,
					  .context = job};
	job->advised = !find_url(job, url, sizeof url) || web_ask(job->fetcher->web, &params, &job->finding, &error);
}
