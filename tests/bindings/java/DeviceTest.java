import dev.exogpu.Device;
import dev.exogpu.DeviceMemory;
import dev.exogpu.ExogpuException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.List;
import java.util.Random;

/** dev.exogpu over libexogpu: on this machine's CPU, and on a Vulkan device where there is one (Mesa's llvmpipe counts). */
final class DeviceTest {
	private static final Random RANDOM = new Random(25);

	public static void main(String[] words) {
		List<Device.Info> all = Device.find();
		all.forEach(info -> System.out.println("# " + info));
		Check.test("the CPU is found, with what it has", () -> {
			Device.Info cpu = first(all, "cpu");
			Check.right(cpu != null && !cpu.name().isEmpty() && cpu.memoryBytes() > 1 << 20, "a CPU with a name and memory");
			Check.right(cpu.computeUnits() >= 1 && cpu.computeUnits() <= 65536, "cores");
		});
		for (String backend : new String[] {"cpu", "vulkan"}) {
			Device.Info info = first(all, backend);
			if (info == null)
				System.out.println("# skipped: no " + backend + " device that can be used");
			else
				suite(info);
		}
		Check.test("what is not there cannot be opened", () -> {
			Check.fails(IllegalArgumentException.class, () -> Device.open(null));
			ExogpuException none = Check.fails(ExogpuException.class,
					() -> Device.open(new Device.Info("cpu", "nowhere", "", "", 0, -1, false, null)));
			Check.equal(none.reason(), "not_found");
			Check.fails(ExogpuException.class, () -> Device.open(new Device.Info("abacus", "1", "", "", 0, -1, false, null)));
			Check.fails(IllegalArgumentException.class, () -> Device.open(all.get(0), -1));
		});
		Check.end();
	}

	private static Device.Info first(List<Device.Info> all, String backend) {
		return all.stream().filter(info -> info.backend().equals(backend) && info.reason() == null).findFirst().orElse(null);
	}

