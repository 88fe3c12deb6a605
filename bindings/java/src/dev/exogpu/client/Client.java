package dev.exogpu.client;

import dev.exogpu.ExogpuException;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.function.LongFunction;

/**
 * A session with a server, with every method of the contract: {@code client.memory.allocate(deviceId, bytes)}, or
 * {@code client.memory.allocateAsync(deviceId, bytes)} without waiting. Any thread may call.
 *
 * <p>It outlives its connections: a lost one is dialled again, and joins its session, which the server keeps for 10 s. A
 * call that was under way fails with {@link ConnectionLostException}, since nobody knows whether it was done; calls that
 * are made meanwhile wait, as long as their time lets them. Errors of the server are classes of {@link Api} by their
 * reason, such as {@link Api.OutOfMemoryException}; {@link CallTimeoutException}: no answer came in the call's time.
 */
public final class Client extends Api implements AutoCloseable {
	private static final Duration CALL = Duration.ofSeconds(90); // longer than a kernel may take unless it is told otherwise
	private static final Duration DIAL = Duration.ofSeconds(10);
	private static final long FIRST_WAIT_MS = 50, LAST_WAIT_MS = 5000; // between two tries
	private static final List<Integer> FINAL_CODES = List.of(4403, 4410); // after these the server would only refuse again
	private static final int PIECE_BYTES = 1 << 20, PIECES = 8; // as memory.write advises: some pieces under way at a time

	/** Where, as whom, and how. */
	public static final class Settings {
		private String url = environment("EXOGPU_URL", "http://127.0.0.1:52415");
		private String token = environment("EXOGPU_TOKEN", "");
		private Path ca;
		private Duration timeout = CALL;
		private Duration reconnect = Duration.ofSeconds(60);
		private Duration silence = Duration.ofSeconds(60);
		private Consumer<Notification> noticed = notification -> {};

		private static String environment(String name, String without) {
			String value = System.getenv(name);
			return value == null || value.isEmpty() ? without : value;
		}

		/** As in {@code https://HOST:52415}; else EXOGPU_URL of the environment, else this machine. */
		public Settings url(String url) {
			this.url = given(url, "url");
			return this;
		}

		/** Else EXOGPU_TOKEN of the environment. */
		public Settings token(String token) {
			this.token = given(token, "token");
			return this;
		}

		/** A PEM file: only certificates that these authorities signed are trusted. */
		public Settings ca(Path ca) {
			this.ca = given(ca, "ca");
			return this;
		}

		/** How long a call may take; 90 s unless said. {@link Client#within} says it for single calls. */
		public Settings timeout(Duration timeout) {
			this.timeout = positive(timeout);
			return this;
		}

		/** How long a lost connection is dialled again; 60 s unless said. */
		public Settings reconnect(Duration reconnect) {
			this.reconnect = given(reconnect, "reconnect");
			return this;
		}

		/** A connection on which nothing was heard for so long is lost; 60 s unless said. */
		public Settings silence(Duration silence) {
			this.silence = positive(silence);
			return this;
		}

		/** Who is told what the server says to this session, such as that a device is lost. It must not wait for an answer. */
		public Settings onNotification(Consumer<Notification> noticed) {
			this.noticed = given(noticed, "onNotification");
			return this;
		}
	}

	private final Settings settings;
	private final Address where;
	private final Connection.Owner owner = new Connection.Owner() {
		@Override
		public void heard(String method, Map<String, Object> params) {
			Client.this.heard(method, params);
		}

		@Override
		public void lost(Connection connection, ConnectionLostException error) {
			Client.this.lost(connection, error);
		}
	};
	private Connection connection; // this and what follows: guarded by this
	private CompletableFuture<Connection> ready = new CompletableFuture<>();
	private ExogpuException over;
	private Login login;
	private Events events;
	private boolean comingBack;

