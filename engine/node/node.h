/* The node process: finds the devices of its machine, has workers verify them, samples telemetry, reports to the
 * server.
 *
 * `exogpu node` holds no GPU context ever and loads no driver but the vendors' monitoring libraries; what a driver does
 * to a worker is a line in a device's record. One loop thread does everything but sampling (engine/telemetry). */
#pragma once

// Exit status of the process: 0 after a clean stop or when its server stays away, 1 on failure, 2 on bad usage.
int node_main(int argc, char **argv);
