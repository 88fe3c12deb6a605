/* See batch.h: filling one. */
#include "server/store/batch.h"

#include "common/base/clock.h"
#include "common/base/limits.h"

#include <stdlib.h>
#include <string.h>

static struct db_value text_value(const char *text)
{
	return text ? (struct db_value){.type = DB_TEXT, .bytes = text, .length = strlen(text)}
		    : (struct db_value){.type = DB_NULL};
}

static struct db_value integer_value(int64_t integer)
{
	return (struct db_value){.type = DB_INTEGER, .integer = integer};
}

static struct db_value measured_value(double real)
{
	return real < 0 ? (struct db_value){.type = DB_NULL} : (struct db_value){.type = DB_REAL, .real = real};
}

static struct db_value number_value(double real) // NaN: there is none
{
	return real != real ? (struct db_value){.type = DB_NULL} : (struct db_value){.type = DB_REAL, .real = real};
}

static enum status add_row(struct store_batch *batch, enum batch_statement statement, const struct db_value *values,
			   size_t count)
{
	size_t bytes = 0;
	for (size_t i = 0; i < count; i++)
		bytes += values[i].length + 1;
	if (batch->rows >= LIMIT_STORE_BATCH_ROWS) {
		batch->failed = true;
		return STATUS_LIMIT_EXCEEDED;
	}
	struct batch_row *row = malloc(sizeof *row + bytes);
	if (!row) {
		batch->failed = true;
		return STATUS_OUT_OF_MEMORY;
	}
	*row = (struct batch_row){.statement = statement, .count = count};
	char *at = (char *)(row + 1);
	for (size_t i = 0; i < count; i++) {
		row->values[i] = values[i];
		if (!values[i].bytes)
			continue;
		memcpy(at, values[i].bytes, values[i].length);
		row->values[i].bytes = at;
		at += values[i].length;
		*at++ = 0;
	}
	if (batch->last)
		batch->last->next = row;
	else
		batch->first = row;
	batch->last = row;
	batch->rows++;
	return STATUS_OK;
}

enum status store_batch_create(struct store_batch **out)
{
	*out = calloc(1, sizeof **out);
	return *out ? STATUS_OK : STATUS_OUT_OF_MEMORY;
}

void store_batch_destroy(struct store_batch **batch)
{
	if (!*batch)
		return;
	struct batch_row *next;
	for (struct batch_row *row = (*batch)->first; row; row = next) {
		next = row->next;
		free(row->bound);
		free(row);
	}
	free(*batch);
	*batch = NULL;
}

enum status store_put_setting(struct store_batch *batch, const char *key, const char *value)
{
	const struct db_value values[] = {text_value(key), text_value(value)};
	return add_row(batch, BATCH_PUT_SETTING, values, 2);
}

enum status store_put_node(struct store_batch *batch, const struct store_node *node)
{
	const struct db_value values[] = {text_value(node->node_id), text_value(node->name), text_value(node->record),
					  integer_value(node->first_seen_ms), integer_value(node->last_seen_ms)};
	return add_row(batch, BATCH_PUT_NODE, values, 5);
}

enum status store_put_device(struct store_batch *batch, const struct store_device *device)
{
	const struct db_value values[] = {
		text_value(device->device_id),       text_value(device->node_id), text_value(device->hardware_key),
		integer_value(device->draining),     text_value(device->record),  integer_value(device->first_seen_ms),
		integer_value(device->last_seen_ms),
	};
	return add_row(batch, BATCH_PUT_DEVICE, values, 7);
}

enum status store_put_token(struct store_batch *batch, const struct store_token *token)
{
	const struct db_value values[] = {
		text_value(token->token_id),
		text_value(token->parent_id),
		text_value(token->name),
		integer_value(token->scopes),
		{.type = DB_BYTES, .bytes = token->secret_hash, .length = STORE_HASH_BYTES},
		{.type = DB_REAL, .real = token->calls_per_s},
		integer_value(token->max_sessions),
		integer_value(token->created_ms),
		integer_value(token->expires_ms),
		integer_value(token->revoked_ms),
		integer_value(token->memory_limit_bytes),
		integer_value(token->last_used_ms),
	};
	enum status status = add_row(batch, BATCH_PUT_TOKEN, values, 12);
	return status || !token->revoked_ms ? status : add_row(batch, BATCH_REMOVE_CONVERSATIONS, values, 1);
}

