/* compute.* on a device: modules by handles that the server chose, launches, and compute.run.
 *
 * Built-in kernels take memory that is split over several buffers, except for matmul_f32. A user's kernel is bound to
 * whole buffers: memory that the device cannot bind at once is refused. */
import { checkFloat, readArguments, type Read } from "./arguments";
import {
  MATMUL,
  SAXPY,
  SAXPY_ONE,
  FILL_WORDS,
  SUM,
  SUM_GROUPS,
  TILE,
  type Builtin,
  type Signature,
  type Value,
  checkCounts,
  groupsFor,
  isBuiltin,
  signatures,
} from "./builtin";
import type { Argument, Calls, RunArgument } from "./contract";
import type { Device } from "./device";
import { Fault } from "./fault";
import { STAGE_COMPUTE, USAGE } from "./flags";
import type { Memory } from "./memory";
import { type Entry, entriesOf, parametersOf, sourceOf } from "./wgsl";

/** As LIMIT_MODULES_OF_SESSION and LIMIT_RUN_NUMBERS. */
const MODULES = 64;
const RUN_NUMBERS = 32768;

interface Kernel {
  entry: Entry;
  signature: Signature;
  pipeline: GPUComputePipeline;
  layout: GPUBindGroupLayout;
}
/** A user's kernels by name; null: the built-in ones. */
type Module = Map<string, Kernel> | null;
/** Memory of a built-in kernel's argument. */
interface Bound {
  buffers: GPUBuffer[];
  bytes: number;
}

export class Compute {
  private readonly device: Device;
  private readonly memory: Memory;
  private readonly modules = new Map<number, Module>();

  constructor(device: Device, memory: Memory) {
    this.device = device;
    this.memory = memory;
  }

  // ---- load and unload ----

  async load({ module, format }: Calls["compute.load"], body: Uint8Array): Promise<Signature[]> {
    if (this.modules.has(module)) throw new Fault("conflict", `module ${module} is taken`);
    if (this.modules.size >= MODULES)
      throw new Fault("limit_exceeded", `a session holds at most ${MODULES} modules`);
    if (format === "builtin") {
      if (body.length) throw new Fault("invalid_params", "the module built in has no body");
      this.modules.set(module, null);
      return Object.values(signatures);
    }
    if (format !== "wgsl")
      throw new Fault(
        "unavailable",
        `a browser runs no ${format === "ptx" ? "PTX" : "SPIR-V"}`,
        "PTX is for CUDA, SPIR-V for Vulkan, WGSL for browsers; the built-in kernels work everywhere",
      );
    if (!body.length) throw new Fault("invalid_params", "the module is missing: it is the message's body");
    const kernels = await this.compile(sourceOf(body));
    this.modules.set(module, kernels);
    return [...kernels.values()].map(({ signature }) => signature);
  }

  unload(module: number): void {
    if (!this.modules.delete(module)) throw new Fault("not_found", `there is no module ${module} here`);
  }

  private async compile(code: string): Promise<Map<string, Kernel>> {
    let refused: Fault | null = null;
    let entries: Entry[] = [];
    try {
      entries = entriesOf(code);
    } catch (error) {
      if (!(error instanceof Fault) || error.reason !== "invalid_params") throw error;
      refused = error;
    }
    let module!: GPUShaderModule;
    const fault = await this.device.faultIn(() => {
      module = this.device.gpu.createShaderModule({ code });
    });
    const { messages } = await module.getCompilationInfo();
    const first = messages.find(({ type }) => type === "error");
    if (first)
      throw new Fault("invalid_params", `the module does not compile: ${first.lineNum}:${first.linePos} ${first.message}`);
    if (refused) throw refused;
    if (fault) throw new Fault("invalid_params", `the module does not compile: ${fault.message}`);
    const kernels = new Map<string, Kernel>();
    for (const entry of entries) kernels.set(entry.name, await this.makeKernel(module, entry));
    return kernels;
  }

