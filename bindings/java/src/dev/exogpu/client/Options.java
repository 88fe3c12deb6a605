package dev.exogpu.client;

import java.nio.ByteBuffer;
import java.util.LinkedHashMap;
import java.util.Map;

/** What a call may also take. What was not set is not sent; what was set to null is sent as null. */
abstract class Options {
	final Map<String, Object> values = new LinkedHashMap<>();
	ByteBuffer bytes;
}
