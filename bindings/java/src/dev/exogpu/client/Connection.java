package dev.exogpu.client;

import java.io.ByteArrayOutputStream;
import java.net.http.WebSocket;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;

/**
 * One WebSocket to the server: calls and their answers, and what the server says by itself. It does not come back after a
 * loss: Client does. Messages are heard one after the other, in a thread that must not wait for another answer. A server of
 * which nothing is heard is asked by pings: a network may swallow a connection without a word, and Java 17 loses the end of
 * one that comes while a message is heard. Of pings into what is over one soon fails.
 */
final class Connection implements WebSocket.Listener {
	private static final int HEAD_BYTES = 1 << 20;
	private static final int MESSAGE_BYTES = (16 << 20) + 2 * HEAD_BYTES;
	private static final Duration PING = Duration.ofSeconds(1); // some within the 10 s that the server keeps a session

	/** Whom a connection tells; lost: once. */
	interface Owner {
		void heard(String method, Map<String, Object> params);

		void lost(Connection connection, ConnectionLostException error);
	}

	private record Pending(String method, CompletableFuture<Answer> answer, Consumer<Map<String, Object>> answered) {}

	private final Owner owner;
	private final Map<Long, Pending> pending = new ConcurrentHashMap<>();
	private final AtomicLong lastId = new AtomicLong();
	private StringBuilder text = new StringBuilder(); // of the message that is being received
	private ByteArrayOutputStream binary = new ByteArrayOutputStream();
	private CompletableFuture<?> sending = CompletableFuture.completedFuture(null); // guarded by this
	private volatile WebSocket socket; // null until it is open
	private volatile ConnectionLostException error;
	private final Duration silence;
	private volatile long heardAt; // by System.nanoTime()
	private ScheduledFuture<?> watch; // guarded by this; null until the socket is open

	private Connection(Owner owner, Duration silence) {
		this.owner = owner;
		this.silence = silence;
	}

	/** silence: how long nothing may be heard. Throws ConnectionLostException. */
	static Connection open(Address where, Duration dial, Duration silence, Owner owner) {
		Connection made = new Connection(owner, silence);
		CompletableFuture<WebSocket> opening =
				where.http().newWebSocketBuilder().subprotocols(Api.SUBPROTOCOL).connectTimeout(dial).buildAsync(where.uri(), made);
		try {
			opening.get(dial.toMillis(), TimeUnit.MILLISECONDS);
			made.watch();
			return made;
		} catch (ExecutionException failed) {
			Throwable cause = failed.getCause();
			String why = cause.getMessage() == null ? cause.getClass().getSimpleName() : cause.getMessage();
			throw new ConnectionLostException("no server at " + where.uri() + ": " + why, 0);
		} catch (TimeoutException late) {
			opening.thenAccept(WebSocket::abort); // one that comes now has nobody
			throw new ConnectionLostException("no answer from " + where.uri() + " within " + dial.toMillis() + " ms", 0);
		} catch (InterruptedException interrupted) {
			opening.thenAccept(WebSocket::abort);
			Thread.currentThread().interrupt();
			throw new ConnectionLostException("the thread was interrupted while it waited for " + where.uri(), 0);
		}
	}

	/** Why it is over; null while it is not. */
	ConnectionLostException error() {
		return error;
	}

	/** answered (may be null): at once with the result, before anything that follows it is heard. */
	CompletableFuture<Answer> call(String method, Map<String, Object> params, ByteBuffer body, Consumer<Map<String, Object>> answered) {
		CompletableFuture<Answer> answer = new CompletableFuture<>();
		long id = lastId.incrementAndGet();
		Map<String, Object> message = new LinkedHashMap<>();
		message.put("jsonrpc", "2.0");
		message.put("id", id);
		message.put("method", method);
		message.put("params", params);
		String head = Json.write(message);
		pending.put(id, new Pending(method, answer, answered));
		answer.whenComplete((value, failure) -> pending.remove(id)); // also where it was given up
		if (error != null)
			Threads.fail(answer, error); // it may have ended before the line above
		else if (body == null)
			send(() -> socket.sendText(head, true));
		else
			send(frame(head, body));
		return answer;
	}

	/** u32 little-endian length, the object, the body. */
	private static ByteBuffer frame(String head, ByteBuffer body) {
		byte[] bytes = head.getBytes(StandardCharsets.UTF_8);
		ByteBuffer whole = ByteBuffer.allocate(4 + bytes.length + body.remaining()); // big-endian: of others Java masks wrong bytes
		return whole.putInt(Integer.reverseBytes(bytes.length)).put(bytes).put(body.duplicate()).flip();
	}

	private void send(ByteBuffer frame) {
		send(() -> socket.sendBinary(frame, true));
	}

	private interface Sender {
		CompletableFuture<WebSocket> send();
	}

	/** One message after the other, as WebSocket demands; by a thread of ours, since a caller's interrupt would end the socket. */
	private synchronized void send(Sender sender) {
		CompletableFuture<?> sent = sending.handleAsync((done, failure) -> null, Threads.POOL).thenCompose(done -> sender.send());
		sending = sent;
		sent.whenComplete((done, failure) -> {
			if (failure != null)
				fail(new ConnectionLostException("the connection ended: " + failure.getMessage(), 0));
		});
	}

	private void watch() {
		long ping = Math.min(PING.toMillis(), Math.max(1, silence.toMillis() / 3));
		heardAt = System.nanoTime();
		synchronized (this) {
			if (error == null)
				watch = Threads.CLOCK.scheduleWithFixedDelay(() -> ask(ping), ping, ping, TimeUnit.MILLISECONDS);
		}
	}

