/* The faults of the simulation: which happen is drawn, one after the other, until they stop. */
#pragma once
#include "tests/server/instances/whole/disk.h"

enum { FAULT_MS = 5000, KILL_MS = 10000 };

// ---- faults ----

static struct sim_worker *some_worker(void)
{
	const unsigned first = world.worker_count ? (unsigned)draw(world.worker_count) : 0;
	for (unsigned i = 0; i < world.worker_count; i++) {
		struct sim_worker *one = &world.workers[(first + i) % world.worker_count];
		if (!one->dead)
			return one;
	}
	return NULL;
}

static void uncut(void *arg)
{
	node_uncut(arg);
}

static void start_node(void *arg)
{
	node_starts(arg);
}

static void return_device(void *arg)
{
	struct sim_device *device = arg;
	struct sim_node *node = &world.nodes[device->node];
	if (!device->absent)
		return;
	device->absent = false;
	if (node->registered)
		tell_devices(node);
}

static void drained(void *context, enum status status, const struct cluster_device *device, const struct error *error)
{
	(void)context, (void)status, (void)device, (void)error;
}

static void drain_device(unsigned number, bool drain)
{
	struct error error = {0};
	struct cluster_device *device = server.there
						? cluster_find_device(server.cluster, world.devices[number].device_id)
						: NULL;
	if (device && device->draining != drain && drain)
		world.devices[number].drained_ms = virtual.now_ms;
	if (device && device->draining != drain)
		cluster_drain_device(
			server.cluster, device,
			&(struct cluster_drain_params){.drain = drain, .by = &audit_server, .done = drained}, &error);
}

static void start_server(void *arg)
{
	(void)arg;
	if (server.there)
		return;
	disk_check();
	server_starts();
}

static void end_server(bool killed)
{
	if (!server.there)
		return;
	world.ended_ms = virtual.now_ms;
	if (killed)
		server_killed();
	else
		server_stopped();
	clients_lose_server();
	virtual_after(draw_ms(50, draw(3) ? 2000 : 20000), start_server, NULL);
}

static void kill_server(void *arg)
{
	(void)arg;
	if (world.faults)
		end_server(true);
}

// Nothing can be written, or the queue is full, for a while; now and then the server is killed once it has had the time
// to write what it could not.
static void disk_fails(void)
{
	int64_t *until_ms = draw(2) ? &virtual.full_until_ms : &virtual.busy_until_ms;
	*until_ms = virtual.now_ms + draw_ms(1, draw(3) ? 3000 : 20000);
	if (!draw(3) && !(world.kinds & KIND_HEAT))
		virtual_after(*until_ms - virtual.now_ms + draw_ms(UNWRITTEN_MS, UNWRITTEN_MS * 3 / 2), kill_server,
			      NULL);
	TRACE("the disk is %s", until_ms == &virtual.full_until_ms ? "full" : "busy");
}

static void link_heals(void *arg)
{
	enum link_state *link = arg;
	const ptrdiff_t at = link - &world.links[0][0];
	link_becomes((unsigned)(at / NODES), (unsigned)(at % NODES), LINK_UP);
}

static void way_heals(void *arg)
{
	struct sim_node *node = arg;
	node->slow = false;
}

static void link_fails(struct sim_node *node)
{
	const unsigned other = (unsigned)draw(NODES);
	const int64_t ms = draw_ms(100, draw(2) ? 5000 : 30000);
	if (other == node->number) {
		TRACE("the way of %s to the server is slow", node->name);
		node->slow = true;
		virtual_after(ms, way_heals, node);
		return;
	}
	link_becomes(node->number, other, draw(2) ? LINK_SLOW : LINK_CUT);
	virtual_after(ms, link_heals, &world.links[node->number][other]);
}

static void cools(void *arg)
{
	struct sim_device *device = arg;
	device->hot_celsius = 0;
}