	private Client(Settings settings) {
		if (settings.token.isEmpty())
			throw new IllegalArgumentException("no token: give one, or set EXOGPU_TOKEN");
		this.settings = settings;
		where = Address.of(settings.url, settings.ca, DIAL);
	}

	/** Connects as the environment says: EXOGPU_URL and EXOGPU_TOKEN. */
	public static Client connect() {
		return connect(new Settings());
	}

	/** Connects and logs in. Throws {@link ConnectionLostException}, {@link Api.UnauthenticatedException}. */
	public static Client connect(Settings settings) {
		Client client = new Client(given(settings, "settings"));
		try {
			client.dial();
		} catch (RuntimeException wrong) {
			client.close();
			throw wrong;
		}
		return client;
	}

	/** The token's name and scopes, and this session. */
	public synchronized Login login() {
		return login;
	}

	/** The same methods with another time for each call. */
	public Api within(Duration timeout) {
		Duration time = positive(timeout);
		return new Api() {
			@Override
			CompletableFuture<Answer> call(String method, Map<String, Object> params, ByteBuffer body) {
				return Client.this.call(method, params, body, time.toMillis());
			}
		};
	}

	/** Every device of the cluster. */
	public List<RemoteDevice> devices() {
		return cluster.snapshot().devices().stream().map(info -> new RemoteDevice(this, info)).toList();
	}

	/** Of the devices that can compute now the GPU with the most memory; without a GPU, the processor. */
	public RemoteDevice device() {
		return devices().stream().filter(Client::usable).max(Comparator.comparingInt(Client::rank).thenComparingLong(Client::memoryBytes)).orElseThrow(
				() -> new ExogpuException("not_found", "no device of the cluster can compute now", null));
	}

	/** The device of that id, or that name. */
	public RemoteDevice device(String name) {
		return devices().stream().filter(one -> one.info().deviceId().equals(name) || one.info().name().equals(name)).findFirst()
				.orElseThrow(() -> new ExogpuException("not_found", "no device " + name, "Client.devices() lists those that there are"));
	}

	private static boolean usable(RemoteDevice device) {
		DeviceState state = device.info().state();
		return device.info().verification().state() == VerificationState.PASSED
				&& (state == DeviceState.IDLE || state == DeviceState.COMPUTING || state == DeviceState.THROTTLED);
	}

	/** A GPU before a virtual one, and that before a processor. */
	private static int rank(RemoteDevice device) {
		DeviceKind kind = device.info().kind();
		return kind == DeviceKind.CPU ? 0 : kind == DeviceKind.VIRTUAL ? 1 : 2;
	}

	private static long memoryBytes(RemoteDevice device) {
		return device.info().memoryBytes() == null ? 0 : device.info().memoryBytes();
	}

	/** Writes what remains in {@code from}, of any size, in pieces, from byte {@code offset} on. Waits until it is done. */
	public void write(String allocationId, long offset, ByteBuffer from) {
		ByteBuffer whole = given(from, "from").slice();
		inPieces(whole.remaining(), (at) -> memory.writeAsync(allocationId, offset + at, piece(whole, at)));
		from.position(from.limit());
	}

	/** Fills what remains of {@code to}, of any size, in pieces, from byte {@code offset} on. Waits until it is done. */
	public void read(String allocationId, long offset, ByteBuffer to) {
		ByteBuffer whole = given(to, "to").slice();
		inPieces(whole.remaining(), (at) -> {
			ByteBuffer place = piece(whole, at);
			return memory.readAsync(allocationId, offset + at, place.remaining()).thenAccept(answer -> {
				if (answer.body().remaining() != place.remaining())
					throw new ProtocolException("memory.read: a body of " + answer.body().remaining() + " bytes");
				place.put(answer.body());
			});
		});
		to.position(to.limit());
	}

	private static ByteBuffer piece(ByteBuffer whole, long at) {
		return whole.slice((int) at, Math.min(PIECE_BYTES, whole.remaining() - (int) at));
	}

