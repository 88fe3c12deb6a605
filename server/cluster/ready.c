/* Tells whether the devices of the server's own machine have been found: its node says when every back end has
 * answered and every device is verified or has failed. A hanging driver or a missing node delays this by
 * LIMIT_DISCOVERY_MS at most; then whatever is there counts. Thread: the loop's. */
#include "common/base/limits.h"
#include "common/base/log.h"
#include "server/cluster/state.h"

static void told(struct cluster *cluster)
{
	struct json *event = json_new_object();
	static const char *const nothing[] = {"change", "node", "device"};
	static const char *const none[] = {"allocations", "freed"};
	cluster->discovering = false;
	net_timer_stop(cluster->params.loop, &cluster->discovery_limit);
	for (size_t i = 0; i < sizeof nothing / sizeof *nothing; i++)
		json_set_null(event, nothing[i]);
	for (size_t i = 0; i < sizeof none / sizeof *none; i++)
		json_set(event, none[i], json_new_array());
	json_set_bool(event, "discovering", false);
	events_publish(cluster->params.events, TOPIC_INVENTORY, 0, event);
	if (cluster->discovered)
		cluster->discovered(cluster->discovered_context);
}

static void waited_enough(void *arg)
{
	struct cluster *cluster = arg;
	log_warning("cluster",
		    "the devices of this machine are not all found and verified after %d s; "
		    "what is there is used",
		    LIMIT_DISCOVERY_MS / 1000);
	told(cluster);
}

void cluster_discover(struct cluster *cluster)
{
	cluster->discovering = true;
	net_timer_start(cluster->params.loop, &cluster->discovery_limit, LIMIT_DISCOVERY_MS, waited_enough, cluster);
}

void cluster_discovered(struct cluster *cluster)
{
	if (cluster->discovering)
		told(cluster);
}

bool cluster_discovering(const struct cluster *cluster)
{
	return cluster->discovering;
}

void cluster_on_discovered(struct cluster *cluster, void (*discovered)(void *context), void *context)
{
	cluster->discovered = discovered;
	cluster->discovered_context = context;
}