enum status store_put_conversation(struct store_batch *batch, const struct store_conversation *conversation)
{
	const struct db_value values[] = {
		text_value(conversation->token_id),
		text_value(conversation->conversation_id),
		integer_value(conversation->version),
		integer_value(conversation->updated_ms),
		{.type = DB_BYTES,
		 .bytes = conversation->body_bytes ? (const void *)conversation->body : "",
		 .length = conversation->body_bytes},
	};
	return add_row(batch, BATCH_PUT_CONVERSATION, values, 5);
}

enum status store_remove_conversation(struct store_batch *batch, const char *token_id, const char *conversation_id)
{
	const struct db_value values[] = {text_value(token_id), text_value(conversation_id)};
	return add_row(batch, BATCH_REMOVE_CONVERSATION, values, 2);
}

enum status store_remove_token(struct store_batch *batch, const char *token_id)
{
	const struct db_value values[] = {text_value(token_id)};
	enum status status = add_row(batch, BATCH_ORPHAN_TOKENS, values, 1);
	return status ? status : add_row(batch, BATCH_REMOVE_TOKEN, values, 1);
}

enum status store_put_change(struct store_batch *batch, const struct store_change *change)
{
	const struct db_value values[] = {
		integer_value(change->at_ms), text_value(change->kind),      text_value(change->level),
		text_value(change->node_id),  text_value(change->device_id), text_value(change->name),
		text_value(change->summary),
	};
	const struct db_value kept[] = {integer_value(LIMIT_STORE_CHANGES)};
	enum status status = add_row(batch, BATCH_PUT_CHANGE, values, 7);
	return status ? status : add_row(batch, BATCH_TRIM_CHANGES, kept, 1);
}

enum status store_put_alert(struct store_batch *batch, const struct store_alert *alert)
{
	const struct db_value values[] = {
		text_value(alert->alert_id),
		text_value(alert->kind),
		text_value(alert->severity),
		text_value(alert->subject_type),
		text_value(alert->subject_id),
		text_value(alert->subject_name),
		text_value(alert->message),
		text_value(alert->hint),
		integer_value(alert->raised_ms),
		integer_value(alert->cleared_ms),
		integer_value(alert->acknowledged_ms),
		text_value(alert->acknowledged_by),
		number_value(alert->value),
		number_value(alert->threshold),
		text_value(alert->node_id),
	};
	const struct db_value kept[] = {integer_value(LIMIT_ALERTS)};
	enum status status = add_row(batch, BATCH_PUT_ALERT, values, 15);
	return status ? status : add_row(batch, BATCH_TRIM_ALERTS, kept, 1);
}

enum status store_put_usage(struct store_batch *batch, const struct store_usage *usage)
{
	const struct db_value values[] = {
		integer_value(usage->step_s),
		integer_value(usage->at_s),
		text_value(usage->token_id),
		text_value(usage->model_id),
		text_value(usage->device_id),
		text_value(usage->token_name),
		text_value(usage->model_name),
		text_value(usage->device_name),
		integer_value(usage->counts.requests),
		integer_value(usage->counts.prompt_tokens),
		integer_value(usage->counts.cached_tokens),
		integer_value(usage->counts.completion_tokens),
		number_value(usage->counts.device_s),
		number_value(usage->counts.energy_joules),
		number_value(usage->counts.idle_joules),
		integer_value(usage->counts.energy_source),
	};
	return add_row(batch, BATCH_PUT_USAGE, values, 16);
}

enum status store_trim_usage(struct store_batch *batch, int64_t step_s, int64_t before_s)
{
	const struct db_value values[] = {integer_value(step_s), integer_value(before_s)};
	return add_row(batch, BATCH_TRIM_USAGE, values, 2);
}

enum status store_put_channel(struct store_batch *batch, const struct store_channel *channel)
{
	const struct db_value values[] = {
		text_value(channel->channel_id),    text_value(channel->kind),
		text_value(channel->url),           integer_value(channel->severities),
		integer_value(channel->quiet_from), integer_value(channel->quiet_to),
		text_value(channel->secret),        integer_value(channel->added_ms),
		text_value(channel->added_by),      integer_value(channel->last_ms),
		text_value(channel->last_result),
	};
	return add_row(batch, BATCH_PUT_CHANNEL, values, 11);
}

enum status store_put_channel_result(struct store_batch *batch, const struct store_channel *channel)
{
	const struct db_value values[] = {text_value(channel->channel_id), integer_value(channel->last_ms),
					  text_value(channel->last_result)};
	return add_row(batch, BATCH_CHANNEL_RESULT, values, 3);
}

