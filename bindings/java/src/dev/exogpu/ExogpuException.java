package dev.exogpu;

/** What this package throws where something failed, and no argument was wrong. */
public class ExogpuException extends RuntimeException {
	private static final long serialVersionUID = 1;
	private final String reason;
	private final String hint;

	/** With a stable word for the reason, what went wrong, and what to do about it (may be null). */
	public ExogpuException(String reason, String message, String hint) {
		super(hint == null || hint.isEmpty() ? message : message + " (" + hint + ")");
		this.reason = reason;
		this.hint = hint == null || hint.isEmpty() ? null : hint;
	}

	/** A stable word, such as {@code out_of_memory}, {@code device_lost}, {@code limit_exceeded}, {@code timeout}. */
	public String reason() {
		return reason;
	}

	/** What to do about it; null where there is nothing to advise. */
	public String hint() {
		return hint;
	}
}
