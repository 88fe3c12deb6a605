package dev.exogpu.client;

import dev.exogpu.ExogpuException;
import java.nio.ByteBuffer;

/**
 * Floats on a {@link RemoteDevice}, which are freed when this is closed, and at the latest some seconds after the client.
 * Where the session has ended meanwhile they are gone: {@link Api.NotFoundException}.
 */
public final class RemoteArray implements AutoCloseable {
	private final RemoteDevice device;
	private final String allocationId;
	private final int size;
	private volatile boolean closed;

	RemoteArray(RemoteDevice device, String allocationId, int size) {
		this.device = device;
		this.allocationId = allocationId;
		this.size = size;
	}

	/** The device that they are on. */
	public RemoteDevice device() {
		return device;
	}

	/** As calls of {@link Client#memory} name it. */
	public String allocationId() {
		if (closed)
			throw new IllegalStateException("the array is closed");
		return allocationId;
	}

	/** How many there are. */
	public int size() {
		return size;
	}

	/** Writes all of it: as many values as it has. */
	public void write(float... values) {
		if (values == null || values.length != size)
			throw new IllegalArgumentException("not as many values as the array has: " + size);
		ByteBuffer bytes = RemoteDevice.bytes(size);
		bytes.asFloatBuffer().put(values);
		device.client().write(allocationId(), 0, bytes);
	}

	/** All of it, as it is now. */
	public float[] toArray() {
		ByteBuffer bytes = RemoteDevice.bytes(size);
		device.client().read(allocationId(), 0, bytes);
		float[] values = new float[size];
		bytes.flip().asFloatBuffer().get(values);
		return values;
	}

	/** The matrix product this · other in a new array: this is (rows, inner), other (inner, columns), row-major. */
	public RemoteArray matmul(RemoteArray other, int rows, int inner, int columns) {
		if (rows <= 0 || inner <= 0 || columns <= 0 || (long) rows * inner != size || other == null || (long) inner * columns != other.size)
			throw new IllegalArgumentException("the shapes do not fit the arrays");
		RemoteArray product = device.zeros(Math.multiplyExact(rows, columns));
		try {
			device.launch("matmul_f32", product, this, other, rows, columns, inner);
			return product;
		} catch (RuntimeException failed) {
			product.close();
			throw failed;
		}
	}

	/** The sum of all of it, computed on the device. */
	public float sum() {
		try (RemoteArray one = device.zeros(1)) {
			device.launch("sum_f32", one, this, size);
			return one.toArray()[0];
		}
	}

	/** Adds factor · other to it, on the device. */
	public void add(RemoteArray other, float factor) {
		if (other == null || other.size != size)
			throw new IllegalArgumentException("not an array of the same size");
		device.launch("saxpy_f32", this, other, factor, size);
	}

	/** Frees it, without waiting for the server. Once more does nothing. */
	@Override
	public void close() {
		if (closed)
			return;
		closed = true;
		try {
			device.client().memory.freeAsync(allocationId);
		} catch (ExogpuException over) {
			// it ends with its session
		}
	}
}
