package dev.exogpu.client;

import java.nio.ByteBuffer;
import java.util.Map;

/** What came for a call; body: null where none came. */
record Answer(Map<String, Object> result, ByteBuffer body) {}
