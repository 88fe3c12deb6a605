package dev.exogpu.client;

import dev.exogpu.ExogpuException;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Events of some topics, in order: first a {@link Api.SnapshotMessage}, then what happens, over lost connections too. What
 * was missed follows; where the server no longer has it, another snapshot comes. A reader who is 10,000 events behind is
 * treated like one whose connection was lost. For one thread at a time.
 */
public final class Events implements AutoCloseable {
	private static final int WAITING = 10_000;

	private final Client client;
	private final List<String> topics;
	private final Object resuming = new Object(); // one subscription at a time
	private final ArrayDeque<Api.Event> waiting = new ArrayDeque<>(); // this and what follows: guarded by this
	private Map<String, Object> seen; // {epoch, seq} of what was handed out last
	private boolean late = true; // what comes is not kept: the server is to be asked again
	private boolean closed;

	Events(Client client, List<String> topics) {
		this.client = client;
		this.topics = topics;
	}

	/** The next event, when it comes; null once this is closed. Throws what ended the client. */
	public Api.Event next() {
		return next(null);
	}

	/** The next event; null if none comes in that time. */
	public Api.Event next(Duration patience) {
		long until = patience == null ? Long.MAX_VALUE : System.nanoTime() + patience.toNanos();
		for (;;) {
			Connection connection = client.connection();
			synchronized (this) {
				if (!waiting.isEmpty()) {
					Api.Event event = waiting.remove();
					seen = place(event.epoch(), event.seq());
					return event;
				}
				if (closed)
					return null;
				client.throwIfOver();
				if (!late || connection == null) {
					if (!await(until))
						return null;
					continue;
				}
			}
			try {
				resume(connection, false);
			} catch (ConnectionLostException lost) {
				// the next connection asks again
			}
		}
	}

	/** Until something has changed; false: the time is over. The monitor is held. */
	private boolean await(long until) {
		try {
			if (until == Long.MAX_VALUE) {
				wait();
				return true;
			}
			long left = (until - System.nanoTime()) / 1_000_000;
			if (left <= 0)
				return false;
			wait(left);
			return true;
		} catch (InterruptedException interrupted) {
			Thread.currentThread().interrupt();
			throw new ExogpuException("interrupted", "the thread was interrupted while it waited for an event", null);
		}
	}

	private static Map<String, Object> place(String epoch, long seq) {
		return Map.of("epoch", epoch, "seq", seq);
	}

	/** Subscribes on a connection. `always`: also where events come already. */
	void resume(Connection connection, boolean always) {
		synchronized (resuming) {
			Map<String, Object> params = new LinkedHashMap<>(Map.of("topics", topics));
			synchronized (this) {
				if (closed || !late && !always)
					return;
				waiting.clear();
				late = true; // what comes before the answer is of the subscription that it replaces
				if (seen != null)
					params.put("since", seen);
			}
			client.subscribe(connection, params, result -> {
				Api.EventsSubscribeResult answer = Records.read(result, Api.EventsSubscribeResult.class);
				synchronized (this) {
					late = false;
					if (answer.snapshot() != null)
						waiting.add(new Api.SnapshotMessage(answer.epoch(), answer.seq(), answer.snapshot()));
					notifyAll();
				}
			});
		}
	}

	synchronized void add(Api.Event event) {
		if (waiting.size() >= WAITING) {
			waiting.clear();
			late = true;
		}
		if (!late)
			waiting.add(event);
		notifyAll();
	}

	synchronized void wake() {
		notifyAll();
	}

	/** Ends the subscription. */
	@Override
	public void close() {
		synchronized (this) {
			if (closed)
				return;
			closed = true;
			waiting.clear();
			notifyAll();
		}
		client.forget(this);
		Connection connection = client.connection();
		if (connection != null)
			connection.call("events.subscribe", Map.of("topics", List.of()), null, null);
	}
}
