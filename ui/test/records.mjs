/* Records as the contract has them, for tests; every key is there, as from the server. */

const T = "2026-11-20T14:31:52.000Z";
export const GIB = 2 ** 30;
const verification = { state: "passed", at: T, duration_ms: 400, error: null };

export const node = (id, more = {}) => ({
  node_id: id, name: id, state: "online", state_reason: null, local: true, host_name: id, os: null, kernel: null, arch: null,
  cpu_model: null, cpu_cores: 8, cpu_threads: 16, memory_bytes: 64 * GIB, version: "0.1.0", addresses: [], backends: [],
  libraries: [], capabilities: [], first_seen_at: T, last_seen_at: T, ...more,
});

export const device = (id, more = {}) => ({
  device_id: id, node_id: "n1", name: id, vendor: "NVIDIA", model: "H200", family: "Hopper", backend: "cuda", apis: [],
  kind: "discrete", removable: false, low_power: false, unified_memory: false, memory_pool: id, memory_bytes: 100 * GIB,
  memory_budget_bytes: null, memory_bandwidth_bytes_per_s: null, compute_units: 132, api_version: null, driver_version: null,
  formats: [], features: [], uuid: null, pci_address: null, support: "full", support_reason: null, state: "idle",
  state_reason: null, draining: false, verification, first_seen_at: T, last_seen_at: T, ...more,
});

export const deviceReading = (id, more = {}) => ({
  device_id: id, at: T, utilization_percent: 50, memory_used_bytes: 40 * GIB, memory_total_bytes: 100 * GIB,
  power_watts: 300, power_limit_watts: 700, temperature_celsius: 60, memory_temperature_celsius: null,
  slowdown_celsius: 90, thermal_state: "normal", ecc_errors: null, clock_mhz: null, memory_clock_mhz: null,
  fan_percent: null, pcie_rx_bytes_per_s: null, pcie_tx_bytes_per_s: null, throttle: [], processes: null,
  availability_score: null, ...more,
});

export const nodeReading = (id, more = {}) => ({
  node_id: id, at: T, cpu_percent: 20, memory_total_bytes: 64 * GIB, memory_available_bytes: 48 * GIB,
  swap_total_bytes: null, swap_used_bytes: null, load_1m: null, disk_read_bytes_per_s: null,
  disk_write_bytes_per_s: null, network_rx_bytes_per_s: null, network_tx_bytes_per_s: null, battery_percent: null,
  charging: null, ...more,
});

export const change = (more = {}) => ({
  at: T, kind: "device.verified", level: "info", node_id: "n1", device_id: "d1", name: "d1", summary: "verified", ...more,
});

export const snapshot = (more = {}) => ({
  epoch: "e1", seq: 10, nodes: [node("n1")],
  devices: [device("d1"), device("d2", { backend: "cpu", kind: "cpu", memory_pool: "host", memory_bytes: 64 * GIB })],
  links: [], models: [], instances: [], allocations: [], alerts: [],
  telemetry: { nodes: [nodeReading("n1")], devices: [deviceReading("d1"), deviceReading("d2", { power_watts: null, memory_used_bytes: 16 * GIB, memory_total_bytes: 64 * GIB })] },
  recent: [], ...more,
});
