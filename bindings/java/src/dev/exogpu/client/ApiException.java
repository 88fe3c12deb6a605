package dev.exogpu.client;

import dev.exogpu.ExogpuException;
import java.util.Map;

/** The server refused a call, or could not do it: one class for each reason, in {@link Api}. */
public class ApiException extends ExogpuException {
	private static final long serialVersionUID = 1;
	private final int code;
	private final String method;
	private final transient Map<String, Object> data;

	/** What the server answered. */
	public record Refusal(String reason, int code, String message, String hint, String method, Map<String, Object> data) {}

	/** Of one reason, or of one that this client does not know. */
	protected ApiException(Refusal refusal) {
		super(refusal.reason, refusal.method + ": " + refusal.message, refusal.hint);
		code = refusal.code;
		method = refusal.method;
		data = refusal.data;
	}

	/** JSON-RPC's code. */
	public int code() {
		return code;
	}

	/** The method that was called. */
	public String method() {
		return method;
	}

	/** All that the server said beside the message. */
	public Map<String, Object> data() {
		return data == null ? Map.of() : data;
	}

	@SuppressWarnings("unchecked") // what Json makes
	static ApiException of(String method, Map<String, Object> error) {
		Map<String, Object> data = error.get("data") instanceof Map<?, ?> map ? (Map<String, Object>) map : Map.of();
		String reason = data.get("reason") instanceof String text ? text : "internal";
		int code = error.get("code") instanceof Long number ? number.intValue() : 0;
		String hint = data.get("hint") instanceof String text ? text : null;
		Refusal refusal = new Refusal(reason, code, String.valueOf(error.get("message")), hint, method, data);
		var made = Api.ERRORS.get(reason);
		return made == null ? new ApiException(refusal) : made.apply(refusal);
	}
}
