package dev.exogpu.client;

import dev.exogpu.ExogpuException;

/** The other side does not speak as the contract says: it is no exogpu server, or something else stands between. */
public class ProtocolException extends ExogpuException {
	private static final long serialVersionUID = 1;

	ProtocolException(String message) {
		super("protocol", message, null);
	}
}
