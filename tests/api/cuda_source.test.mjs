// CUDA C by compute.load: compiled by NVRTC itself on the node, in a worker of its own, and loaded as PTX by a CUDA driver that
// is the stand-in of the unit tests (it reads what kernels a module has, and computes nothing).
import assert from "node:assert/strict";
import { existsSync, readFileSync, symlinkSync } from "node:fs";
import { dirname, join } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { Client, assertContractKept } from "./client.mjs";
import { workers } from "./machine.mjs";
import { eventually, slow, startServer, temporary } from "./server.mjs";

const standin = process.env.EXOGPU_CUDA_STANDIN, patience = 60000 * slow;
const nvrtc = process.env.EXOGPU_NVRTC ?? fileURLToPath(new URL("../../build/nvrtc", import.meta.url));
const skip = !standin ? "EXOGPU_CUDA_STANDIN is not set" :
	!existsSync(join(nvrtc, "libnvrtc.so.12")) && `${nvrtc} has no NVRTC: python3 -B cmake/nvrtc.py fetch build/nvrtc`;

const saxpy = `
extern "C" __global__ void saxpy(float *y, const float *x, float a, unsigned n)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		y[i] += a * x[i];
}
extern "C" __global__ void __launch_bounds__(64) nothing(unsigned long long n) {}`;

async function gpu(admin) {
	return eventually(async () => {
		const { devices } = await admin.call("cluster.snapshot");
		return devices.find((one) => one.backend === "cuda" && one.verification.state === "passed");
	}, "the stand-in is verified", patience);
}

describe("CUDA C", { skip: skip || false }, () => {
	const library = temporary();
	let server, admin, device;
	const load = (text, format = "cuda") => admin.callWith("compute.load", { device_id: device.device_id, format }, Buffer.from(text));

	before(async () => {
		symlinkSync(standin, join(library, "libcuda.so.1"));
		server = await startServer({ localNode: true, env: { LD_LIBRARY_PATH: `${library}:${dirname(standin)}:${nvrtc}`, CUDA_STANDIN: "90" } });
		admin = await Client.login(server);
		device = await gpu(admin);
	});
	after(async () => {
		await admin?.close();
		await server?.finish();
		assertContractKept();
	});

	test("is compiled on the node, and its kernels have their signatures", async () => {
		assert.ok(device.features.includes("nvrtc"));
		const { module_id, kernels, signatures } = await load(saxpy);
		assert.deepEqual(kernels.toSorted(), ["nothing", "saxpy"]);
		assert.deepEqual(signatures.find((one) => one.kernel === "saxpy").parameters.map(({ kind }) => kind), ["dword", "dword", "word", "word"]);
		await admin.call("compute.unload", { module_id });
	});

	test("that is wrong is answered with what the compiler says", async () => {
		const error = await load("\nextern \"C\" __global__ void k(float *x) { x[0] = \x1b unknown_thing; }").then(() => assert.fail("loaded"), (one) => one);
		assert.equal(error.reason, "invalid_params");
		assert.match(error.said, /NVRTC rejects this source: .*source\.cu\(2\): error/);
		const { log } = error.data;
		assert.match(log, /unknown_thing/);
		assert.ok(!/[\x00-\x09\x0b-\x1f\x7f]/.test(log), "no control character but a line's end");
		const many = await load("extern \"C\" __global__ void k() { " + Array.from({ length: 300 }, (_, i) => `wrong_name_${i};\n`).join("") + "}").then(() => assert.fail("loaded"), (one) => one);
		assert.ok(many.data.log.length > 1000 && Buffer.byteLength(many.data.log) <= 8192, "and not without end");
	});

	test("reaches no file of the node", async () => {
		const paths = ["/etc/passwd", "/proc/self/environ", "/proc/self/maps", "/usr/include/stdio.h", join(server.data, "admin.token")];
		await load(paths.map((path) => `#if __has_include("${path}")\n#error "${path}"\n#endif\n`).join("") + saxpy);
		const error = await load(`#include "/proc/self/environ"\n${saxpy}`).then(() => assert.fail("loaded"), (one) => one);
		assert.match(error.data.log, /could not open source file|cannot open source file/);
	});

	test("is refused where it is no text, or too long, or for another device", async () => {
		await assert.rejects(load("x".repeat(256 * 1024 + 1)), { reason: "invalid_params" });
		await assert.rejects(load("__global__ void k() {}\0"), { reason: "invalid_params" });
		await assert.rejects(load(Buffer.from([0xff, 0xfe])), { reason: "invalid_params" });
		const { devices } = await admin.call("cluster.snapshot");
		const cpu = devices.find((one) => one.backend === "cpu");
		await assert.rejects(admin.callWith("compute.load", { device_id: cpu.device_id, format: "cuda" }, Buffer.from(saxpy)), { reason: "unavailable" });
	});

	test("at which the compiler dies costs the worker that compiles, and the session goes on", async () => {
		const { allocation_id } = await admin.call("memory.allocate", { device_id: device.device_id, bytes: 16 });
		await admin.callWith("memory.write", { allocation_id, offset: 0 }, Buffer.from("sixteen bytes !!"));
		// Each of the macros is ten times the one before, so that it would compile until its time is over.
		const bomb = Array.from({ length: 40 }, (_, i) => `#define M${i} ${i ? `M${i - 1} `.repeat(10) : "x;"}`).join("\n");
		const refused = assert.rejects(load(`${bomb}\n__global__ void k() { M39 }`), { reason: "unavailable" });
		const compiles = await eventually(() => workers(server.child.pid).find((pid) => readFileSync(`/proc/${pid}/maps`, "latin1").includes("libnvrtc")),
			"the source is being compiled", patience);
		process.kill(compiles, "SIGKILL");
		await refused;
		const { body } = await admin.call("memory.read", { allocation_id, offset: 0, bytes: 16 });
		assert.equal(String(body), "sixteen bytes !!");
		await admin.call("memory.free", { allocation_id });
	});

	test("is refused by name where the node has no NVRTC that fits its driver", async (context) => {
		const other = await startServer({ localNode: true, env: { LD_LIBRARY_PATH: `${library}:${dirname(standin)}`, CUDA_STANDIN: "90" } });
		try {
			const client = await Client.login(other), { device_id, features } = await gpu(client);
			if (features.includes("nvrtc")) return context.skip("this machine has an NVRTC of its own");
			await assert.rejects(client.callWith("compute.load", { device_id, format: "cuda" }, Buffer.from(saxpy)),
				(error) => error.reason === "unavailable" && /NVRTC/.test(error.said) && /libnvrtc/.test(error.hint));
			await client.close();
		} finally {
			await other.finish();
		}
	});
});