enum status store_remove_channel(struct store_batch *batch, const char *channel_id)
{
	const struct db_value values[] = {text_value(channel_id)};
	const enum status status = add_row(batch, BATCH_REMOVE_CHANNEL, values, 1);
	return status ? status : add_row(batch, BATCH_REMOVE_DELIVERIES, values, 1);
}

enum status store_put_delivery(struct store_batch *batch, const struct store_delivery *delivery)
{
	const struct db_value values[] = {
		text_value(delivery->delivery_id), text_value(delivery->channel_id),
		text_value(delivery->alert_id),    text_value(delivery->severity),
		text_value(delivery->body),        integer_value(delivery->created_ms),
	};
	return add_row(batch, BATCH_PUT_DELIVERY, values, 6);
}

enum status store_remove_delivery(struct store_batch *batch, const char *delivery_id)
{
	const struct db_value values[] = {text_value(delivery_id)};
	return add_row(batch, BATCH_REMOVE_DELIVERY, values, 1);
}

enum status store_put_certificate(struct store_batch *batch, const struct store_certificate *certificate)
{
	const struct db_value values[] = {
		text_value(certificate->serial),           text_value(certificate->node_id),
		text_value(certificate->sha256),           text_value(certificate->key_sha256),
		integer_value(certificate->not_before_ms), integer_value(certificate->not_after_ms),
		integer_value(certificate->revoked_ms),
	};
	return add_row(batch, BATCH_PUT_CERTIFICATE, values, 7);
}

enum status store_remove_certificate(struct store_batch *batch, const char *serial)
{
	const struct db_value values[] = {text_value(serial)};
	return add_row(batch, BATCH_REMOVE_CERTIFICATE, values, 1);
}

enum status store_put_audit(struct store_batch *batch, const struct journal_entry *entry)
{
	struct db_value values[AUDIT_TEXTS_AT + ENTRY_TEXTS] = {
		integer_value(0), // its seq, once it is known
		integer_value(entry->at_us ? entry->at_us : clock_wall_ms() * 1000),
		integer_value(entry->duration_us),
		integer_value((int64_t)entry->count),
	};
	size_t count = AUDIT_TEXTS_AT, bytes = 0;
	bool fits = true;
#define X(name) \
	values[count] = text_value(entry->name ? entry->name : ""); \
	fits = fits && values[count].length <= ENTRY_TEXT_BYTES; \
	bytes += values[count++].length;
	ENTRY_TEXT_LIST(X)
#undef X
	if (!fits || bytes > ENTRY_BYTES - AUDIT_OVERHEAD) {
		batch->failed = true;
		return STATUS_LIMIT_EXCEEDED;
	}
	batch->entries++;
	return add_row(batch, BATCH_PUT_AUDIT, values, count);
}

enum status store_put_cosigned(struct store_batch *batch, uint64_t size, const char *note)
{
	const struct db_value values[] = {integer_value((int64_t)size), text_value(note)};
	enum status status = add_row(batch, BATCH_PUT_COSIGNED, values, 2);
	return status ? status : add_row(batch, BATCH_TRIM_COSIGNED, values, 1);
}

enum status store_put_ticket(struct store_batch *batch, const struct store_ticket *ticket)
{
	const struct db_value values[] = {
		text_value(ticket->ticket_id),
		{.type = DB_BYTES, .bytes = ticket->secret_hash, .length = STORE_HASH_BYTES},
		text_value(ticket->made_by),
		integer_value(ticket->uses),
		integer_value(ticket->used),
		integer_value(ticket->created_ms),
		integer_value(ticket->expires_ms),
		integer_value(ticket->revoked_ms),
	};
	return add_row(batch, BATCH_PUT_TICKET, values, 8);
}

enum status store_remove_ticket(struct store_batch *batch, const char *ticket_id)
{
	const struct db_value values[] = {text_value(ticket_id)};
	return add_row(batch, BATCH_REMOVE_TICKET, values, 1);
}

enum status store_put_lend(struct store_batch *batch, const struct store_lend *lend)
{
	const struct db_value values[] = {
		text_value(lend->lend_id),
		{.type = DB_BYTES, .bytes = lend->secret_hash, .length = STORE_HASH_BYTES},
		text_value(lend->name),
		text_value(lend->made_by),
		integer_value(lend->uses),
		integer_value(lend->used),
		integer_value(lend->created_ms),
		integer_value(lend->expires_ms),
		integer_value(lend->revoked_ms),
	};
	return add_row(batch, BATCH_PUT_LEND, values, 9);
}