  private async makeKernel(module: GPUShaderModule, entry: Entry): Promise<Kernel> {
    const { gpu } = this.device;
    const visibility = STAGE_COMPUTE;
    const entries: GPUBindGroupLayoutEntry[] = entry.storages.map(({ binding, written }) => ({
      binding,
      visibility,
      buffer: { type: written ? "storage" : "read-only-storage" },
    }));
    if (entry.values) entries.push({ binding: entry.values.binding, visibility, buffer: { type: "uniform" } });
    let layout!: GPUBindGroupLayout;
    let made!: Promise<GPUComputePipeline>;
    const fault = await this.device.faultIn(() => {
      layout = gpu.createBindGroupLayout({ entries });
      made = gpu.createComputePipelineAsync({
        layout: gpu.createPipelineLayout({ bindGroupLayouts: [layout] }),
        compute: { module, entryPoint: entry.name },
      });
      made.catch(() => {}); // it is waited for below
    });
    if (fault) throw new Fault("invalid_params", `${entry.name}: ${fault.message}`);
    try {
      const signature = { kernel: entry.name, parameters: parametersOf(entry), block: entry.block };
      return { entry, signature, pipeline: await made, layout };
    } catch (error) {
      throw new Fault("invalid_params", `${entry.name}: ${error instanceof Error ? error.message : String(error)}`);
    }
  }

  // ---- launch ----

  /** Check and enqueue; the promise is of what was wrong with it on the device. */
  launch(params: Calls["compute.launch"]): Promise<void> {
    const module = this.modules.get(params.module);
    if (module === undefined) throw new Fault("not_found", `there is no module ${params.module} here`);
    const name = params.kernel;
    if (module === null) {
      if (!isBuiltin(name)) throw new Fault("not_found", `the module has no kernel ${name}`);
      return this.launchBuiltin(name, params.args);
    }
    const kernel = module.get(name);
    if (!kernel) throw new Fault("not_found", `the module has no kernel ${name}`);
    return this.launchUser(kernel, params);
  }

  private async launchUser(kernel: Kernel, params: Calls["compute.launch"]): Promise<void> {
    const { entry, signature, layout, pipeline } = kernel;
    const read = readArguments(signature, params.args);
    const groups = this.checkShape(kernel, params);
    const buffers = entry.storages.map((_, index) => this.whole(read[index], index));
    checkAliases(entry, buffers);
    const entries: GPUBindGroupEntry[] = entry.storages.map(({ binding }, index) => ({
      binding,
      resource: { buffer: buffers[index] as GPUBuffer },
    }));
    if (entry.values) entries.push({ binding: entry.values.binding, resource: { buffer: this.device.uniformBuffer } });
    const words = read.slice(entry.storages.length).map((one) => ("word" in one ? one.word : 0));
    const fault = await this.device.faultIn(() => {
      const bindings = this.device.gpu.createBindGroup({ layout, entries });
      this.device.dispatch(pipeline, bindings, { params: Uint32Array.from(words), groups });
    });
    if (fault) throw new Fault("invalid_params", `${entry.name}: ${fault.message}`);
  }

  private checkShape({ entry }: Kernel, { grid, block }: Calls["compute.launch"]): [number, number, number] {
    const most = this.device.gpu.limits.maxComputeWorkgroupsPerDimension;
    if (block && !entry.block)
      throw new Fault("invalid_params", `${entry.name}: the module computes its block`, "leave block out");
    for (const axis of [0, 1, 2] as const) {
      if (block && entry.block && block[axis] !== entry.block[axis])
        throw new Fault(
          "invalid_params",
          `${entry.name}: the module fixes block[${axis}] at ${entry.block[axis]}, not ${block[axis]}`,
        );
      if (grid && grid[axis] > most)
        throw new Fault("limit_exceeded", `${entry.name}: grid[${axis}] ${grid[axis]}; the device takes ${most}`);
    }
    return grid ?? [1, 1, 1];
  }

