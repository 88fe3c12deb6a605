package dev.exogpu.client;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.ThreadFactory;

/**
 * The threads of all clients of this process; none keeps it alive. What a program attaches to an answer runs in the pool,
 * so that it may wait for another answer.
 */
final class Threads {
	static final ExecutorService POOL = Executors.newCachedThreadPool(named("exogpu"));
	/** Starts what is short. */
	static final ScheduledThreadPoolExecutor CLOCK = new ScheduledThreadPoolExecutor(1, named("exogpu-clock"));

	static {
		CLOCK.setRemoveOnCancelPolicy(true);
	}

	private Threads() {}

	private static ThreadFactory named(String name) {
		return work -> {
			Thread thread = new Thread(work, name);
			thread.setDaemon(true);
			return thread;
		};
	}

	static <T> void complete(CompletableFuture<T> future, T value) {
		POOL.execute(() -> future.complete(value));
	}

	static void fail(CompletableFuture<?> future, Throwable error) {
		POOL.execute(() -> future.completeExceptionally(error));
	}
}
