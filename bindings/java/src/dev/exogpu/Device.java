package dev.exogpu;

import java.lang.ref.Cleaner;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/**
 * A device of this machine, open: its memory and the kernels that are built in. By libexogpu, in this process, without a
 * server.
 *
 * <pre>{@code
 * try (Device device = Device.open(Device.find().get(0)); DeviceMemory memory = device.allocate(1 << 20)) {
 *     memory.write(0, new float[] {1, 2, 3});
 * }
 * }</pre>
 *
 * Any thread may call; calls for one device wait for each other. Wrong arguments are {@link IllegalArgumentException},
 * null among them; a device or memory that is closed {@link IllegalStateException}; what fails {@link ExogpuException}.
 * After {@code device_lost} the device is of no use: close it and open it again.
 */
public final class Device implements AutoCloseable {
	static final Cleaner CLEANER = Cleaner.create();

	/**
	 * A device that was found.
	 *
	 * @param backend {@code cuda}, {@code vulkan} or {@code cpu}
	 * @param hardwareKey what tells it from others; the same where two back ends see one GPU
	 * @param name what its driver calls it
	 * @param driverVersion the driver's version
	 * @param memoryBytes bytes of all its memory; 0: not told
	 * @param computeUnits processors of a GPU, cores of a CPU; -1: not told
	 * @param software whether it is this machine's processor behind a graphics API
	 * @param reason why it cannot be used; null if it can
	 */
	public record Info(String backend, String hardwareKey, String name, String driverVersion, long memoryBytes,
			long computeUnits, boolean software, String reason) {}

	/** What is left to free when nobody holds the device any more; its monitor is the device's lock. */
	static final class State implements Runnable {
		long handle;

		@Override
		public synchronized void run() {
			if (handle != 0)
				Native.close(handle); // with all memory that is left
			handle = 0;
		}
	}

	final State state = new State();
	private final Info info;
	private final Cleaner.Cleanable cleanable;

	private Device(Info info, long memoryLimitBytes) {
		this.info = info;
		state.handle = Native.open(info.backend, info.hardwareKey, memoryLimitBytes);
		cleanable = CLEANER.register(this, state);
	}

	/** Every device of every back end. A GPU that two of them see is there twice, by the preferred one first. */
	public static List<Info> find() {
		List<Info> found = new ArrayList<>();
		Native.find(found);
		return List.copyOf(found);
	}

	/** Opens a device. {@code not_found}: it is no longer there; {@code unavailable}: its driver refused. */
	public static Device open(Info info) {
		return open(info, 0);
	}

	/** Opens a device of which at most so many bytes of memory may be allocated; 0: as much as it has. */
	public static Device open(Info info, long memoryLimitBytes) {
		require(info != null && info.backend != null && info.hardwareKey != null, "the device is null, or has no key");
		require(memoryLimitBytes >= 0, "a limit of less than 0 bytes");
		return new Device(info, memoryLimitBytes);
	}

	/** What was known of it when it was found. */
	public Info info() {
		return info;
	}

	/** Bytes of the device's memory that are free now, for anybody. */
	public long freeBytes() {
		synchronized (state) {
			return Native.freeBytes(handle());
		}
	}

	/** Memory of the device, zeroed. {@code out_of_memory} or {@code limit_exceeded}: there is not so much. */
	public DeviceMemory allocate(long bytes) {
		require(bytes > 0, "memory has at least one byte");
		synchronized (state) {
			return new DeviceMemory(this, Native.create(handle(), bytes), bytes);
		}
	}

	/** {@link #launch(Duration, String, Object...)} with 60 s. */
	public void launch(String kernel, Object... arguments) {
		launch(Duration.ofSeconds(60), kernel, arguments);
	}

	/**
	 * Runs a kernel that is built in, and returns when it is done: {@code fill_f32(to, value, n)},
	 * {@code saxpy_f32(y, x, a, n)}, {@code matmul_f32(c, a, b, m, n, k)} (row-major, c = a b), {@code sum_f32(to, x, n)}.
	 * Counts are integers, {@code value} and {@code a} any number, the others {@link DeviceMemory} of this device. Throws
	 * {@code timeout}: it runs on, and so does everything behind it.
	 */
	public void launch(Duration timeout, String kernel, Object... arguments) {
		require(timeout != null && kernel != null && arguments != null, "a time, a kernel and arguments are needed");
		require(!timeout.isNegative() && timeout.toDays() < 365, "a time of 0 to 365 days");
		synchronized (state) {
			int[] kinds = Native.signature(handle(), kernel);
			require(kinds != null, "no such kernel: " + kernel);
			require(kinds.length == arguments.length, kernel + " takes " + kinds.length + " arguments");
			long[] values = new long[kinds.length];
			for (int i = 0; i < kinds.length; i++)
				values[i] = value(kernel, i, kinds[i], arguments[i]);
			Native.launch(handle(), kernel, values, timeout.toNanos());
		}
	}

	private long value(String kernel, int place, int kind, Object argument) {
		String name = kernel + ", argument " + (place + 1) + ": ";
		if (kind == Native.BUFFER) {
			require(argument instanceof DeviceMemory memory && memory.device() == this, name + "not memory of this device");
			return ((DeviceMemory) argument).handle();
		}
		require(argument instanceof Number, name + "not a number");
		if (kind == Native.F32)
			return Float.floatToRawIntBits(((Number) argument).floatValue());
		require(argument instanceof Integer || argument instanceof Long, name + "not an integer");
		long value = ((Number) argument).longValue();
		require(kind == Native.I32 ? value == (int) value : value >= 0 && (kind == Native.U64 || value <= 0xFFFFFFFFL),
				name + "out of its range");
		return value;
	}

	/** Frees the device, and all memory of it. Once more does nothing. */
	@Override
	public void close() {
		cleanable.clean();
	}

	/** The lock is held. */
	long handle() {
		if (state.handle == 0)
			throw new IllegalStateException("the device is closed");
		return state.handle;
	}

	static void require(boolean right, String wrong) {
		if (!right)
			throw new IllegalArgumentException(wrong);
	}
}
