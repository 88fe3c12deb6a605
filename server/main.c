/* One binary, several processes: the first argument says which this is.
 *
 * The code is best read in this order: schema/api.json (what can be asked), common/wire/message.h (the one message),
 * server/app.c (what the server is made of), server/cluster/cluster.h (the state and how it changes),
 * engine/node/node.h (what runs on every machine), engine/backend.h (what a device can do). */
#include "engine/node/node.h"
#include "engine/worker/worker.h"
#include "server/app.h"
#include "server/cli/cli.h"

#include <string.h>

int main(int argc, char **argv)
{
	const char *command = argc > 1 ? argv[1] : "";
	if (!strcmp(command, "serve"))
		return app_main(argc - 1, argv + 1);
	if (!strcmp(command, "node"))
		return node_main(argc - 1, argv + 1);
	if (!strcmp(command, "worker"))
		return worker_main(argc - 1, argv + 1);
	return cli_main(argc, argv);
}
