package dev.exogpu;

import java.io.File;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;

/**
 * The functions of bindings/java/jni/exogpu_jni.c. A handle is an address: none that is closed is passed, and the lock of
 * a device is held around every call for it, or for memory of it.
 */
final class Native {
	// enum exogpu_argument_kind in exogpu/types.h, which is recorded and does not change.
	static final int BUFFER = 1, F32 = 2, I32 = 3, U32 = 4, U64 = 5;

	static {
		// By its path where the property names one, else by the virtual machine's own search (java.library.path).
		String path = System.getProperty("exogpu.jni", "");
		if (path.isEmpty())
			System.loadLibrary("exogpu_jni");
		else
			System.load(new File(path).getAbsolutePath()); // Path.of came to Android late
	}

	private Native() {}

	static native void find(List<Device.Info> found);

	static native long open(String backend, String hardwareKey, long memoryLimitBytes);

	static native void close(long device);

	static native long freeBytes(long device);

	static native long create(long device, long bytes);

	static native void destroy(long memory);

	static native void write(long memory, long offset, byte[] from, int at, int count);

	static native void read(long memory, long offset, byte[] to, int at, int count);

	static native void write(long memory, long offset, float[] from, int at, int count);

	static native void read(long memory, long offset, float[] to, int at, int count);

	static native void write(long memory, long offset, ByteBuffer from, int at, int count);

	static native void read(long memory, long offset, ByteBuffer to, int at, int count);

	static native int[] signature(long device, String kernel);

	static native void launch(long device, String kernel, long[] values, long timeoutNs);

	/** Called by the library for each device. */
	private static void found(List<Device.Info> list, byte[] backend, byte[] key, byte[] name, byte[] driver,
			long memoryBytes, long computeUnits, boolean software, byte[] reason) {
		list.add(new Device.Info(text(backend), text(key), text(name), text(driver), memoryBytes, computeUnits, software,
				text(reason)));
	}

	/** Called by the library for each error. */
	private static void raise(byte[] reason, byte[] message, byte[] hint) {
		ExogpuException failure = new ExogpuException(text(reason), text(message), text(hint));
		if (failure.reason().equals("invalid_params"))
			throw new IllegalArgumentException(failure.getMessage());
		throw failure;
	}

	private static String text(byte[] bytes) {
		return bytes == null ? null : new String(bytes, StandardCharsets.UTF_8);
	}
}