	private static void suite(Device.Info info) {
		String on = info.backend() + ": ";
		Check.test(on + "bytes come back as they were, from arrays and buffers of every kind", () -> {
			try (Device device = Device.open(info); DeviceMemory memory = device.allocate((5 << 20) + 3)) {
				byte[] sent = new byte[(5 << 20) + 3], back = new byte[sent.length];
				memory.read(0, back);
				Check.equal(back, new byte[sent.length]); // zeroed
				RANDOM.nextBytes(sent);
				memory.write(0, sent);
				memory.read(0, back);
				Check.equal(back, sent);
				Check.equal(memory.bytes(), (long) sent.length);
				Check.right(device.freeBytes() > 0 && device.info().equals(info), "what the device says");
				ByteBuffer direct = ByteBuffer.allocateDirect(1000), heap = ByteBuffer.wrap(new byte[1000], 100, 800).slice();
				direct.position(10).limit(810);
				memory.read(7, direct);
				memory.read(7, heap);
				Check.equal(direct.position() + heap.position(), 810 + 800);
				Check.equal(direct.flip().position(10), heap.flip());
				Check.equal(heap, ByteBuffer.wrap(sent, 7, 800));
				memory.write(100_000, direct);
				memory.write(200_000, heap);
				byte[] part = new byte[800];
				for (int offset : new int[] {100_000, 200_000}) {
					memory.read(offset, part);
					Check.equal(ByteBuffer.wrap(part), ByteBuffer.wrap(sent, 7, 800));
				}
				memory.write(memory.bytes(), new byte[0]); // nothing, at the very end
			}
		});
		Check.test(on + "a product and a sum are right", () -> {
			int m = 17, n = 33, k = 65;
			float[] a = floats(m * k), b = floats(k * n), c = new float[m * n];
			try (Device device = Device.open(info); DeviceMemory x = filled(device, a); DeviceMemory y = filled(device, b);
					DeviceMemory z = device.allocate(4L * m * n)) {
				device.launch("matmul_f32", z, x, y, m, n, k);
				z.read(0, c);
				for (int i = 0; i < m * n; i++) {
					double sum = 0;
					for (int j = 0; j < k; j++)
						sum += (double) a[i / n * k + j] * b[j * n + i % n];
					Check.right(Math.abs(c[i] - sum) < 1e-3, "c[" + i + "] is " + c[i] + ", not " + sum);
				}
				device.launch("fill_f32", z, 0.5, 400);
				device.launch("saxpy_f32", z, x, -2, 400L);
				device.launch("sum_f32", y, z, 400);
				float[] one = new float[1];
				y.read(0, one);
				double wanted = 0;
				for (int i = 0; i < 400; i++)
					wanted += 0.5 - 2 * (double) a[i];
				Check.right(Math.abs(one[0] - wanted) < 1e-2, "the sum is " + one[0] + ", not " + wanted);
			}
		});
		Check.test(on + "wrong arguments change nothing and say what is wrong", () -> {
			try (Device device = Device.open(info); Device other = Device.open(info); DeviceMemory memory = filled(device, new float[] {1, 2, 3, 4});
					DeviceMemory far = other.allocate(16)) {
				for (long bytes : new long[] {0, -1, Long.MIN_VALUE})
					Check.fails(IllegalArgumentException.class, () -> device.allocate(bytes));
				for (long offset : new long[] {-1, 9, 17, Long.MAX_VALUE, Long.MIN_VALUE}) {
					Check.fails(IllegalArgumentException.class, () -> memory.write(offset, new byte[8]));
					Check.fails(IllegalArgumentException.class, () -> memory.read(offset, new float[2]));
					Check.fails(IllegalArgumentException.class, () -> memory.read(offset, ByteBuffer.allocateDirect(8)));
					Check.fails(IllegalArgumentException.class, () -> memory.write(offset, ByteBuffer.allocate(8)));
				}
				Check.fails(IllegalArgumentException.class, () -> memory.write(0, (byte[]) null));
				Check.fails(IllegalArgumentException.class, () -> memory.read(0, (float[]) null));
				Check.fails(IllegalArgumentException.class, () -> memory.write(0, (ByteBuffer) null));
				Check.fails(IllegalArgumentException.class, () -> memory.read(0, ByteBuffer.allocate(8).asReadOnlyBuffer()));
				Check.fails(IllegalArgumentException.class, () -> device.launch("divide_f32", memory));
				Check.fails(IllegalArgumentException.class, () -> device.launch(null));
				Check.fails(IllegalArgumentException.class, () -> device.launch("fill_f32", memory, 1));
				Check.fails(IllegalArgumentException.class, () -> device.launch("fill_f32", far, 1, 4));
				Check.fails(IllegalArgumentException.class, () -> device.launch("fill_f32", memory, "1", 4));
				Check.fails(IllegalArgumentException.class, () -> device.launch("fill_f32", memory, 1, 4.0));
				Check.fails(IllegalArgumentException.class, () -> device.launch("fill_f32", memory, 1, -1));
				Check.fails(IllegalArgumentException.class, () -> device.launch("fill_f32", memory, 1, 1L << 32));
				Check.fails(IllegalArgumentException.class, () -> device.launch("fill_f32", memory, 1, 5)); // memory of 4 numbers
				Check.fails(IllegalArgumentException.class, () -> device.launch(Duration.ofSeconds(-1), "fill_f32", memory, 1, 4));
				float[] back = new float[4];
				memory.read(0, back);
				Check.equal(back, new float[] {1, 2, 3, 4});
			}
		});
		Check.test(on + "what is too much is refused, and what is closed is closed", () -> {
			Device device = Device.open(info, 1 << 20);
			try (device) {
				ExogpuException refused = Check.fails(ExogpuException.class, () -> device.allocate(2 << 20));
				Check.equal(refused.reason(), "limit_exceeded");
				DeviceMemory memory = device.allocate(1 << 20);
				memory.close();
				memory.close();
				Check.fails(IllegalStateException.class, () -> memory.read(0, new byte[1]));
				Check.fails(IllegalStateException.class, () -> device.launch("fill_f32", memory, 1, 1));
				DeviceMemory left = device.allocate(1 << 20); // what was closed is free
				device.close();
				Check.fails(IllegalStateException.class, () -> left.read(0, new byte[1]));
				Check.fails(IllegalStateException.class, device::freeBytes);
				Check.fails(IllegalStateException.class, () -> device.allocate(1));
				left.close();
			}
		});
		Check.test(on + "memory that nobody holds is freed", () -> {
			try (Device device = Device.open(info, 1 << 20)) {
				device.allocate(1 << 20);
				Check.eventually("the collector frees it", () -> {
					System.gc();
					try {
						device.allocate(1 << 20).close();
						return true;
					} catch (ExogpuException full) {
						return false;
					}
				});
			}
		});
		Check.test(on + "threads may share a device", () -> {
			try (Device device = Device.open(info); DeviceMemory memory = device.allocate(8 * 4096)) {
				Throwable[] wrong = new Throwable[8];
				Thread[] threads = new Thread[8];
				for (int i = 0; i < 8; i++) {
					int mine = i;
					threads[i] = new Thread(() -> {
						byte[] sent = new byte[4096], back = new byte[4096];
						java.util.Arrays.fill(sent, (byte) (mine + 1));
						for (int turn = 0; turn < 50; turn++) {
							memory.write(4096L * mine, sent);
							memory.read(4096L * mine, back);
							Check.equal(back, sent);
						}
					});
					threads[i].setUncaughtExceptionHandler((thread, error) -> wrong[mine] = error);
					threads[i].start();
				}
				for (Thread thread : threads)
					thread.join();
				Check.equal(wrong, new Throwable[8]);
			}
		});
	}

	private static float[] floats(int count) {
		float[] all = new float[count];
		for (int i = 0; i < count; i++)
			all[i] = RANDOM.nextFloat() - 0.5f;
		return all;
	}

	private static DeviceMemory filled(Device device, float[] values) {
		DeviceMemory memory = device.allocate(4L * values.length);
		memory.write(0, values);
		return memory;
	}
}
