package dev.exogpu.client;

import java.nio.ByteBuffer;

/**
 * An answer of two parts.
 *
 * @param result what the method answers
 * @param body the bytes that came with it
 */
public record WithBody<R>(R result, ByteBuffer body) {}
