package dev.exogpu.client;

import java.lang.reflect.Constructor;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.RecordComponent;
import java.lang.reflect.Type;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Between JSON and the records of {@link Api}: the component {@code deviceId} is the key {@code device_id}. Keys that a
 * record does not have are passed over, so that a newer server is understood.
 */
final class Records {
	/** How a record is made: its components' keys and types, in the order of the constructor. */
	private record Shape(Constructor<?> constructor, RecordComponent[] components, String[] keys) {
		static Shape of(Class<?> type) {
			RecordComponent[] all = type.getRecordComponents();
			try {
				Constructor<?> made =
						type.getDeclaredConstructor(Arrays.stream(all).map(RecordComponent::getType).toArray(Class<?>[]::new));
				return new Shape(made, all, Arrays.stream(all).map(Records::key).toArray(String[]::new));
			} catch (NoSuchMethodException wrong) {
				throw new AssertionError(wrong); // every record has that one
			}
		}
	}

	private static final ClassValue<Shape> SHAPES = new ClassValue<>() {
		@Override
		protected Shape computeValue(Class<?> type) {
			return Shape.of(type);
		}
	};

	private Records() {}

	private static String key(RecordComponent component) {
		Key key = component.getAnnotation(Key.class);
		return key != null ? key.value() : component.getName().replaceAll("([A-Z])", "_$1").toLowerCase(java.util.Locale.ROOT);
	}

	/** Throws ProtocolException where the value is of another type. */
	static <T> T read(Object value, Class<T> type) {
		return type.cast(read(value, type, type.getSimpleName()));
	}

	private static Object read(Object value, Type type, String where) {
		if (type instanceof ParameterizedType many && many.getRawType() == List.class && value instanceof List<?> list) {
			List<Object> all = new ArrayList<>(list.size());
			for (Object each : list)
				all.add(read(each, many.getActualTypeArguments()[0], where));
			return Collections.unmodifiableList(all);
		}
		if (type instanceof ParameterizedType many && many.getRawType() == Map.class && value instanceof Map<?, ?> map) {
			Map<Object, Object> all = new LinkedHashMap<>();
			map.forEach((key, each) -> all.put(key, read(each, many.getActualTypeArguments()[1], where)));
			return Collections.unmodifiableMap(all);
		}
		if (value == null && !(type instanceof Class<?> one && one.isPrimitive()))
			return null;
		if (type == Object.class || type == String.class && value instanceof String || value instanceof Boolean && (type == boolean.class || type == Boolean.class))
			return value;
		if (type == long.class || type == Long.class)
			return whole(value, where);
		if ((type == double.class || type == Double.class) && value instanceof Number number)
			return number.doubleValue();
		if (type instanceof Class<?> one && one.isEnum() && value instanceof String)
			return word(one, (String) value);
		if (type instanceof Class<?> one && one.isRecord() && value instanceof Map<?, ?> map)
			return record(one, map);
		throw new ProtocolException(where + ": not a value of the type that the contract says");
	}

	private static long whole(Object value, String where) {
		if (value instanceof Long exact)
			return exact;
		try {
			if (value instanceof String text) // beyond 2^53
				return Long.parseUnsignedLong(text);
		} catch (NumberFormatException wrong) {
			// not that either
		}
		if (value instanceof Double number && number == Math.rint(number) && Math.abs(number) < 1L << 62)
			return number.longValue();
		throw new ProtocolException(where + ": not a whole number");
	}

	/** The last constant of each enum stands for all words that this client does not know. */
	private static Object word(Class<?> type, String value) {
		Object[] all = type.getEnumConstants();
		for (Object each : all)
			if (value.equals(((Word) each).word()))
				return each;
		return all[all.length - 1];
	}

	private static Object record(Class<?> type, Map<?, ?> map) {
		Shape shape = SHAPES.get(type);
		Object[] values = new Object[shape.keys.length];
		for (int i = 0; i < values.length; i++)
			values[i] = read(map.get(shape.keys[i]), shape.components[i].getGenericType(), type.getSimpleName() + "." + shape.keys[i]);
		try {
			return shape.constructor.newInstance(values);
		} catch (ReflectiveOperationException wrong) {
			throw new AssertionError(wrong);
		}
	}

	/** What is sent of a record: what is null is left out. */
	static Map<String, Object> map(Record record) {
		Shape shape = SHAPES.get(record.getClass());
		Map<String, Object> all = new LinkedHashMap<>();
		for (int i = 0; i < shape.keys.length; i++) {
			try {
				Object value = shape.components[i].getAccessor().invoke(record);
				if (value != null)
					all.put(shape.keys[i], value);
			} catch (ReflectiveOperationException wrong) {
				throw new AssertionError(wrong);
			}
		}
		return all;
	}
}
