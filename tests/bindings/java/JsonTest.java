package dev.exogpu.client;

import java.util.Arrays;
import java.util.List;
import java.util.Map;

/** What Json reads and refuses, and what records become; words[0]: cases that JavaScript wrote, as {text, again}. */
final class JsonTest {
	record Inner(long u64, @Key("load_1m") Double load1m) {}

	record Outer(String deviceId, List<Inner> parts, Map<String, Long> limits, Api.Backend backend, boolean right, Object any) {}

	private static void need(boolean right, String what) {
		if (!right)
			throw new AssertionError(what);
	}

	private static void refused(String text) {
		try {
			Json.parse(text);
		} catch (ProtocolException wrong) {
			return;
		}
		throw new AssertionError("read: " + text);
	}

	public static void main(String[] words) {
		for (String wrong : new String[] {"", " ", "{", "[1,]", "{\"a\":1,}", "{a:1}", "[1 2]", "01", "-", "1.", ".5", "1e", "+1", "nul", "truth", "\"",
				"\"\\x\"", "\"\\u12g4\"", "\"\t\"", "[]]", "NaN", "'a'", "{\"a\" 1}", "\"\\u00", "[".repeat(65) + "]".repeat(65), "-01", "[1}"})
			refused(wrong);
		need(Json.parse("[".repeat(64) + "]".repeat(64)) instanceof List, "64 deep");
		need(Arrays.asList(1L, -0.5, 1e300, true, null, "a\u00e9\ud83d\ude00\n\"/").equals(
				Json.parse(" [1, -0.5, 1E+300,true , null,\"a\\u00e9\\ud83d\\ude00\\n\\\"\\/\"] ")), "values");
		need(Json.write(Map.of("a", List.of(9007199254740993L, 2.0, 0.1f, "\u0001\ud800"))).equals(
				"{\"a\":[\"9007199254740993\",2,0.1,\"\\u0001\\ud800\"]}"), Json.write(Map.of("a", List.of(9007199254740993L, 2.0, 0.1f, "\u0001\ud800"))));
		for (String each : words[0].split("\n")) {
			List<?> pair = (List<?>) Json.parse(each);
			need(Json.parse(Json.write(pair.get(0))).equals(pair.get(0)), each);
			need(Json.parse((String) pair.get(1)).equals(pair.get(0)), each);
		}
		Outer outer = Records.read(Json.parse("{\"device_id\":\"d\",\"parts\":[{\"u64\":\"18446744073709551615\",\"load_1m\":2}, {\"u64\":3}],"
				+ "\"limits\":{\"a\":1},\"backend\":\"abacus\",\"right\":true,\"any\":[1],\"newer\":{}}"), Outer.class);
		need(outer.equals(new Outer("d", List.of(new Inner(-1, 2.0), new Inner(3, null)), Map.of("a", 1L), Api.Backend.UNRECOGNIZED, true, List.of(1L))),
				outer.toString());
		need(Json.write(new Inner(3, null)).equals("{\"u64\":3}"), "what is null is left out");
		for (String wrong : new String[] {"{\"u64\":null}", "{}", "{\"u64\":1.5}", "{\"u64\":\"x\"}", "{\"u64\":1,\"load_1m\":\"2\"}", "[]", "{\"u64\":{}}"})
			try {
				Records.read(Json.parse(wrong), Inner.class);
				throw new AssertionError("read: " + wrong);
			} catch (ProtocolException refused) {
				// as it should be
			}
		System.out.println("right");
	}
}