  /** Memory that one binding holds. */
  private whole(read: Read | undefined, index: number): GPUBuffer {
    const slot = this.memory.find(read && "handle" in read ? read.handle : 0, `args[${index}]`);
    const [buffer, more] = slot.buffers;
    if (!buffer || more) throw tooLarge(`args[${index}]`, slot.bytes, this.device.chunk);
    return buffer;
  }

  // ---- built-in kernels ----

  private async launchBuiltin(kernel: Builtin, args: Argument[]): Promise<void> {
    const bound: (Bound | undefined)[] = [];
    const read = readArguments(signatures[kernel], args);
    const values = read.map((one, index): Value => {
      if ("word" in one) return { number: one.word };
      if ("count" in one) return one;
      const slot = this.memory.find(one.handle, `args[${index}]`);
      bound[index] = slot;
      return { memory: one.handle, bytes: slot.bytes };
    });
    checkCounts(kernel, values);
    this.enqueue(kernel, bound, values);
  }

  /** All has been checked but that matmul_f32 needs its memory in one piece. */
  private enqueue(kernel: Builtin, bound: (Bound | undefined)[], values: Value[]): void {
    const memory = (index: number): Bound => bound[index] ?? { buffers: [], bytes: 0 };
    const word = (index: number): number => numberOf(values[index]);
    switch (kernel) {
      case "fill_f32":
        this.eachChunk(word(2), (n, chunk) =>
          this.device.run(FILL_WORDS, [chunk(memory(0))], [n, 0, word(1), 0xffffffff, 0xffffffff], [groupsFor(n)]),
        );
        return;
      case "saxpy_f32":
        this.eachChunk(word(3), (n, chunk) => {
          const one = memory(0).buffers[0] === memory(1).buffers[0];
          const buffers = one ? [chunk(memory(0))] : [chunk(memory(0)), chunk(memory(1))];
          this.device.run(one ? SAXPY_ONE : SAXPY, buffers, [n, word(2)], [groupsFor(n)]);
        });
        return;
      case "sum_f32":
        this.sum(memory(0), memory(1), word(2));
        return;
      case "matmul_f32":
        this.matmul([memory(0), memory(1), memory(2)], [word(3), word(4), word(5)]);
        return;
    }
  }

  /** `n` floats, buffer by buffer. */
  private eachChunk(n: number, work: (n: number, chunk: (memory: Bound) => GPUBuffer, index: number) => void): void {
    const most = this.device.chunk / 4;
    for (let done = 0; done < n; done += most) {
      const index = done / most;
      const chunk = (memory: Bound): GPUBuffer => {
        const buffer = memory.buffers[index];
        if (!buffer) throw new Fault("internal", "memory lacks a buffer");
        return buffer;
      };
      work(Math.min(most, n - done), chunk, index);
    }
  }

  private sum(out: Bound, x: Bound, n: number): void {
    const to = out.buffers[0];
    if (!to) return;
    const { gpu } = this.device;
    const share = SUM_GROUPS * 4;
    const chunks = Math.max(1, Math.ceil(n / (this.device.chunk / 4)));
    // Zero where a sum leaves nothing.
    const sums = gpu.createBuffer({ size: share * chunks, usage: USAGE.STORAGE });
    this.eachChunk(n, (count, chunk, index) =>
      this.device.run(SUM, [{ buffer: sums, offset: index * share, size: share }, chunk(x)], [count], [SUM_GROUPS]),
    );
    this.device.run(SUM, [to, sums], [SUM_GROUPS * chunks], [1]);
    sums.destroy();
  }

  private matmul([c, a, b]: [Bound, Bound, Bound], [m, n, k]: [number, number, number]): void {
    if (!m || !n) return;
    if (!k) {
      this.eachChunk(m * n, (count, chunk) =>
        this.device.run(FILL_WORDS, [chunk(c)], [count, 0, 0, 0xffffffff, 0xffffffff], [groupsFor(count)]),
      );
      return;
    }
    const buffers = [c, a, b].map(({ buffers: [buffer, more], bytes }, index) => {
      if (!buffer || more) throw tooLarge(`matmul_f32: ${"cab"[index]}`, bytes, this.device.chunk);
      return buffer;
    });
    const groups = (size: number): number => Math.min(65535, Math.ceil(size / TILE));
    this.device.run(MATMUL, buffers, [m, n, k], [groups(n), groups(m)]);
  }

