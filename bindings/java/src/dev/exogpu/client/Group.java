package dev.exogpu.client;

import dev.exogpu.ExogpuException;
import java.nio.ByteBuffer;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.function.Function;

/** Methods that begin with the same word. */
abstract class Group {
	private final Api api;

	Group(Api api) {
		this.api = api;
	}

	/** A key and its value by turns, then what the options have. */
	static Map<String, Object> params(Options options, Object... given) {
		Map<String, Object> all = new LinkedHashMap<>();
		for (int i = 0; i < given.length; i += 2) {
			if (given[i + 1] == null)
				throw new IllegalArgumentException(given[i] + ": null");
			all.put((String) given[i], given[i + 1]);
		}
		if (options != null)
			all.putAll(options.values);
		return all;
	}

	<R> CompletableFuture<R> send(String method, Map<String, Object> params, ByteBuffer body, Class<R> type) {
		return then(api.call(method, params, body), answer -> Records.read(answer.result(), type));
	}

	<R> CompletableFuture<WithBody<R>> sendForBody(String method, Map<String, Object> params, ByteBuffer body, Class<R> type) {
		return then(api.call(method, params, body), answer -> {
			if (answer.body() == null)
				throw new ProtocolException(method + ": an answer without a body");
			return new WithBody<>(Records.read(answer.result(), type), answer.body());
		});
	}

	/** Giving up what comes of it gives up the call. */
	private static <R> CompletableFuture<R> then(CompletableFuture<Answer> call, Function<Answer, R> made) {
		CompletableFuture<R> result = call.thenApply(made);
		result.whenComplete((value, error) -> {
			if (result.isCancelled())
				call.cancel(false);
		});
		return result;
	}

	/** Its value, or its error with the place of the caller. Who is interrupted gives the call up. */
	static <R> R await(CompletableFuture<R> call) {
		try {
			return call.get();
		} catch (InterruptedException interrupted) {
			call.cancel(false);
			Thread.currentThread().interrupt();
			throw new ExogpuException("interrupted", "the thread was interrupted while it waited for an answer", null);
		} catch (CancellationException cancelled) {
			throw new ExogpuException("cancelled", "the call was given up", null);
		} catch (ExecutionException failed) {
			if (failed.getCause() instanceof ExogpuException cause) {
				cause.setStackTrace(new Throwable().getStackTrace());
				throw cause;
			}
			if (failed.getCause() instanceof IllegalArgumentException wrong)
				throw wrong;
			throw new ExogpuException("internal", String.valueOf(failed.getCause()), null);
		}
	}
}
