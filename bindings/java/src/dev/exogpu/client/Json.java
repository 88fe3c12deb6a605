package dev.exogpu.client;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * JSON (RFC 8259) as Map, List, String, Long, Double, Boolean and null. What is read is bounded: its length by whoever
 * receives it, its depth here.
 */
final class Json {
	private static final int DEPTH = 64;
	private static final long EXACT = 1L << 53; // whole numbers beyond it travel as decimal strings

	private final String text;
	private int at;
	private int depth;

	private Json(String text) {
		this.text = text;
	}

	/** Throws ProtocolException where it is no JSON, or too deep. */
	static Object parse(String text) {
		Json json = new Json(text);
		Object value = json.value();
		json.space();
		if (json.at != text.length())
			throw json.wrong("more behind the value");
		return value;
	}

	private ProtocolException wrong(String what) {
		return new ProtocolException("JSON, at character " + at + ": " + what);
	}

	private void space() {
		while (at < text.length() && " \t\n\r".indexOf(text.charAt(at)) >= 0)
			at++;
	}

	private char peek() {
		if (at >= text.length())
			throw wrong("it ends too early");
		return text.charAt(at);
	}

	private boolean takes(char letter) {
		space();
		if (peek() != letter)
			return false;
		at++;
		return true;
	}

	private void need(char letter) {
		if (!takes(letter))
			throw wrong("'" + letter + "' is missing");
	}

	private Object value() {
		space();
		switch (peek()) {
			case '{':
				return object();
			case '[':
				return array();
			case '"':
				return string();
			case 't':
				return word("true", true);
			case 'f':
				return word("false", false);
			case 'n':
				return word("null", null);
			default:
				return number();
		}
	}

	private Object word(String word, Object value) {
		if (!text.startsWith(word, at))
			throw wrong("not a value");
		at += word.length();
		return value;
	}

	private void enter() {
		at++;
		if (++depth > DEPTH)
			throw wrong("deeper than " + DEPTH);
	}

	private Map<String, Object> object() {
		Map<String, Object> all = new LinkedHashMap<>();
		enter();
		if (!takes('}')) {
			do {
				space();
				if (peek() != '"')
					throw wrong("a key is missing");
				String key = string();
				need(':');
				all.put(key, value());
			} while (takes(','));
			need('}');
		}
		depth--;
		return all;
	}

	private List<Object> array() {
		List<Object> all = new ArrayList<>();
		enter();
		if (!takes(']')) {
			do
				all.add(value());
			while (takes(','));
			need(']');
		}
		depth--;
		return all;
	}

	private String string() {
		int from = ++at;
		while (peek() != '"' && peek() != '\\' && peek() >= ' ')
			at++;
		if (peek() == '"')
			return text.substring(from, at++);
		StringBuilder all = new StringBuilder(text.substring(from, at));
		for (;;) {
			char letter = peek();
			at++;
			if (letter == '"')
				return all.toString();
			if (letter < ' ')
				throw wrong("a control character in a string");
			all.append(letter == '\\' ? escaped() : letter);
		}
	}

	private char escaped() {
		char letter = peek();
		at++;
		int plain = "\"\\/bfnrt".indexOf(letter);
		if (plain >= 0)
			return "\"\\/\b\f\n\r\t".charAt(plain);
		if (letter != 'u' || at + 4 > text.length())
			throw wrong("an unknown escape");
		int code = 0;
		for (int i = 0; i < 4; i++) {
			int digit = Character.digit(text.charAt(at++), 16);
			if (digit < 0 || text.charAt(at - 1) > 'f')
				throw wrong("an unknown escape");
			code = code * 16 + digit;
		}
		return (char) code;
	}

	private Object number() {
		int from = at;
		boolean whole = true;
		if (peek() == '-')
			at++;
		int first = at;
		digits();
		if (text.charAt(first) == '0' && at > first + 1)
			throw wrong("a number that begins with 0");
		if (at < text.length() && text.charAt(at) == '.') {
			whole = false;
			at++;
			digits();
		}
		if (at < text.length() && (text.charAt(at) == 'e' || text.charAt(at) == 'E')) {
			whole = false;
			at++;
			if (peek() == '+' || peek() == '-')
				at++;
			digits();
		}
		String number = text.substring(from, at);
		if (whole && number.length() < 19)
			return Long.valueOf(number);
		return Double.valueOf(number);
	}

	private void digits() {
		int from = at;
		while (at < text.length() && text.charAt(at) >= '0' && text.charAt(at) <= '9')
			at++;
		if (at == from)
			throw wrong("not a value");
	}

	/** Also of enums of the contract, and of records, as Records says. */
	static String write(Object value) {
		StringBuilder out = new StringBuilder();
		write(value, out);
		return out.toString();
	}

	private static void write(Object value, StringBuilder out) {
		if (value == null || value instanceof Boolean) {
			out.append(value);
		} else if (value instanceof Map<?, ?> map) {
			char before = '{';
			for (Map.Entry<?, ?> entry : map.entrySet()) {
				out.append(before);
				quote(String.valueOf(entry.getKey()), out);
				write(entry.getValue(), out.append(':'));
				before = ',';
			}
			out.append(map.isEmpty() ? "{}" : "}");
		} else if (value instanceof Iterable<?> list) {
			char before = '[';
			for (Object each : list) {
				write(each, out.append(before));
				before = ',';
			}
			out.append(before == '[' ? "[]" : "]");
		} else if (value instanceof Number number) {
			write(number, out);
		} else if (value instanceof Word word) {
			if (word.word() == null)
				throw new IllegalArgumentException("a word that this client does not know cannot be sent");
			quote(word.word(), out);
		} else if (value instanceof Record record) {
			write(Records.map(record), out);
		} else if (value instanceof CharSequence) {
			quote(value.toString(), out);
		} else {
			throw new IllegalArgumentException("not a value of JSON: " + value.getClass().getName());
		}
	}

	private static void write(Number number, StringBuilder out) {
		if (number instanceof Double || number instanceof Float) {
			double value = number.doubleValue();
			if (Double.isNaN(value) || Double.isInfinite(value))
				throw new IllegalArgumentException("JSON has no number for " + value);
			out.append(value == Math.rint(value) && Math.abs(value) < EXACT ? Long.toString((long) value) : number.toString());
		} else {
			boolean exact = Math.abs(number.longValue()) <= EXACT && number.longValue() != Long.MIN_VALUE;
			out.append(exact ? number.toString() : "\"" + number + "\"");
		}
	}

	private static void quote(String text, StringBuilder out) {
		out.append('"');
		for (int i = 0; i < text.length(); i++) {
			char letter = text.charAt(i);
			if (letter == '"' || letter == '\\')
				out.append('\\').append(letter);
			else if (letter < ' ' || Character.isSurrogate(letter))
				out.append(String.format("\\u%04x", (int) letter));
			else
				out.append(letter);
		}
		out.append('"');
	}
}
