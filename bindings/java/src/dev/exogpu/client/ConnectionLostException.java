package dev.exogpu.client;

import dev.exogpu.ExogpuException;

/** The connection ended while a call was under way, so whether it was done is not known; or no server is there. */
public class ConnectionLostException extends ExogpuException {
	private static final long serialVersionUID = 1;
	private final int code;

	ConnectionLostException(String message, int code) {
		super("connection_lost", message, null);
		this.code = code;
	}

	/** WebSocket's close code, of which {@link Api#CLOSE_CODES} has the meanings; 0: there was none. */
	public int code() {
		return code;
	}
}
