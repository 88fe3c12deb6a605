/* See app.c: of several servers on one database, how this one comes to lead. */
#include "common/base/log.h"
#include "server/app_inside.h"
#include "server/store/place.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_REPLACED = 3 };

static void leads_now(void *arg)
{
	struct app *app = arg;
	if (app->waiting)
		net_loop_stop(app->loop);
}

// The turn's thread.
static void begun(void *context)
{
	struct app *app = context;
	net_loop_post(app->loop, leads_now, app);
}

// The turn's thread. What this process has in memory is the past: it ends at once, as by a crash, after which nodes and
// clients go on at the server that leads. Who has started it starts it again, as a follower.
static void lost(void *context)
{
	(void)context;
	log_error("turn", "another server has taken over: this one ends; started again it follows");
	_exit(EXIT_REPLACED);
}

static enum status choose_url(const struct app *app, char url[PLACE_BYTES], struct error *error)
{
	enum status status = STATUS_OK;
	url[0] = 0;
	if (app->options.store)
		snprintf(url, PLACE_BYTES, "%s", app->options.store);
	else
		status = place_read(app->options.data, url, error);
	if (status || url[0])
		return status;
	error_set(error, STATUS_INVALID_PARAMS,
		  "--cluster-key is for several servers on one PostgreSQL, and --store names none");
	error_hint(error, "see docs/deployment.md; one server needs neither");
	return STATUS_INVALID_PARAMS;
}

static enum status follow(struct app *app, struct error *error)
{
	uint8_t pass_key[NET_PASS_KEY_BYTES];
	const struct standby_params params = {.loop = app->loop,
					      .turn = app->turn,
					      .directory = app->options.data,
					      .socket_path = app->socket_path,
					      .address = app->options.address,
					      .port = app->options.port,
					      .tls = app->options.tls,
					      .tls_cert = app->options.tls_cert,
					      .tls_key = app->options.tls_key,
					      .tls_names = app->options.tls_names,
					      .pass_key = pass_key};
	enum status status = secrets_fetch(app->secrets, false, error);
	if (!status)
		status = secrets_pass_key(app->secrets, pass_key, error);
	if (!status)
		status = standby_create(&app->standby, &params, error);
	OPENSSL_cleanse(pass_key, sizeof pass_key);
	if (status)
		return status;
	turn_set_address(app->turn, standby_url(app->standby));
	printf("standby: %s\n", standby_url(app->standby));
	fflush(stdout);
	supervisor_ready(&app->supervisor);
	log_info("turn", "this server follows at %s, and takes over when the one that leads is gone",
		 standby_url(app->standby));
	app->waiting = true;
	while (!app->stopping && !turn_leads(app->turn))
		net_loop_run(app->loop);
	app->waiting = false;
	if (standby_port(app->standby)) // others know it by now
		app->options.port = standby_port(app->standby);
	standby_end(app->standby);
	return STATUS_OK;
}

enum status app_take_turn(struct app *app, struct error *error)
{
	char url[PLACE_BYTES];
	enum status status = choose_url(app, url, error);
	const struct turn_params turn = {.url = url, .begun = begun, .lost = lost, .context = app};
	if (!status)
		status = turn_create(&app->turn, &turn, error);
	if (!status)
		status = secrets_create(&app->secrets, app->turn, app->options.cluster_key, app->options.data, error);
	if (!status)
		status = secrets_check(app->secrets, error);
	if (!status && !turn_leads(app->turn))
		status = follow(app, error);
	if (!status && !app->stopping)
		status = secrets_fetch(app->secrets, true, error);
	return status;
}