	private static void inPieces(int bytes, LongFunction<CompletableFuture<?>> move) {
		ArrayDeque<CompletableFuture<?>> underWay = new ArrayDeque<>();
		try {
			for (long at = 0; at < bytes; at += PIECE_BYTES) {
				if (underWay.size() == PIECES)
					Group.await(underWay.remove());
				underWay.add(move.apply(at));
			}
			while (!underWay.isEmpty())
				Group.await(underWay.remove());
		} finally {
			underWay.forEach(each -> each.cancel(false));
		}
	}

	/** Events of these topics, the state first. A client has one such stream at a time. */
	public Events events(Topic... topics) {
		Events made = new Events(this, Arrays.stream(topics).map(Topic::word).toList());
		synchronized (this) {
			if (events != null)
				throw new IllegalStateException("a client has one stream of events: close the other, or connect once more");
			throwIfOver();
			events = made;
		}
		return made;
	}

	synchronized void forget(Events closed) {
		if (events == closed)
			events = null;
	}

	/** Ends the session: what it has allocated is freed, some seconds later. */
	@Override
	public void close() {
		finish(new ConnectionLostException("this client was closed", 0));
		Connection last = connection();
		if (last != null)
			last.close();
	}

	synchronized Connection connection() {
		return connection;
	}

	synchronized void throwIfOver() {
		if (over != null)
			throw over;
	}

	@Override
	CompletableFuture<Answer> call(String method, Map<String, Object> params, ByteBuffer body) {
		long own = params.get("timeout_ms") instanceof Number ms ? ms.longValue() : 0; // on the server, beside the way there
		return call(method, params, body, settings.timeout.toMillis() + own);
	}

	private CompletableFuture<Answer> call(String method, Map<String, Object> params, ByteBuffer body, long ms) {
		CompletableFuture<Answer> made = new CompletableFuture<>();
		ScheduledFuture<?> timer = Threads.CLOCK.schedule(
				() -> Threads.fail(made, new CallTimeoutException(method, ms)), ms, TimeUnit.MILLISECONDS);
		CompletableFuture<Connection> next;
		synchronized (this) {
			next = ready;
		}
		CompletableFuture<Answer> sent = next.thenCompose(with -> {
			if (made.isDone()) // given up while there was no connection
				return new CompletableFuture<>();
			CompletableFuture<Answer> answer = with.call(method, params, body, null);
			made.whenComplete((value, error) -> answer.cancel(false)); // of one that is answered, nothing
			return answer;
		});
		sent.whenComplete((value, error) -> {
			if (error != null)
				made.completeExceptionally(error instanceof CompletionException ? error.getCause() : error);
			else
				made.complete(value);
		});
		made.whenComplete((value, error) -> timer.cancel(false));
		return made;
	}

	/** On this connection alone, waiting for the answer. */
	private static Map<String, Object> callOn(
			Connection connection, String method, Map<String, Object> params, Duration time, Consumer<Map<String, Object>> answered) {
		CompletableFuture<Answer> answer = connection.call(method, params, null, answered);
		long ms = time.toMillis();
		ScheduledFuture<?> timer =
				Threads.CLOCK.schedule(() -> Threads.fail(answer, new CallTimeoutException(method, ms)), ms, TimeUnit.MILLISECONDS);
		try {
			return Group.await(answer).result();
		} finally {
			timer.cancel(false);
		}
	}

	void subscribe(Connection connection, Map<String, Object> params, Consumer<Map<String, Object>> answered) {
		callOn(connection, "events.subscribe", params, settings.timeout, answered);
	}