static void device_gets_hot(struct sim_device *device)
{
	device->hot_celsius = 10 + (double)draw(50);
	TRACE("the air of %s gets hotter by %.0f", device->name, device->hot_celsius);
	virtual_after(draw_ms(20000, 200000), cools, device);
}

static void fault(void)
{
	struct sim_worker *worker = some_worker();
	struct sim_node *node = &world.nodes[draw(NODES)];
	struct sim_device *device = &world.devices[draw(DEVICES)];
	switch (draw(20)) {
	case 0:
	case 1:
	case 2:
		if (worker)
			worker_dies(worker, "it was killed");
		break;
	case 3:
	case 4:
		if (!node->cut && !node->down) {
			node_cut(node);
			virtual_after(draw_ms(10, draw(2) ? 6000 : 25000), uncut, node);
		}
		break;
	case 5: // its control connection breaks
		if (node->uplink && !node->cut)
			node_loses_server(node, 1006);
		break;
	case 6: // the line of a worker breaks
		if (worker && worker->conn && !world.nodes[worker->node].cut) {
			struct net_conn *conn = worker->conn;
			post_letter(conn, true, NULL, 0, 1006);
			node_closed(conn, 1006);
		}
		break;
	case 7:
		if (worker)
			hop_breaks(draw(2) ? worker->hop_in : worker->hop_out);
		break;
	case 8:
		if (!node->down && !draw(2)) {
			node_ends(node);
			virtual_after(draw_ms(500, 20000), start_node, node);
		}
		break;
	case 9:
		drain_device((unsigned)draw(DEVICES), draw(2));
		break;
	case 10:
		device->absent = !device->absent;
		if (world.nodes[device->node].registered)
			tell_devices(&world.nodes[device->node]);
		virtual_after(draw_ms(500, 15000), return_device, device);
		break;
	case 11:
		if (world.kinds & KIND_HEAT) // a server that starts learns anew
			break;
		if (draw(2))
			world.kill_ms = virtual.now_ms + KILL_MS;
		else if (!draw(3))
			end_server(false);
		break;
	case 12:
		if (server.there && some_instance())
			instances_move(server.instances, some_instance()->instance_id, NULL, NULL);
		break;
	case 13:
		if (server.there && some_instance() && !draw(3))
			unwant_instance(some_instance());
		break;
	case 14:
	case 15:
		if (world.kinds & KIND_DISK)
			disk_fails();
		break;
	case 18:
	case 19:
		if (world.kinds & KIND_HEAT)
			device_gets_hot(device);
		break;
	case 16:
	case 17:
		if (world.kinds & KIND_LINKS)
			link_fails(node);
		break;
	}
}

static void next_fault(void *arg)
{
	(void)arg;
	if (!world.faults)
		return;
	fault();
	const int64_t most_ms = world.kinds & KIND_HEAT ? 3 * FAULT_MS : FAULT_MS;
	virtual_after(draw_ms(1, draw(3) ? most_ms : most_ms / 10), next_fault, NULL);
}

static void want_more(void *arg)
{
	(void)arg;
	if (server.there && wanted_count() < WANTED)
		want_instance((unsigned)draw(MODELS));
	virtual_after(draw_ms(1000, 20000), want_more, NULL);
}

static void faults_stop(void)
{
	world.faults = false;
	world.kill_ms = 0;
	virtual.full_until_ms = virtual.busy_until_ms = 0;
	TRACE("faults stop");
	start_server(NULL);
	for (unsigned i = 0; i < NODES; i++) {
		node_uncut(&world.nodes[i]);
		world.nodes[i].slow = false;
		for (unsigned j = 0; j < i; j++)
			link_becomes(i, j, LINK_UP);
		node_starts(&world.nodes[i]);
	}
	for (unsigned i = 0; i < DEVICES; i++) {
		return_device(&world.devices[i]);
		cools(&world.devices[i]);
		drain_device(i, false);
	}
}
