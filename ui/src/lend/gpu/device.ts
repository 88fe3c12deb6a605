/* One GPU device: the adapter that is asked for, its limits, the pipelines of our own kernels, and dispatches.
 *
 * Every worker has a device of its own, so that one that is lost takes no other with it (where the browser can tell
 * them apart). All work goes to one queue, in the order of the calls. */
import { Fault } from "./fault";
import { USAGE } from "./flags";
import { Timer } from "./timer";

/** Of what the adapter has; the rest stays at WebGPU's defaults. */
const LIMITS = [
  "maxBufferSize",
  "maxStorageBufferBindingSize",
  "maxStorageBuffersPerShaderStage",
  "maxComputeWorkgroupStorageSize",
  "maxComputeInvocationsPerWorkgroup",
  "maxComputeWorkgroupSizeX",
  "maxComputeWorkgroupSizeY",
  "maxComputeWorkgroupSizeZ",
  "maxComputeWorkgroupsPerDimension",
] as const;
const FEATURES: GPUFeatureName[] = ["shader-f16", "subgroups", "timestamp-query"];
/** Addresses of our kernels are words of 32 bits. */
const CHUNK_MOST = 1 << 30;
const CHUNK_STEP = 256;
/** The largest params of a kernel. */
const UNIFORM_BYTES = 256;
const UNIFORM_BINDING = 9;

/** The adapter, or null where the browser has none. */
export async function findAdapter(): Promise<GPUAdapter | null> {
  const gpu = (navigator as Partial<Navigator>).gpu;
  return (await gpu?.requestAdapter({ powerPreference: "high-performance" })) ?? null;
}

export type Groups = [number, number?, number?];

export class Device {
  readonly gpu: GPUDevice;
  readonly adapter: GPUAdapter;
  /** Bytes of a buffer at most: memory beyond that is split. */
  readonly chunk: number;
  /** Whether it is a processor in disguise. */
  readonly software: boolean;
  private readonly uniform: GPUBuffer;
  /** null: the browser does not tell the time on its device. */
  readonly timer: Timer | null;
  private readonly pipelines = new Map<string, GPUComputePipeline>();

  private constructor(gpu: GPUDevice, adapter: GPUAdapter, most: number) {
    this.gpu = gpu;
    this.adapter = adapter;
    const bytes = Math.min(gpu.limits.maxBufferSize, gpu.limits.maxStorageBufferBindingSize, CHUNK_MOST, most);
    this.chunk = Math.max(CHUNK_STEP, Math.floor(bytes / CHUNK_STEP) * CHUNK_STEP);
    this.software = isSoftware(adapter);
    this.timer = gpu.features.has("timestamp-query") ? new Timer(gpu) : null;
    this.uniform = gpu.createBuffer({
      size: UNIFORM_BYTES,
      usage: USAGE.UNIFORM | USAGE.COPY_DST,
    });
  }

  /** `most`: bytes of a buffer at most, below what the adapter takes. Throws Fault. */
  static async open(most = CHUNK_MOST): Promise<Device> {
    const adapter = await findAdapter();
    if (!adapter) throw new Fault("unavailable", "the browser offers no GPU");
    const requiredLimits: Record<string, number> = {};
    for (const name of LIMITS) requiredLimits[name] = adapter.limits[name];
    const requiredFeatures = FEATURES.filter((name) => adapter.features.has(name));
    try {
      return new Device(await adapter.requestDevice({ requiredLimits, requiredFeatures }), adapter, most);
    } catch (error) {
      throw new Fault("unavailable", `the browser refuses the GPU: ${error instanceof Error ? error.message : error}`);
    }
  }

  /** One of our own kernels, from its text. */
  pipeline(code: string): GPUComputePipeline {
    let made = this.pipelines.get(code);
    if (!made) {
      const module = this.gpu.createShaderModule({ code });
      made = this.gpu.createComputePipeline({ layout: "auto", compute: { module, entryPoint: "main" } });
      this.pipelines.set(code, made);
    }
    return made;
  }

  /** Enqueue one of our own kernels: buffers by number of binding, params as words. */
  run(code: string, buffers: (GPUBuffer | GPUBufferBinding)[], params: ArrayLike<number>, groups: Groups): void {
    const pipeline = this.pipeline(code);
    const entries: GPUBindGroupEntry[] = buffers.map((buffer, binding) => ({
      binding,
      resource: "buffer" in buffer ? buffer : { buffer },
    }));
    entries.push({ binding: UNIFORM_BINDING, resource: { buffer: this.uniform } });
    this.dispatch(pipeline, this.gpu.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries }), {
      params: Uint32Array.from(params),
      groups,
    });
  }

  /** Enqueue any kernel whose params, if it has some, lie in `uniformBuffer`. */
  dispatch(
    pipeline: GPUComputePipeline,
    bindings: GPUBindGroup,
    how: { params: Uint32Array<ArrayBuffer>; groups: Groups },
  ): void {
    // The queue writes it after the work before has read it.
    if (how.params.length) this.gpu.queue.writeBuffer(this.uniform, 0, how.params);
    const encoder = this.gpu.createCommandEncoder();
    const pass = encoder.beginComputePass(this.timer?.pass());
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, bindings);
    pass.dispatchWorkgroups(...how.groups);
    pass.end();
    this.gpu.queue.submit([encoder.finish()]);
  }

  get uniformBuffer(): GPUBuffer {
    return this.uniform;
  }

  /** When all that is enqueued is done. */
  async done(): Promise<void> {
    await this.gpu.queue.onSubmittedWorkDone();
  }

  /** What was wrong with what `work` does, or null. Calls of the device in it must not wait for anything. */
  async faultIn(work: () => void): Promise<GPUError | null> {
    this.gpu.pushErrorScope("internal");
    this.gpu.pushErrorScope("out-of-memory");
    this.gpu.pushErrorScope("validation");
    let thrown: unknown = null;
    try {
      work();
    } catch (error) {
      thrown = error;
    }
    // All at once: other work may follow before they are answered.
    const faults = await Promise.all([this.gpu.popErrorScope(), this.gpu.popErrorScope(), this.gpu.popErrorScope()]);
    if (thrown) throw thrown;
    return faults.find((fault) => fault !== null) ?? null;
  }

  close(): void {
    this.gpu.destroy();
  }
}

export function isSoftware(adapter: GPUAdapter): boolean {
  const info = adapter.info as GPUAdapterInfo & { isFallbackAdapter?: boolean };
  return info.isFallbackAdapter ?? (adapter as GPUAdapter & { isFallbackAdapter?: boolean }).isFallbackAdapter ?? false;
}
