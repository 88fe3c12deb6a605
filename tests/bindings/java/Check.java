import java.util.Locale;
import java.util.function.BooleanSupplier;

/** Tests of one program: each has a name and fails by what it throws. end() says how many there were. */
final class Check {
	static final long PATIENCE_MS = (long) (30_000 * Double.parseDouble(System.getenv().getOrDefault("EXOGPU_SLOW", "1")));
	private static int passed, failed;

	interface Body {
		void run() throws Exception;
	}

	private Check() {}

	static void test(String name, Body body) {
		try {
			body.run();
			passed++;
			System.out.println("ok - " + name);
		} catch (Throwable wrong) {
			failed++;
			System.out.println("not ok - " + name);
			wrong.printStackTrace(System.out);
		}
	}

	static void end() {
		System.out.printf(Locale.ROOT, "%d passed, %d failed%n", passed, failed);
		System.exit(failed == 0 && passed > 0 ? 0 : 1);
	}

	static void equal(Object found, Object wanted) {
		if (!java.util.Objects.deepEquals(found, wanted))
			throw new AssertionError("found " + text(found) + ", wanted " + text(wanted));
	}

	private static String text(Object value) {
		String text = java.util.Arrays.deepToString(new Object[] {value});
		return text.length() > 200 ? text.substring(0, 200) + "..." : text;
	}

	static void right(boolean right, String what) {
		if (!right)
			throw new AssertionError(what);
	}

	/** The exception, which must be of that class. */
	static <T extends Throwable> T fails(Class<T> type, Body body) throws Exception {
		try {
			body.run();
		} catch (Throwable thrown) {
			if (type.isInstance(thrown))
				return type.cast(thrown);
			throw new AssertionError("another exception than " + type.getSimpleName(), thrown);
		}
		throw new AssertionError("no " + type.getSimpleName());
	}

	static void eventually(String what, BooleanSupplier state) throws InterruptedException {
		long until = System.nanoTime() + PATIENCE_MS * 1_000_000;
		while (!state.getAsBoolean()) {
			right(System.nanoTime() < until, "not within " + PATIENCE_MS + " ms: " + what);
			Thread.sleep(20);
		}
	}
}
