// Records as a node reports them: complete records, every key there, with the given ones changed.
export const nodeRecord = (changes = {}) => ({
	node_id: "nod_test", name: "bench", host_name: "bench.example", os: "Debian GNU/Linux 12", kernel: "6.1.0", arch: "x86_64",
	cpu_model: "A CPU", cpu_cores: 8, cpu_threads: 16, memory_bytes: 34359738368, version: "0.1.0", addresses: ["192.0.2.7"],
	backends: [{ backend: "cpu", enabled: true, reason: null }, { backend: "cuda", enabled: false, reason: "no driver" }],
	libraries: [{ name: "CUDA driver", file: null, state: "missing", version: null, minimum_version: "12.0", reason: "not found",
		hint: "install the driver" }],
	capabilities: ["verify"], link_port: 0, ...changes });

export const passed = { state: "passed", at: "2026-11-20T14:31:52.000Z", duration_ms: 412.5, error: null };
export const pending = { state: "pending", at: null, duration_ms: null, error: null };

export const deviceRecord = (changes = {}) => ({
	device_id: "dev_gpu", hardware_key: "uuid:0f", name: "GPU One", vendor: "Vendor", model: "Model", family: "Family",
	backend: "vulkan", apis: [{ backend: "vulkan", api_version: "1.3.0", driver_version: "1.2.3", verification: passed }],
	kind: "discrete", removable: false, low_power: false, unified_memory: false, memory_pool: "uuid:0f",
	memory_bytes: 17179869184, memory_budget_bytes: 16000000000, largest_buffer_bytes: null, memory_bandwidth_bytes_per_s: 4.5e11, compute_units: 64,
	api_version: "1.3.0", driver_version: "1.2.3", formats: ["f32", "f16"], features: ["subgroups"], peers: [],
	uuid: "00000000-0000-0000-0000-00000000000f", pci_address: "0000:01:00.0", support: "full", support_reason: null,
	verification: passed, present: true, ...changes });

export const deviceReadings = (changes = {}) => ({
	device_id: "dev_gpu", at: new Date().toISOString(), utilization_percent: 25, memory_used_bytes: 4294967296,
	memory_total_bytes: 17179869184, power_watts: 120.5, power_limit_watts: 300, temperature_celsius: 55,
	memory_temperature_celsius: null, slowdown_celsius: 90, memory_slowdown_celsius: null, thermal_state: "normal", ecc_errors: 0, clock_mhz: 1800,
	memory_clock_mhz: null, fan_percent: 30, pcie_rx_bytes_per_s: 1000, pcie_tx_bytes_per_s: null, throttle: [],
	processes: null, availability_score: 0.75, energy_joules: null, energy_source: null, ...changes });

// One direction of a link, as its sender measures it.
export const linkReading = (changes = {}) => ({
	peer_id: "server", state: "up", reason: null, class: "ethernet", interface: "eth0", address: "192.0.2.1",
	interface_bits_per_s: 1e10, rtt_ms: 0.4, jitter_ms: 0.05, loss_percent: 0, throughput_bytes_per_s: 1.1e9,
	throughput_at: new Date().toISOString(), sent_bytes_per_s: 0, throughput_back_bytes_per_s: null, measured_at: new Date().toISOString(), ...changes });

export const nodeReadings = (changes = {}) => ({
	node_id: "nod_test", at: new Date().toISOString(), cpu_percent: 12.5, memory_total_bytes: 34359738368,
	memory_available_bytes: 20000000000, swap_total_bytes: 0, swap_used_bytes: 0, load_1m: 0.5, disk_read_bytes_per_s: 0,
	disk_write_bytes_per_s: 4096, network_rx_bytes_per_s: 100, network_tx_bytes_per_s: 200, battery_percent: null, charging: null,
	visible: null, pressure: null, ...changes });
