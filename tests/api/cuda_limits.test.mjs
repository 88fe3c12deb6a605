// What a compilation of CUDA C may use: seconds of a processor, addresses, seconds of a clock. The build with assertions lets a
// test lower each of them, so that sources meet them at once. In a sanitizer's build there is no limit of addresses.
import assert from "node:assert/strict";
import { existsSync, readFileSync, symlinkSync } from "node:fs";
import { dirname, join } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { Client, assertContractKept } from "./client.mjs";
import { workers } from "./machine.mjs";
import { eventually, patience, startServer, temporary } from "./server.mjs";

const standin = process.env.EXOGPU_CUDA_STANDIN;
const nvrtc = process.env.EXOGPU_NVRTC ?? fileURLToPath(new URL("../../build/nvrtc", import.meta.url));
const skip = !standin ? "EXOGPU_CUDA_STANDIN is not set" :
	!existsSync(join(nvrtc, "libnvrtc.so.12")) && `${nvrtc} has no NVRTC: python3 -B cmake/nvrtc.py fetch build/nvrtc`;

// Each macro is `factor` times the one before; the first one is `seed`.
const macros = (count, factor, seed) => Array.from({ length: count }, (_, i) => `#define M${i} ${i ? `M${i - 1} `.repeat(factor) : seed}`).join("\n");
const good = "extern \"C\" __global__ void k(float *x) { x[0] = 1; }";

describe("the limits of a compilation", { skip: skip || false }, () => {
	const library = temporary();
	let server, admin, device;
	const start = async (limits) => {
		await admin?.close();
		await server?.finish();
		server = await startServer({ localNode: true, env: { LD_LIBRARY_PATH: `${library}:${dirname(standin)}:${nvrtc}`, CUDA_STANDIN: "90", ...limits } });
		admin = await Client.login(server);
		device = await eventually(async () => (await admin.call("cluster.snapshot")).devices.find((one) => one.backend === "cuda" && one.verification.state === "passed"),
			"the stand-in is verified", 6 * patience);
	};
	const load = (text) => admin.callWith("compute.load", { device_id: device.device_id, format: "cuda" }, Buffer.from(text));
	const refused = (text) => load(text).then(() => assert.fail("loaded"), (error) => error);
	const compilers = () => workers(server.child.pid).filter((pid) => {
		try {
			return readFileSync(`/proc/${pid}/maps`, "latin1").includes("libnvrtc");
		} catch {
			return false; // it has ended
		}
	});

	before(async () => {
		symlinkSync(standin, join(library, "libcuda.so.1"));
		await start({ EXOGPU_TEST_SOURCE_S: "2", EXOGPU_TEST_SOURCE_MIB: "640" });
	});
	after(async () => {
		await admin?.close();
		await server?.finish();
		assertContractKept();
	});
	const goesOn = async () => {
		const { module_id } = await load(good);
		await admin.call("compute.unload", { module_id });
	};

	test("a source that computes for long ends with its time of a processor", async () => {
		const began = process.hrtime.bigint(), error = await refused(`${macros(40, 10, "")}\n__global__ void k() { M39 }`);
		assert.equal(error.reason, "unavailable");
		assert.match(error.said, /took more of a processor's time than it may/);
		assert.match(error.hint, /smaller/);
		assert.ok(process.hrtime.bigint() - began >= 2_000_000_000n, "not before");
		await goesOn();
	});

	test("a source that takes much memory meets its limit of addresses", async () => {
		const error = await refused("__device__ char large[1u << 28] = {1}; __global__ void k(char *x) { x[0] = large[x[1]]; }");
		assert.equal(error.reason, "unavailable");
		assert.match(error.said, /out of memory/);
		assert.match(error.hint, /smaller/);
		await eventually(() => compilers().length === 0, "its worker is gone");
		await goesOn();
	});

	// A server of its own: a busy machine may take these seconds to give a compiler the two that the tests above let it compute.
	test("a compiler that stands still is ended", async () => {
		await start({ EXOGPU_TEST_SOURCE_MS: "10000" });
		const asked = refused(`${macros(40, 10, "")}\n__global__ void k() { M39 }`);
		const [pid] = await eventually(() => compilers().length && compilers(), "it compiles", 6 * patience);
		process.kill(pid, "SIGSTOP");
		const error = await asked;
		assert.equal(error.reason, "timeout");
		assert.match(error.hint, /smaller/);
		await goesOn();
	});
});
