package dev.exogpu.client;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;

/** A device of the cluster, of whatever machine, as a {@link Client} sees it: arrays on it, and the kernels built in. */
public final class RemoteDevice {
	private final Client client;
	private final Api.Device info;
	private Api.ComputeLoadResult builtin; // this and the next: guarded by this
	private String session = "";

	RemoteDevice(Client client, Api.Device info) {
		this.client = client;
		this.info = info;
	}

	/** What the cluster knew of it when it was asked for. */
	public Api.Device info() {
		return info;
	}

	Client client() {
		return client;
	}

	/** Floats on the device: these. */
	public RemoteArray array(float... values) {
		RemoteArray made = zeros(values.length);
		made.write(values);
		return made;
	}

	/** So many floats on the device, all 0. {@link Api.OutOfMemoryException}, {@link Api.LimitExceededException}. */
	public RemoteArray zeros(int count) {
		if (count <= 0)
			throw new IllegalArgumentException("an array has at least one element");
		return new RemoteArray(this, client.memory.allocate(info.deviceId(), 4L * count).allocationId(), count);
	}

	/**
	 * Runs a kernel that is built in, and returns when it is done, with its time on the device in microseconds:
	 * {@code fill_f32(to, value, n)}, {@code saxpy_f32(y, x, a, n)}, {@code matmul_f32(c, a, b, m, n, k)} (row-major,
	 * c = a b), {@code sum_f32(to, x, n)}. Arguments are arrays of this device and numbers.
	 */
	public double launch(String kernel, Object... arguments) {
		Api.ComputeLoadResult module = builtin();
		Api.KernelSignature signature = module.signatures().stream().filter(one -> one.kernel().equals(kernel)).findFirst()
				.orElseThrow(() -> new IllegalArgumentException("no such kernel: " + kernel + "; there are " + module.kernels()));
		List<Api.KernelParameter> parameters = signature.parameters();
		if (arguments == null || arguments.length != parameters.size())
			throw new IllegalArgumentException(kernel + " takes " + parameters.size() + " arguments");
		List<Api.KernelArgument> all = new ArrayList<>();
		for (int i = 0; i < arguments.length; i++)
			all.add(argument(kernel + ", argument " + (i + 1), parameters.get(i).kind(), arguments[i]));
		return client.compute.launch(module.moduleId(), kernel, all).deviceUs();
	}

	/** Kernels that are built in take arrays, floats and counts. */
	private Api.KernelArgument argument(String name, Api.KernelParameterKind kind, Object value) {
		if (kind == Api.KernelParameterKind.ALLOCATION && value instanceof RemoteArray array && array.device() == this)
			return new Api.KernelArgument.AllocationId(array.allocationId());
		if (kind == Api.KernelParameterKind.F32 && value instanceof Number number)
			return new Api.KernelArgument.F32(number.floatValue());
		boolean count = kind == Api.KernelParameterKind.COUNT || kind == Api.KernelParameterKind.U32;
		if (count && (value instanceof Integer || value instanceof Long))
			return new Api.KernelArgument.U32(((Number) value).longValue());
		throw new IllegalArgumentException(name + ": not a value of the kind " + kind.word() + ", or an array of another device");
	}

	/** The module of this session: a session that is lost takes it along. */
	private synchronized Api.ComputeLoadResult builtin() {
		String now = client.login().sessionId();
		if (builtin == null || !session.equals(now)) {
			builtin = client.compute.load(info.deviceId(), Api.ComputeLoadFormat.BUILTIN);
			session = now;
		}
		return builtin;
	}

	static ByteBuffer bytes(int count) {
		return ByteBuffer.allocate(Math.multiplyExact(4, count)).order(ByteOrder.LITTLE_ENDIAN); // as every device has them
	}
}
