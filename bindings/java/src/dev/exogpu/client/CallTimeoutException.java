package dev.exogpu.client;

import dev.exogpu.ExogpuException;

/** No answer came in the call's own time. The server may still do what was asked. */
public class CallTimeoutException extends ExogpuException {
	private static final long serialVersionUID = 1;

	CallTimeoutException(String method, long ms) {
		super("call_timeout", method + ": not answered within " + ms + " ms", null);
	}
}