  // ---- run ----

  /** Memory, kernel and answer in one call. `within` bounds how long the kernel takes. */
  async run(
    { kernel, args, timeout_ms }: Calls["compute.run"],
    within: (work: Promise<unknown>, ms: number) => Promise<unknown>,
  ): Promise<{ f32s: number[]; device_us: number }> {
    if (!isBuiltin(kernel)) throw new Fault("not_found", `the module has no kernel ${kernel}`);
    const numbers = args.reduce((sum, one) => sum + ("f32s" in one ? one.f32s.length : 0), 0);
    if (numbers > RUN_NUMBERS)
      throw new Fault("invalid_params", `the f32s of a call are ${RUN_NUMBERS} numbers at most, not ${numbers}`);
    const inputs = args.map(readRun);
    const read = readArguments(
      signatures[kernel],
      args.map((one, index): Argument => ("f32s" in one || "zeros" in one ? { handle: index + 1 } : one)),
    );
    const bound: (Bound | undefined)[] = [];
    try {
      for (const [index, input] of inputs.entries()) {
        if (!input) continue;
        const taken = { buffers: await this.memory.take(input.byteLength), bytes: input.byteLength };
        bound[index] = taken;
        if (taken.buffers[0]) this.device.gpu.queue.writeBuffer(taken.buffers[0], 0, input);
      }
      const values = read.map((one, index): Value =>
        "handle" in one ? { memory: index, bytes: bound[index]?.bytes ?? 0 } : "word" in one ? { number: one.word } : one,
      );
      checkCounts(kernel, values);
      await this.device.done();
      const began = performance.now();
      this.device.timer?.begin();
      this.enqueue(kernel, bound, values);
      const ns = this.device.timer?.end() ?? null;
      await within(this.device.done(), timeout_ms);
      const device_us = ((await ns) ?? (performance.now() - began) * 1e6) / 1000;
      const first = bound[0] ?? { buffers: [], bytes: 0 };
      const bytes = await this.memory.readAll(first.buffers, first.bytes);
      return { f32s: [...new Float32Array(bytes.slice().buffer)], device_us };
    } finally {
      for (const one of bound) if (one) this.memory.give(one.buffers, one.bytes);
    }
  }
}

const numberOf = (value: Value | undefined): number =>
  !value ? 0 : "count" in value ? Number(value.count) : "number" in value ? value.number : 0;

/** The numbers of an argument that is memory; null: it is a value. */
function readRun(argument: RunArgument, index: number): Float32Array<ArrayBuffer> | null {
  if ("zeros" in argument) return new Float32Array(argument.zeros);
  if (!("f32s" in argument)) {
    if (index === 0) throw new Fault("invalid_params", "args[0] is the kernel's output: f32s or zeros");
    return null;
  }
  argument.f32s.forEach((one, at) => checkFloat(one, `args[${index}]: [${at}] is no f32`));
  return Float32Array.from(argument.f32s);
}

function tooLarge(what: string, bytes: number, chunk: number): Fault {
  return new Fault(
    "limit_exceeded",
    `${what} has ${bytes} bytes; a kernel of this browser reaches ${chunk} bytes of one allocation`,
    "divide it into several allocations",
  );
}

/** WebGPU binds no buffer twice in a launch that writes it. */
function checkAliases({ name, storages }: Entry, buffers: GPUBuffer[]): void {
  storages.forEach((one, index) => {
    const first = buffers.indexOf(buffers[index] as GPUBuffer);
    const other = storages[first];
    if (first < index && other && (one.written || other.written))
      throw new Fault("invalid_params", `${name}: ${other.name} and ${one.name} are one allocation, which the kernel writes`);
  });
}