	private void ask(long ping) {
		long silent = (System.nanoTime() - heardAt) / 1_000_000;
		if (silent >= silence.toMillis()) // a loss is told in the pool: it may wait for locks, and the clock must not
			Threads.POOL.execute(() -> fail(new ConnectionLostException("nothing was heard of the server for " + silent + " ms", 0)));
		else if (silent >= ping)
			send(() -> socket.sendPing(ByteBuffer.allocate(0)));
	}

	@Override
	public CompletionStage<?> onPing(WebSocket from, ByteBuffer data) {
		return sign(from);
	}

	@Override
	public CompletionStage<?> onPong(WebSocket from, ByteBuffer data) {
		return sign(from);
	}

	private CompletionStage<?> sign(WebSocket from) {
		heardAt = System.nanoTime();
		from.request(1);
		return null;
	}

	@Override
	public void onOpen(WebSocket opened) {
		socket = opened;
		opened.request(1);
	}

	@Override
	public CompletionStage<?> onText(WebSocket from, CharSequence data, boolean last) {
		if (text.length() + data.length() > MESSAGE_BYTES)
			return refuse(new ProtocolException("a message of more than " + MESSAGE_BYTES + " characters"));
		text.append(data);
		if (last) {
			String whole = text.toString();
			text = new StringBuilder();
			take(whole, null);
		}
		return sign(from);
	}

	@Override
	public CompletionStage<?> onBinary(WebSocket from, ByteBuffer data, boolean last) {
		if (binary.size() + data.remaining() > MESSAGE_BYTES)
			return refuse(new ProtocolException("a message of more than " + MESSAGE_BYTES + " bytes"));
		byte[] piece = new byte[data.remaining()];
		data.get(piece);
		binary.write(piece, 0, piece.length);
		if (last) {
			ByteBuffer whole = ByteBuffer.wrap(binary.toByteArray()).order(ByteOrder.LITTLE_ENDIAN);
			binary = new ByteArrayOutputStream();
			takeFrame(whole);
		}
		return sign(from);
	}

	private void takeFrame(ByteBuffer whole) {
		long length = whole.remaining() < 4 ? -1 : Integer.toUnsignedLong(whole.getInt());
		if (length < 0 || length > HEAD_BYTES || length > whole.remaining()) {
			refuse(new ProtocolException("a binary frame that is too short for its head"));
			return;
		}
		try {
			String head = StandardCharsets.UTF_8.newDecoder().decode(whole.slice(4, (int) length)).toString();
			take(head, whole.slice(4 + (int) length, whole.remaining() - (int) length));
		} catch (CharacterCodingException wrong) {
			refuse(new ProtocolException("a head that is not UTF-8"));
		}
	}

	@SuppressWarnings("unchecked") // what Json makes
	private void take(String head, ByteBuffer body) {
		try {
			if (!(Json.parse(head) instanceof Map<?, ?> message))
				throw new ProtocolException("a message that is no object");
			if (message.get("method") instanceof String method)
				owner.heard(method, message.get("params") instanceof Map<?, ?> params ? (Map<String, Object>) params : Map.of());
			else
				answer((Map<String, Object>) message, body);
		} catch (RuntimeException wrong) {
			refuse(wrong);
		}
	}

	@SuppressWarnings("unchecked") // what Json makes
	private void answer(Map<String, Object> message, ByteBuffer body) {
		Pending call = message.get("id") instanceof Long id ? pending.get(id) : null;
		if (message.get("id") == null)
			throw new ProtocolException("it did not understand a message: " + message.get("error"));
		if (call == null)
			return; // it was given up
		if (message.get("result") instanceof Map<?, ?> result) {
			if (call.answered != null)
				call.answered.accept((Map<String, Object>) result);
			Threads.complete(call.answer, new Answer((Map<String, Object>) result, body));
		} else if (message.get("error") instanceof Map<?, ?> refusal) {
			Threads.fail(call.answer, ApiException.of(call.method, (Map<String, Object>) refusal));
		} else {
			throw new ProtocolException(call.method + ": an answer with neither a result nor an error");
		}
	}

	@Override
	public CompletionStage<?> onClose(WebSocket from, int code, String reason) {
		String why = Api.CLOSE_CODES.getOrDefault(code, "close code " + code);
		fail(new ConnectionLostException("the connection ended: " + why, code));
		return null;
	}

	@Override
	public void onError(WebSocket from, Throwable failure) {
		fail(new ConnectionLostException("the connection ended: " + failure.getMessage(), 0));
	}

	private CompletionStage<?> refuse(RuntimeException wrong) {
		fail(new ConnectionLostException("the server sent what the contract does not know: " + wrong.getMessage(), 0));
		return null;
	}

	private void fail(ConnectionLostException why) {
		synchronized (this) {
			if (error != null)
				return;
			error = why;
			if (watch != null)
				watch.cancel(false);
		}
		if (socket != null)
			socket.abort();
		owner.lost(this, why);
		pending.values().forEach(call -> Threads.fail(call.answer, why));
	}

	/** Says goodbye, and waits 5 s at most for the other side's. */
	void close() {
		send(() -> socket.sendClose(WebSocket.NORMAL_CLOSURE, ""));
		Threads.CLOCK.schedule(socket::abort, 5, TimeUnit.SECONDS);
	}

	void abort() {
		fail(new ConnectionLostException("this connection was given up", 0));
	}
}
