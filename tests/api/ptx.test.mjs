// Users' PTX through the API, on a CUDA device: it computes what it should, and one that never ends is ended at its time.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { assertContractKept } from "./client.mjs";
import { startMachine, tenant } from "./machine.mjs";

// y[i] = factor * x[i] + i, for i < n; and what counts for ever.
const text = Buffer.from(`.version 7.0
.target sm_75
.address_size 64
.visible .entry scale(.param .u64 y, .param .u64 x, .param .f32 factor, .param .u32 n)
{
	.reg .pred %p; .reg .b32 %r<8>; .reg .f32 %f<4>; .reg .b64 %d<8>;
	ld.param.u64 %d1, [y]; ld.param.u64 %d2, [x]; ld.param.f32 %f1, [factor]; ld.param.u32 %r1, [n];
	mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;
	mad.lo.u32 %r5, %r2, %r3, %r4;
	setp.ge.u32 %p, %r5, %r1;
	@%p bra done;
	mul.wide.u32 %d3, %r5, 4; add.u64 %d1, %d1, %d3; add.u64 %d2, %d2, %d3;
	ld.global.f32 %f2, [%d2]; cvt.rn.f32.u32 %f3, %r5;
	fma.rn.f32 %f2, %f2, %f1, %f3;
	st.global.f32 [%d1], %f2;
done:	ret;
}
.visible .entry for_ever(.param .u64 out)
{
	.reg .b32 %r; .reg .b64 %d;
	ld.param.u64 %d, [out];
again:	atom.global.add.u32 %r, [%d], 1;
	bra again;
}
`);

describe("users' PTX", () => {
	let machine;
	before(async () => { machine = await startMachine(); });
	after(async () => {
		await machine?.server.finish();
		assertContractKept();
	});
	const here = (what, body) => test(what, async (context) =>
		machine.cuda ? body(machine.cuda) : context.skip("no CUDA device that passed"));
	const put = async (client, { device_id }, values) => {
		const { allocation_id } = await client.call("memory.allocate", { device_id, bytes: values.byteLength });
		await client.callWith("memory.write", { allocation_id, offset: 0 }, Buffer.from(values.buffer));
		return allocation_id;
	};
	const get = async (client, allocation_id, count) => {
		const { body } = await client.call("memory.read", { allocation_id, offset: 0, bytes: 4 * count });
		return Array.from({ length: count }, (_, i) => body.readFloatLE(4 * i));
	};
	const load = (client, { device_id }) => client.callWith("compute.load", { device_id, format: "ptx" }, text);

	here("it runs, and its numbers are right", async (device) => {
		const client = await tenant(machine), n = 1000, { module_id, kernels } = await load(client, device);
		assert.deepEqual([...kernels].sort(), ["for_ever", "scale"]);
		const x = Float32Array.from({ length: n }, (_, i) => i / 8), data = await put(client, device, x), out = await put(client, device, x);
		await client.call("compute.launch", { module_id, kernel: "scale", grid: [4, 1, 1], block: [256, 1, 1],
			args: [{ allocation_id: out }, { allocation_id: data }, { f32: 0.5 }, { u32: n - 1 }] });
		const wanted = Array.from(x, (value, i) => (i < n - 1 ? 0.5 * value + i : value)); // all are exact, and none past the end
		assert.deepEqual(await get(client, out, n), wanted);
		assert.deepEqual(await get(client, data, n), [...x]);
		await client.close();
	});

	here("one that never ends is ended at its time, with its session's things and no others", async (device) => {
		const other = await tenant(machine), theirs = await put(other, device, Float32Array.of(1, 2, 3));
		const client = await tenant(machine), { module_id } = await load(client, device), data = await put(client, device, new Float32Array(1));
		const launch = { module_id, kernel: "for_ever", grid: [1, 1, 1], block: [1, 1, 1], args: [{ allocation_id: data }], timeout_ms: 300 };
		await client.refused("compute.launch", launch, "timeout");
		const lost = await client.notice("device_lost");
		assert.deepEqual([lost.allocations, lost.modules], [[data], [module_id]]);
		assert.deepEqual(await get(other, theirs, 3), [1, 2, 3]);
		assert.deepEqual(other.notices, []);
		assert.deepEqual(await get(client, await put(client, device, Float32Array.of(4)), 1), [4], "by a fresh worker");
		await client.close();
		await other.close();
	});
});