	private void dial() {
		Connection made = Connection.open(where, DIAL, settings.silence, owner);
		try {
			Login as = logIn(made);
			Events open;
			synchronized (this) {
				throwIfOver();
				login = as;
				connection = made;
				open = events;
			}
			if (open != null)
				open.resume(made, true);
			if (made.error() != null)
				throw made.error();
		} catch (RuntimeException wrong) {
			synchronized (this) {
				if (connection == made)
					connection = null;
			}
			made.abort();
			throw wrong;
		}
		Events open;
		synchronized (this) {
			if (connection == made) // else it was lost meanwhile, and others see to that
				ready.complete(made); // with the lock, so that a loss comes after it; what waited only sends
			open = events;
		}
		if (open != null)
			open.wake();
	}

	private Login logIn(Connection made) {
		Login before = login();
		if (before != null) {
			try {
				return logIn(made, Map.of("token", settings.token, "session_id", before.sessionId()));
			} catch (NotFoundException ended) {
				// with what it owned
			}
		}
		return logIn(made, Map.of("token", settings.token));
	}

	private Login logIn(Connection made, Map<String, Object> params) {
		return Records.read(callOn(made, "auth.login", params, DIAL, null), Login.class);
	}

	private void lost(Connection which, ConnectionLostException error) {
		boolean last;
		synchronized (this) {
			if (connection != which)
				return;
			connection = null;
			if (ready.isDone() && over == null)
				ready = new CompletableFuture<>();
			last = FINAL_CODES.contains(error.code());
			if (over == null && !last && !comingBack) {
				comingBack = true;
				Threads.POOL.execute(this::comeBack);
			}
		}
		if (last)
			finish(error);
	}

	private void comeBack() {
		long until = System.nanoTime() + settings.reconnect.toNanos();
		for (long wait = FIRST_WAIT_MS;; wait = Math.min(2 * wait, LAST_WAIT_MS)) {
			synchronized (this) {
				if (over != null || connection != null) {
					comingBack = false;
					return;
				}
			}
			try {
				dial();
			} catch (UnauthenticatedException | ForbiddenException refused) {
				finish(refused);
			} catch (RuntimeException failed) {
				if (System.nanoTime() + wait * 1_000_000 > until)
					finish(new ConnectionLostException("no server for " + settings.reconnect.toSeconds() + " s: " + failed.getMessage(), 0));
				else
					pause(wait);
			}
		}
	}

	private static void pause(long ms) {
		try {
			Thread.sleep(ThreadLocalRandom.current().nextLong(ms / 2, ms + 1));
		} catch (InterruptedException interrupted) {
			Thread.currentThread().interrupt(); // nobody does that to a thread of the pool
		}
	}

	private void finish(ExogpuException error) {
		CompletableFuture<Connection> waiting;
		Events open;
		synchronized (this) {
			if (over != null)
				return;
			over = error;
			if (ready.isDone())
				ready = new CompletableFuture<>();
			waiting = ready;
			open = events;
		}
		waiting.completeExceptionally(error);
		if (open != null)
			open.wake();
	}

	private void heard(String method, Map<String, Object> params) {
		if (method.equals("event")) {
			Class<? extends Event> type = EVENTS.get(String.valueOf(params.get("topic")));
			Events open;
			synchronized (this) {
				open = events;
			}
			if (open != null && type != null)
				open.add(Records.read(params, type));
		} else {
			Notification notification = notification(method, params);
			if (notification != null)
				tell(notification);
		}
	}

	// What the program's own code throws is no fault of the connection's: it goes where uncaught exceptions go.
	private void tell(Notification notification) {
		try {
			settings.noticed.accept(notification);
		} catch (RuntimeException error) {
			Thread thread = Thread.currentThread();
			thread.getUncaughtExceptionHandler().uncaughtException(thread, error);
		}
	}

	private static <T> T given(T value, String name) {
		if (value == null)
			throw new IllegalArgumentException(name + ": null");
		return value;
	}

	private static Duration positive(Duration time) {
		if (time == null || time.isNegative() || time.isZero() || time.toDays() > 365)
			throw new IllegalArgumentException("a time of more than 0 and at most 365 days");
		return time;
	}
}
