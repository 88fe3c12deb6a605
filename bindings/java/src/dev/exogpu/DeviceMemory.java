package dev.exogpu;

import static dev.exogpu.Device.require;

import java.lang.ref.Cleaner;
import java.nio.ByteBuffer;

/**
 * Memory of a {@link Device}. Offsets and sizes are bytes, also where floats are moved, which lie there in this machine's
 * order. A call returns when the bytes are moved. Closing it, or its device, frees it; so does the garbage collector,
 * some time after nobody holds it.
 */
public final class DeviceMemory implements AutoCloseable {
	private static final class State implements Runnable {
		final Device.State device;
		long handle;

		State(Device.State device, long handle) {
			this.device = device;
			this.handle = handle;
		}

		@Override
		public void run() {
			synchronized (device) {
				if (handle != 0 && device.handle != 0) // else it was freed with its device
					Native.destroy(handle);
				handle = 0;
			}
		}
	}

	private interface Move {
		void at(long handle);
	}

	private final Device device;
	private final State state;
	private final long bytes;
	private final Cleaner.Cleanable cleanable;

	DeviceMemory(Device device, long handle, long bytes) {
		this.device = device;
		this.bytes = bytes;
		state = new State(device.state, handle);
		cleanable = Device.CLEANER.register(this, state);
	}

	/** The device that it is on. */
	public Device device() {
		return device;
	}

	/** Its size in bytes. */
	public long bytes() {
		return bytes;
	}

	/** Writes all of an array. */
	public void write(long offset, byte[] from) {
		require(from != null, "nothing to write from: null");
		move(offset, from.length, handle -> Native.write(handle, offset, from, 0, from.length));
	}

	/** Fills all of an array. */
	public void read(long offset, byte[] to) {
		require(to != null, "nothing to read into: null");
		move(offset, to.length, handle -> Native.read(handle, offset, to, 0, to.length));
	}

	/** Writes all of an array. */
	public void write(long offset, float[] from) {
		require(from != null, "nothing to write from: null");
		move(offset, 4L * from.length, handle -> Native.write(handle, offset, from, 0, from.length));
	}

	/** Fills all of an array. */
	public void read(long offset, float[] to) {
		require(to != null, "nothing to read into: null");
		move(offset, 4L * to.length, handle -> Native.read(handle, offset, to, 0, to.length));
	}

	/** Writes what remains in the buffer, whose position then is its limit. A direct one is not copied before. */
	public void write(long offset, ByteBuffer from) {
		require(from != null, "nothing to write from: null");
		require(from.isDirect() || from.hasArray(), "a buffer that is neither direct nor shows its array");
		int at = from.position(), count = from.remaining();
		move(offset, count, handle -> {
			if (from.isDirect())
				Native.write(handle, offset, from, at, count);
			else
				Native.write(handle, offset, from.array(), from.arrayOffset() + at, count);
		});
		from.position(at + count);
	}

	/** Fills what remains in the buffer, whose position then is its limit. A direct one is not copied after. */
	public void read(long offset, ByteBuffer to) {
		require(to != null, "nothing to read into: null");
		require(!to.isReadOnly(), "a buffer that may only be read");
		int at = to.position(), count = to.remaining();
		move(offset, count, handle -> {
			if (to.isDirect())
				Native.read(handle, offset, to, at, count);
			else
				Native.read(handle, offset, to.array(), to.arrayOffset() + at, count);
		});
		to.position(at + count);
	}

	private void move(long offset, long count, Move move) {
		synchronized (device.state) {
			long handle = handle();
			require(offset >= 0 && offset <= bytes && count <= bytes - offset,
					count + " bytes at " + offset + " are not all within " + bytes);
			move.at(handle);
		}
	}

	/** The device's lock is held. */
	long handle() {
		device.handle();
		if (state.handle == 0)
			throw new IllegalStateException("the memory is closed");
		return state.handle;
	}

	/** Frees it. Once more does nothing. */
	@Override
	public void close() {
		cleanable.clean();
	}
}