enum status store_remove_lend(struct store_batch *batch, const char *lend_id)
{
	const struct db_value values[] = {text_value(lend_id)};
	return add_row(batch, BATCH_REMOVE_LEND, values, 1);
}

enum status store_put_tab(struct store_batch *batch, const struct store_tab *tab)
{
	const struct db_value values[] = {
		text_value(tab->node_id),
		text_value(tab->lend_id),
		{.type = DB_BYTES, .bytes = tab->secret_hash, .length = STORE_HASH_BYTES},
		integer_value(tab->joined_ms),
	};
	return add_row(batch, BATCH_PUT_TAB, values, 4);
}

enum status store_remove_tab(struct store_batch *batch, const char *node_id)
{
	const struct db_value values[] = {text_value(node_id)};
	return add_row(batch, BATCH_REMOVE_TAB, values, 1);
}

enum status store_put_model(struct store_batch *batch, const struct store_model *model)
{
	const struct db_value values[] = {
		text_value(model->model_id),      text_value(model->name),           text_value(model->source),
		text_value(model->request),       text_value(model->path),           text_value(model->state),
		integer_value(model->file_bytes), integer_value(model->modified_ns), text_value(model->sha256),
		text_value(model->state_reason),  integer_value(model->added_ms),    text_value(model->architecture),
	};
	return add_row(batch, BATCH_PUT_MODEL, values, 12);
}

enum status store_remove_model(struct store_batch *batch, const char *model_id)
{
	const struct db_value values[] = {text_value(model_id)};
	return add_row(batch, BATCH_REMOVE_MODEL, values, 1);
}

static enum status add_instance(struct store_batch *batch, enum batch_statement statement,
				const struct store_instance *instance)
{
	const struct db_value values[] = {
		text_value(instance->instance_id),   text_value(instance->model_id),
		text_value(instance->model_name),    text_value(instance->wanted),
		integer_value(instance->created_ms), text_value(instance->last),
		integer_value(instance->epoch),      integer_value(instance->recoveries),
		integer_value(instance->moves),      text_value(instance->workers),
	};
	return add_row(batch, statement, values, 10);
}

enum status store_put_instance(struct store_batch *batch, const struct store_instance *instance)
{
	return add_instance(batch, BATCH_PUT_INSTANCE, instance);
}

enum status store_change_instance(struct store_batch *batch, const struct store_instance *instance)
{
	return add_instance(batch, BATCH_CHANGE_INSTANCE, instance);
}

enum status store_remove_instance(struct store_batch *batch, const char *instance_id)
{
	const struct db_value values[] = {text_value(instance_id)};
	return add_row(batch, BATCH_REMOVE_INSTANCE, values, 1);
}

enum status store_put_link(struct store_batch *batch, const struct store_link *link)
{
	const struct db_value values[] = {
		text_value(link->from_node_id),     text_value(link->to_node_id),
		text_value(link->class_name),       text_value(link->interface),
		text_value(link->address),          measured_value(link->interface_bits_per_s),
		measured_value(link->rtt_ms),       measured_value(link->jitter_ms),
		measured_value(link->loss_percent), measured_value(link->throughput_bytes_per_s),
		integer_value(link->throughput_ms), integer_value(link->measured_ms),
		text_value(link->degraded),
	};
	return add_row(batch, BATCH_PUT_LINK, values, 13);
}

enum status store_put_layer_time(struct store_batch *batch, const struct store_layer_time *time)
{
	const struct db_value values[] = {
		text_value(time->device_id),    text_value(time->format),          integer_value(time->layer_bytes),
		measured_value(time->layer_s),  integer_value(time->output_bytes), measured_value(time->output_s),
		measured_value(time->prompt_s), measured_value(time->batch[0]),    measured_value(time->batch[1]),
		measured_value(time->batch[2]), measured_value(time->batch[3]),    measured_value(time->batch[4]),
		measured_value(time->batch[5]), measured_value(time->batch[6]),    integer_value(time->measured_ms),
		measured_value(time->spread),
	};
	return add_row(batch, BATCH_PUT_LAYER_TIME, values, 16);
}

enum status store_remove_node(struct store_batch *batch, const char *node_id)
{
	const struct db_value values[] = {text_value(node_id)};
	enum status status = add_row(batch, BATCH_REMOVE_LINKS, values, 1);
	if (!status)
		status = add_row(batch, BATCH_REMOVE_LAYER_TIMES, values, 1);
	if (!status)
		status = add_row(batch, BATCH_REMOVE_DEVICES, values, 1);
	return status ? status : add_row(batch, BATCH_REMOVE_NODE, values, 1);
}
