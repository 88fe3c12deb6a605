/* See authority.h. The certificates of nodes are in memory, so a connection needs no query, and a revoked one is
 * refused at once. They are found by the SHA-256 of the whole certificate. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/security/certificates/authority_inside.h"

#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NODE_DAYS = 30, KEEP_EXPIRED_DAYS = 7, WARN_OWN_DAYS = 14, WARN_AUTHORITY_DAYS = 365 };

static struct node_certificate *add_node(struct authority *authority)
{
	if (authority->node_count == authority->node_room) {
		size_t room = authority->node_room ? 2 * authority->node_room : 16;
		struct node_certificate *nodes = realloc(authority->nodes, room * sizeof(*nodes));
		if (!nodes)
			return NULL;
		authority->nodes = nodes;
		authority->node_room = room;
	}
	return &authority->nodes[authority->node_count++];
}

static void forget_node(struct authority *authority, size_t index)
{
	memmove(&authority->nodes[index], &authority->nodes[index + 1],
		(authority->node_count - index - 1) * sizeof(*authority->nodes));
	authority->node_count--;
}

static void load_row(void *context, const struct store_certificate *row)
{
	struct node_certificate *node = add_node(context);
	if (!node) {
		log_error("tls", "out of memory: the certificate %s of node %s is not known", row->serial,
			  row->node_id);
		return;
	}
	*node = (struct node_certificate){
		.not_before_ms = row->not_before_ms, .not_after_ms = row->not_after_ms, .revoked_ms = row->revoked_ms};
	snprintf(node->serial, sizeof(node->serial), "%s", row->serial);
	snprintf(node->node_id, sizeof(node->node_id), "%s", row->node_id);
	snprintf(node->sha256, sizeof(node->sha256), "%s", row->sha256);
	snprintf(node->key_sha256, sizeof(node->key_sha256), "%s", row->key_sha256);
}

// After its authority is gone no certificate is worth anything.
static enum status forget_all(struct authority *authority, struct error *error)
{
	struct store_batch *batch = NULL;
	if (!authority->node_count)
		return STATUS_OK;
	log_warning("tls", "the cluster has a new authority: all nodes but this machine's own must join again");
	enum status status = store_batch_create(&batch);
	for (size_t i = 0; !status && i < authority->node_count; i++)
		status = store_remove_certificate(batch, authority->nodes[i].serial);
	authority->node_count = 0;
	const struct audit_event event = {.action = "certificate.revoke",
					  .target = "all",
					  .outcome = STATUS_OK,
					  .detail = "{\"reason\":\"the cluster has a new authority\"}"};
	if (!status)
		status = audit_put(authority->params.audit, batch, &event);
	if (!status)
		return store_commit_wait(authority->params.store, &batch, error);
	store_batch_destroy(&batch);
	return error_set(error, status, "the certificates of a former authority could not be removed");
}

static void look(void *arg)
{
	struct authority *authority = arg;
	authority_look_at_own(authority);
	if (++authority->looks % AUTHORITY_CHECK_LOOKS == 0)
		authority_check(authority);
	net_timer_start(authority->params.loop, &authority->timer, AUTHORITY_LOOK_MS, look, authority);
}

enum status authority_create(struct authority **out, const struct authority_params *params, struct error *error)
{
	struct authority *authority = calloc(1, sizeof(*authority));
	bool made = false;
	*out = NULL;
	if (!authority)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	authority->params = *params;
	snprintf(authority->uri, sizeof(authority->uri), CERTIFICATE_SERVER_URI "%s", params->cluster_id);
	enum status status = STATUS_OK;
	if (!authority_collect_names(authority, &authority->names)) {
		status = error_set(error, STATUS_INVALID_PARAMS, "one of \"%.200s\" is neither a name nor an address",
				   params->names);
		error_hint(error, "names and numeric addresses, with a comma between");
	}
	if (authority->names.count == LIMIT_CERTIFICATE_NAMES)
		log_warning("tls", "this machine has more names and addresses than the %d that its certificate takes",
			    LIMIT_CERTIFICATE_NAMES);
	if (!status)
		status = store_load_certificates(params->store, load_row, authority, error);
	if (!status)
		status = authority_open_keys(authority, &made, error);
	if (!status && made)
		status = forget_all(authority, error);
	if (!status)
		status = authority_open_server(authority, error);
	if (!status)
		status = authority_open_own(authority, error);
	if (!status) {
		authority_find_reachable(authority);
		authority_check(authority);
		net_timer_start(params->loop, &authority->timer, AUTHORITY_LOOK_MS, look, authority);
	} else {
		authority_destroy(&authority);
	}
	*out = authority;
	return status;
}

void authority_destroy(struct authority **pointer)
{
	struct authority *authority = *pointer;
	if (!authority)
		return;
	*pointer = NULL;
	net_timer_stop(authority->params.loop, &authority->timer);
	identity_finish(&authority->server);
	identity_finish(&authority->next);
	identity_finish(&authority->own);
	X509_free(authority->certificate);
	EVP_PKEY_free(authority->key);
	buffer_finish(&authority->pem);
	free(authority->nodes);
	free(authority);
}

static enum status present(struct authority *authority, enum net_tls_identity which, const struct identity *identity,
			   struct error *error)
{
	return net_tls_show(authority->tls, which, buffer_text(&identity->chain), buffer_text(&identity->key), error);
}

enum status authority_present(struct authority *authority, struct error *error)
{
	if (!authority->tls)
		return STATUS_OK;
	enum status status = present(authority, NET_TLS_CLUSTER, &authority->server, error);
	return status ? status
		      : present(authority, NET_TLS_PUBLIC,
				authority->own.certificate ? &authority->own : &authority->server, error);
}

enum status authority_show(struct authority *authority, struct net_tls *tls, struct error *error)
{
	char at[CLOCK_TEXT_BYTES];
	if (authority_now(authority) >= authority->facts.not_after_ms && !authority->own.certificate) {
		error_set(error, STATUS_UNAVAILABLE, "the cluster's authority ended at %s",
			  clock_format(authority->facts.not_after_ms, at));
		error_hint(error,
			   "if this machine's clock is right, move %.120s away: a new one is made, and every "
			   "node must join again",
			   authority->directory);
		return STATUS_UNAVAILABLE;
	}
	authority->tls = tls;
	return authority_present(authority, error);
}

const char *authority_pem(const struct authority *authority)
{
	return buffer_text(&authority->pem);
}

const uint8_t *authority_sha256(const struct authority *authority)
{
	return authority->facts.digest;
}

const char *authority_fingerprint(const struct authority *authority)
{
	return authority->fingerprint;
}

const char *authority_server_uri(const struct authority *authority)
{
	return authority->uri;
}

const char *authority_reachable_name(const struct authority *authority)
{
	return authority->reachable;
}

bool authority_knows_name(const struct authority *authority, const char *name)
{
	return X509_check_host(authority->server.certificate, name, 0, 0, NULL) == 1 ||
	       (authority->own.certificate && X509_check_host(authority->own.certificate, name, 0, 0, NULL) == 1);
}

static enum status put_row(struct store_batch *batch, const struct node_certificate *node)
{
	const struct store_certificate row = {.serial = node->serial,
					      .node_id = node->node_id,
					      .sha256 = node->sha256,
					      .key_sha256 = node->key_sha256,
					      .not_before_ms = node->not_before_ms,
					      .not_after_ms = node->not_after_ms,
					      .revoked_ms = node->revoked_ms};
	return store_put_certificate(batch, &row);
}

// Whether it counts among those that its node has, or will have.
static bool good(const struct node_certificate *node, const char *node_id)
{
	return !node->revoked_ms && !node->ending && !strcmp(node->node_id, node_id);
}

// Certificates that a node has too many of once another one is valid: the oldest valid ones.
static size_t count_surplus(const struct authority *authority, const char *node_id)
{
	size_t count = 0;
	for (size_t i = 0; i < authority->node_count; i++)
		count += good(&authority->nodes[i], node_id);
	return count > LIMIT_CERTIFICATES_OF_NODE ? count - LIMIT_CERTIFICATES_OF_NODE : 0;
}

static size_t count_ended(const struct authority *authority)
{
	size_t count = 0;
	for (size_t i = 0; i < authority->node_count; i++)
		count += authority->nodes[i].revoked_ms != 0;
	return count;
}

// Revoked certificates take no place of valid ones: beyond LIMIT_CERTIFICATES_ENDED the oldest are removed with
// `batch`. One that is not known is refused as one that was revoked is, so nothing is lost if the batch fails.
static enum status forget_ended(struct authority *authority, struct store_batch *batch)
{
	enum status status = STATUS_OK;
	size_t ended = count_ended(authority), kept = 0;
	for (size_t i = 0; i < authority->node_count; i++) {
		const struct node_certificate *node = &authority->nodes[i];
		if (!status && ended > LIMIT_CERTIFICATES_ENDED && node->revoked_ms) {
			status = store_remove_certificate(batch, node->serial);
			ended--;
		} else {
			authority->nodes[kept++] = *node;
		}
	}
	authority->node_count = kept;
	return status;
}

// Enter it, as one that is not stored yet. The rows of those that it makes too many go with its batch.
static enum status keep(struct authority *authority, const char *node_id, X509 *certificate, const char *pem,
			struct store_batch *batch)
{
	struct certificate_facts facts;
	struct node_certificate *node = add_node(authority);
	if (!node)
		return STATUS_OUT_OF_MEMORY;
	certificate_describe(certificate, &facts);
	*node = (struct node_certificate){
		.not_before_ms = facts.not_before_ms, .not_after_ms = facts.not_after_ms, .issuing = pem};
	snprintf(node->serial, sizeof(node->serial), "%s", facts.serial);
	snprintf(node->node_id, sizeof(node->node_id), "%s", node_id);
	snprintf(node->sha256, sizeof(node->sha256), "%s", facts.sha256);
	snprintf(node->key_sha256, sizeof(node->key_sha256), "%s", facts.key_sha256);
	enum status status = authority_put_entry(
		authority, batch,
		&(struct told){.action = "certificate.issue", .kind = "node", .node_id = node_id, .facts = &facts});
	if (!status)
		status = put_row(batch, node);
	size_t surplus = count_surplus(authority, node_id);
	for (size_t i = 0; !status && surplus; i++)
		if (good(&authority->nodes[i], node_id)) {
			status = store_remove_certificate(batch, authority->nodes[i].serial);
			surplus--;
		}
	if (!status)
		status = forget_ended(authority, batch);
	if (status)
		authority->node_count--;
	return status;
}

// A certificate from a clock that is wrong, or of an authority that is over, would be refused by who gets it.
static enum status check_times(const struct authority *authority, int64_t now, struct error *error)
{
	char at[CLOCK_TEXT_BYTES];
	const bool early = now < authority->facts.not_before_ms;
	if (!early && now < authority->facts.not_after_ms)
		return STATUS_OK;
	error_set(error, STATUS_UNAVAILABLE, "the server's clock says %s, when its authority is not valid",
		  clock_format(now, at));
	error_hint(error, "set the server's clock; if it is right, the cluster needs a new authority: see its log");
	return STATUS_UNAVAILABLE;
}

enum status authority_issue(struct authority *authority, const char *node_id, const char *request_pem,
			    struct store_batch *batch, char **pem, struct error *error)
{
	EVP_PKEY *key = NULL;
	X509 *certificate = NULL;
	struct buffer text;
	char uri[NET_CERTIFICATE_URI_BYTES];
	const int64_t now = authority_now(authority), end = now + NODE_DAYS * AUTHORITY_DAY_MS;
	const size_t length = strnlen(request_pem, LIMIT_CSR_BYTES + 1);
	*pem = NULL;
	if (length > LIMIT_CSR_BYTES)
		return error_set(error, STATUS_INVALID_PARAMS, "the request for a certificate is too long");
	if (authority->node_count - count_ended(authority) >= LIMIT_CERTIFICATES)
		return error_set(error, STATUS_LIMIT_EXCEEDED, "there are %d certificates of nodes",
				 LIMIT_CERTIFICATES);
	buffer_init(&text, LIMIT_CERTIFICATE_FILE_BYTES);
	snprintf(uri, sizeof(uri), CERTIFICATE_NODE_URI "%s", node_id);
	enum status status = check_times(authority, now, error);
	if (!status)
		status = certificate_parse_request(&key, request_pem, length, error);
	const struct certificate_params params = {
		.kind = CERTIFICATE_NODE,
		.key = key,
		.issuer = authority->certificate,
		.issuer_key = authority->key,
		.subject = node_id,
		.uri = uri,
		.not_before_ms = now - AUTHORITY_HOUR_MS,
		.not_after_ms = end < authority->facts.not_after_ms ? end : authority->facts.not_after_ms};
	if (!status)
		status = certificate_make(&certificate, &params, error);
	if (!status)
		status = certificate_print(certificate, &text);
	if (!status && !(*pem = strdup(buffer_text(&text))))
		status = STATUS_OUT_OF_MEMORY;
	if (!status)
		status = keep(authority, node_id, certificate, *pem, batch);
	if (status) {
		free(*pem);
		*pem = NULL;
	}
	X509_free(certificate);
	EVP_PKEY_free(key);
	buffer_finish(&text);
	return status ? error_set(error, status, "the node's certificate could not be issued") : STATUS_OK;
}

void authority_settle(struct authority *authority, const char *pem, bool stored)
{
	char node_id[STORE_ID_BYTES] = "";
	for (size_t i = authority->node_count; pem && i-- > 0;) {
		struct node_certificate *node = &authority->nodes[i];
		if (node->ending == pem) {
			node->ending = NULL;
			if (stored && !node->revoked_ms)
				node->revoked_ms = authority_now(authority);
		}
		if (node->issuing != pem)
			continue;
		node->issuing = NULL;
		memcpy(node_id, node->node_id, sizeof(node_id));
		if (!stored)
			forget_node(authority, i);
	}
	for (size_t i = 0; i < authority->node_count && stored && count_surplus(authority, node_id);)
		if (good(&authority->nodes[i], node_id))
			forget_node(authority, i);
		else
			i++;
}

bool authority_stands(const struct authority *authority, const char *node_id)
{
	for (size_t i = 0; i < authority->node_count; i++)
		if (good(&authority->nodes[i], node_id) && !authority->nodes[i].issuing)
			return true;
	return false;
}

static bool same_digest(const char *sha256, const uint8_t digest[NET_SHA256_BYTES])
{
	char text[2 * NET_SHA256_BYTES + 1];
	for (size_t i = 0; i < NET_SHA256_BYTES; i++)
		snprintf(text + 2 * i, 3, "%02x", digest[i]);
	return !strcmp(sha256, text);
}

bool authority_accepts(const struct authority *authority, const struct net_certificate *certificate,
		       char node_id[STORE_ID_BYTES])
{
	static const size_t prefix = sizeof(CERTIFICATE_NODE_URI) - 1;
	const int64_t now = authority_now(authority);
	node_id[0] = 0;
	if (strncmp(certificate->uri, CERTIFICATE_NODE_URI, prefix) != 0)
		return false;
	for (size_t i = 0; i < authority->node_count; i++) {
		const struct node_certificate *node = &authority->nodes[i];
		if (node->revoked_ms || node->issuing || now >= node->not_after_ms ||
		    strcmp(node->node_id, certificate->uri + prefix) != 0 ||
		    !same_digest(node->sha256, certificate->sha256))
			continue;
		snprintf(node_id, STORE_ID_BYTES, "%s", node->node_id);
		return true;
	}
	return false;
}

enum authority_standing authority_standing(const struct authority *authority, const char *node_id,
					   const uint8_t *key_sha256)
{
	const int64_t now = authority_now(authority);
	enum authority_standing standing = AUTHORITY_STRANGER;
	for (size_t i = 0; i < authority->node_count; i++) {
		const struct node_certificate *node = &authority->nodes[i];
		if (!good(node, node_id) || now >= node->not_after_ms)
			continue;
		if (same_digest(node->key_sha256, key_sha256))
			return AUTHORITY_SAME_KEY;
		standing = AUTHORITY_KNOWN;
	}
	return standing;
}

// Its end, in a batch. What fails here fails the batch, and that is said when it is committed.
static void put_end(struct authority *authority, struct node_certificate row, struct store_batch *batch)
{
	row.revoked_ms = authority_now(authority);
	const struct audit_event event = {
		.action = "certificate.revoke", .target = row.serial, .node_id = row.node_id, .outcome = STATUS_OK};
	audit_put(authority->params.audit, batch, &event);
	put_row(batch, &row);
}

void authority_replace(struct authority *authority, const char *node_id, const char *pem, struct store_batch *batch)
{
	for (size_t i = 0; i < authority->node_count; i++) {
		struct node_certificate *node = &authority->nodes[i];
		if (!good(node, node_id) || node->issuing == pem)
			continue;
		node->ending = pem;
		put_end(authority, *node, batch);
	}
}

void authority_revoke_node(struct authority *authority, const char *node_id, struct store_batch *batch)
{
	for (size_t i = 0; i < authority->node_count; i++) {
		struct node_certificate *node = &authority->nodes[i];
		if (node->revoked_ms || strcmp(node->node_id, node_id) != 0)
			continue;
		put_end(authority, *node, batch);
		node->revoked_ms = authority_now(authority);
	}
}

static void forget_expired(struct authority *authority)
{
	const int64_t before = authority_now(authority) - KEEP_EXPIRED_DAYS * AUTHORITY_DAY_MS;
	struct store_batch *batch = NULL;
	for (size_t i = authority->node_count; i-- > 0;) {
		if (authority->nodes[i].not_after_ms >= before)
			continue;
		if ((!batch && store_batch_create(&batch)) ||
		    store_remove_certificate(batch, authority->nodes[i].serial))
			break;
		forget_node(authority, i);
	}
	// What is not removed now will be found again at the next start.
	if (batch && store_commit(authority->params.store, &batch, NULL, NULL))
		log_warning("tls", "expired certificates could not be removed");
}

// Said once a day, while it is so.
static void warn(struct authority *authority)
{
	char text[CLOCK_TEXT_BYTES];
	const int64_t now = authority_now(authority), left = authority->facts.not_after_ms - now;
	const struct identity *own = &authority->own;
	bool said = true;
	if (authority->warned_ms && now >= authority->warned_ms && now < authority->warned_ms + AUTHORITY_DAY_MS)
		return;
	if (now < authority->facts.not_before_ms)
		log_error("tls", "the clock says %s, which is before this cluster's authority was made: set it",
			  clock_format(now, text));
	else if (left <= 0)
		log_error("tls",
			  "the cluster's authority ended at %s: move %s away, start again, and let the nodes join anew",
			  clock_format(authority->facts.not_after_ms, text), authority->directory);
	else if (left < WARN_AUTHORITY_DAYS * AUTHORITY_DAY_MS)
		log_warning("tls", "the cluster's authority ends at %s; all nodes must join again then",
			    clock_format(authority->facts.not_after_ms, text));
	else
		said = false;
	if (own->certificate && own->facts.not_after_ms - now < WARN_OWN_DAYS * AUTHORITY_DAY_MS) {
		log_write(own->facts.not_after_ms <= now ? LOG_ERROR : LOG_WARNING, "tls",
			  "the certificate in %s %s at %s", authority->params.cert_file,
			  own->facts.not_after_ms <= now ? "ended" : "ends",
			  clock_format(own->facts.not_after_ms, text));
		said = true;
	}
	authority->warned_ms = said ? now : 0;
}

void authority_check(struct authority *authority)
{
	warn(authority);
	authority_renew(authority);
	authority_find_reachable(authority);
	forget_expired(authority);
}

static void set_time(struct json *object, const char *name, int64_t at_ms)
{
	char at[CLOCK_TEXT_BYTES];
	json_set_string(object, name, at_ms ? clock_format(at_ms, at) : NULL);
}

struct description {
	const char *kind, *subject, *node_id, *serial, *sha256;
	X509 *certificate; // NULL: it has no names
	int64_t not_before_ms, not_after_ms, renews_ms, revoked_ms;
};

static void list_name(void *context, const char *name)
{
	if (json_count(context) < LIMIT_CERTIFICATE_NAMES)
		json_push(context, json_new_string(name));
}

static struct json *describe(const struct description *description)
{
	struct json *json = json_new_object(), *names = json_new_array();
	if (description->certificate)
		certificate_each_name(description->certificate, list_name, names);
	json_set_string(json, "kind", description->kind);
	json_set_string(json, "subject", description->subject);
	json_set_string(json, "node_id", description->node_id);
	json_set_string(json, "serial", description->serial);
	json_set_string(json, "sha256", description->sha256);
	json_set(json, "names", names);
	set_time(json, "not_before", description->not_before_ms);
	set_time(json, "not_after", description->not_after_ms);
	set_time(json, "renews_at", description->renews_ms);
	set_time(json, "revoked_at", description->revoked_ms);
	return json;
}

static struct json *describe_shown(const char *kind, X509 *certificate, const struct certificate_facts *facts,
				   bool renews)
{
	const struct description description = {
		.kind = kind,
		.subject = facts->subject,
		.serial = facts->serial,
		.sha256 = facts->sha256,
		.certificate = certificate,
		.not_before_ms = facts->not_before_ms,
		.not_after_ms = facts->not_after_ms,
		.renews_ms = renews ? authority_renewal_ms(facts->not_before_ms, facts->not_after_ms) : 0};
	return describe(&description);
}

struct json *authority_list(const struct authority *authority)
{
	struct json *list = json_new_array();
	json_push(list, describe_shown("authority", authority->certificate, &authority->facts, false));
	json_push(list, describe_shown("server", authority->server.certificate, &authority->server.facts, true));
	if (authority->own.certificate)
		json_push(list, describe_shown("own", authority->own.certificate, &authority->own.facts, false));
	for (size_t i = authority->node_count; i-- > 0;) {
		const struct node_certificate *node = &authority->nodes[i];
		const struct description description = {
			.kind = "node",
			.subject = node->node_id,
			.node_id = node->node_id,
			.serial = node->serial,
			.sha256 = node->sha256,
			.not_before_ms = node->not_before_ms,
			.not_after_ms = node->not_after_ms,
			.renews_ms = node->revoked_ms ? 0
						      : authority_renewal_ms(node->not_before_ms, node->not_after_ms),
			.revoked_ms = node->revoked_ms};
		json_push(list, describe(&description));
	}
	return list;
}
