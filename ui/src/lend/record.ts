/* What a tab reports of itself, as schema/node.json has it. What the browser hides is null, never a guess. Pure. */
import type { GpuDescription, Verification } from "./gpu";
import type { Facts, Readings } from "./messages";

/** Where a text must stand and the browser tells none. */
const HIDDEN = "not reported";

export const deviceId = (node_id: string): string => `dev${node_id.slice(node_id.indexOf("_"))}_0`;

export function nodeRecord(node_id: string, name: string, facts: Facts, gpu: GpuDescription | null): object {
  return {
    link_port: 0,
    node_id,
    name,
    host_name: name,
    os: facts.os,
    kernel: null,
    arch: null,
    cpu_model: null,
    cpu_cores: null,
    cpu_threads: facts.cpu_threads,
    memory_bytes: null,
    version: facts.version,
    addresses: [],
    backends: [{ backend: "webgpu", enabled: gpu !== null, reason: gpu ? null : "this browser offers no GPU" }],
    libraries: [],
    capabilities: [],
  };
}

/** As a person calls it: the most exact name that the browser tells. */
export function gpuName(gpu: GpuDescription): string {
  const parts = [gpu.vendor, gpu.architecture].filter((part) => part !== null);
  const name = gpu.description ?? gpu.device ?? (parts.length > 0 ? parts.join(" ") : "GPU of a browser");
  return name.slice(0, 64);
}

const cut = (text: string | null): string => (text ?? HIDDEN).slice(0, 64);

/** `at`: when it was verified; limit: what is lent of its memory, since no browser tells how much there is. */
export function deviceRecord(node_id: string, gpu: GpuDescription, limit: number, verified: (Verification & { at: string }) | null): object {
  const verification = verified
    ? { state: verified.state, at: verified.at, duration_ms: verified.duration_ms, error: verified.error?.slice(0, 512) ?? null }
    : { state: "pending", at: null, duration_ms: null, error: null };
  return {
    device_id: deviceId(node_id),
    hardware_key: "webgpu:0",
    name: gpuName(gpu),
    vendor: cut(gpu.vendor),
    model: cut(gpu.device),
    family: gpu.architecture?.slice(0, 64) ?? null,
    backend: "webgpu",
    apis: [{ backend: "webgpu", api_version: null, driver_version: null, verification }],
    kind: gpu.software ? "cpu" : "virtual",
    removable: true,
    low_power: false,
    unified_memory: false,
    memory_pool: "webgpu:0",
    memory_bytes: limit,
    memory_budget_bytes: limit,
    largest_buffer_bytes: Math.min(gpu.buffer_bytes, gpu.binding_bytes),
    memory_bandwidth_bytes_per_s: verified?.memory_bandwidth_bytes_per_s ?? null,
    compute_units: null,
    api_version: null,
    driver_version: null,
    formats: gpu.features.includes("shader-f16") ? ["f32", "f16"] : ["f32"],
    features: gpu.features.slice(0, 64).map((feature) => feature.slice(0, 64)),
    peers: [],
    uuid: null,
    pci_address: null,
    support: "experimental",
    support_reason: gpu.software
      ? "WebGPU of a browser, computed by its processor: slow"
      : "WebGPU of a browser: memory, compute, and layers of models between others",
    verification,
    present: true,
  };
}

export function nodeReadings(node_id: string, at: string, readings: Readings): object {
  return {
    node_id,
    at,
    cpu_percent: null,
    memory_total_bytes: null,
    memory_available_bytes: null,
    swap_total_bytes: null,
    swap_used_bytes: null,
    load_1m: null,
    disk_read_bytes_per_s: null,
    disk_write_bytes_per_s: null,
    network_rx_bytes_per_s: null,
    network_tx_bytes_per_s: null,
    ...readings,
  };
}

export function deviceReadings(node_id: string, at: string, memory: { held_bytes: number; limit_bytes: number }): object {
  return {
    device_id: deviceId(node_id),
    at,
    utilization_percent: null,
    memory_used_bytes: memory.held_bytes,
    memory_total_bytes: memory.limit_bytes,
    power_watts: null,
    power_limit_watts: null,
    temperature_celsius: null,
    memory_temperature_celsius: null,
    slowdown_celsius: null,
    memory_slowdown_celsius: null,
    thermal_state: null,
    ecc_errors: null,
    clock_mhz: null,
    memory_clock_mhz: null,
    fan_percent: null,
    pcie_rx_bytes_per_s: null,
    pcie_tx_bytes_per_s: null,
    throttle: null,
    processes: null,
    availability_score: null,
    energy_joules: null,
    energy_source: null,
  };
}

/** The way to the server: what is measured of it, and nothing of the network, which the browser hides. */
export function linkReading(at: string, rtt_ms: number, jitter_ms: number | null): object {
  return {
    peer_id: "server",
    state: "up",
    reason: null,
    class: "unknown",
    interface: null,
    address: null,
    interface_bits_per_s: null,
    rtt_ms,
    jitter_ms,
    loss_percent: null,
    throughput_bytes_per_s: null,
    throughput_at: null,
    sent_bytes_per_s: null,
    throughput_back_bytes_per_s: null,
    measured_at: at,
  };
}
