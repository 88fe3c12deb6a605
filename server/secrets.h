/* What several servers on one database must have alike: the keys of the cluster's authority, of the audit log and of
 * the conversations. They are files of the data directory, as with one server, and in the database as well, encrypted
 * under the key of --cluster-key: who leads puts them there, who takes over gets them from there. Thread: any; these
 * wait for the disk and the database. */
#pragma once
#include "common/net/ws/ws.h"
#include "server/store/turn.h"

struct secrets;
// `key_file`: 64 hexadecimal digits. `turn` must outlive it. Errors: STATUS_INVALID_PARAMS, private_file_read's, with
// hints.
enum status secrets_create(struct secrets **out, struct turn *turn, const char *key_file, const char *directory,
			   struct error *error);
void secrets_destroy(struct secrets **secrets);
// Whether the key opens what the database has. Errors: STATUS_UNAUTHENTICATED, with a hint; the database's.
enum status secrets_check(struct secrets *secrets, struct error *error);
// What the database has, into the data directory: all of it, or, for a server that follows, the authority alone.
// Errors: also STATUS_CONFLICT (the directory is another cluster's), with a hint.
enum status secrets_fetch(struct secrets *secrets, bool all, struct error *error);
// What the data directory has, into the database, and nothing else.
enum status secrets_share(struct secrets *secrets, struct error *error);
// The key by which servers of this cluster know each other when one passes a connection on (common/net/http/pass.h).
// Errors: STATUS_INTERNAL.
enum status secrets_pass_key(const struct secrets *secrets, uint8_t key[NET_PASS_KEY_BYTES], struct error *error);
// Of the audit log; for struct store_params.
enum status secrets_share_key(void *secrets, uint64_t segment, struct error *error);
void secrets_forget_key(void *secrets, uint64_t segment);
