/* The options of `exogpu serve`. Thread: before any other. */
#pragma once
#include "common/base/log.h"
#include "common/text/flags.h"
#include "server/security/limits.h"
#include "server/traces/settings.h"

struct options {
	char address[64]; // numeric
	int port;
	const char *ollama_token; // of the listener for Ollama's clients: its id or name; NULL: there is none
	char ollama_address[64];  // loopback's
	int ollama_port;
	bool tls;                                   // the address is not loopback's
	bool announced;                             // on the local networks
	const char *tls_cert, *tls_key, *tls_names; // NULL: not given
	char data[4096];
	const char *store;       // postgres://…; NULL: as before, or else in the data directory
	const char *cluster_key; // a file: several servers take turns on the store; NULL: this one alone
	const char *name;        // NULL: as stored, else the host's
	bool local_node;
	enum log_level log_level;
	const char *hub_url, *ollama_url;       // NULL: everybody's
	const char *model_dirs[FLAGS_MANY + 1]; // folders that an admin may look into; ends with NULL
	const char *catalog;                    // a file; NULL: the one in the binary
	double placement_timeout_s;
	double headroom;   // 0 to 0.9: the part of each device's memory that models leave free; < 0: nothing was said
	double give_way_s; // that an instance is idle before it may be evicted for another; < 0: none may
	bool take_better;
	bool speculate;            // on processors, where a request does not say
	bool load_on_demand;       // for any token that may ask
	int64_t tokens_per_minute; // of models, that each token may have computed; 0: no limit
	struct limit_values limits;
	const char *accept_unsigned;              // entries of the audit log, "FIRST-LAST"; NULL: none
	const char *limit_settings;               // as they were given; NULL: none
	const char *cors_origins[FLAGS_MANY + 1]; // whose pages may use /v1; ends with NULL
	struct traces_settings traces;            // the caller finishes them
	const char *alert_hosts[FLAGS_MANY + 1];  // that alerts may be sent to although private; ends with NULL
};
// Errors: STATUS_INVALID_PARAMS with a hint. *help: the help was asked for and nothing else is to be done.
enum status options_parse(struct options *options, int argc, char **argv, bool *help, struct error *error);
void options_print_help(void);
