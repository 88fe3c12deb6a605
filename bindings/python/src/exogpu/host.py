"""Numbers of the host on their way to and from device memory: NumPy where it is there, the buffer protocol, DLPack,
lists. NumPy is imported when it is first of use."""
from __future__ import annotations

import math
import struct
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .dtypes import DType, dtype as find_dtype

if TYPE_CHECKING:
    import numpy

Shape = tuple[int, ...]
CODES = {"f": "float32", "d": "float64", "e": "float16", "?": "bool"}  # by their codes in buffers


def shape_of(shape: int | Sequence[int]) -> Shape:
    """A shape as a tuple; raises ValueError for one without elements, or too large to be counted."""
    made = (int(shape),) if isinstance(shape, int) or not isinstance(shape, Sequence) else tuple(int(one) for one in shape)
    if any(one < 1 for one in made) or math.prod(made) >= 1 << 50:
        raise ValueError("a shape has sizes of at least 1, not %r" % (shape,))
    return made


def numpy_module() -> Any:
    """NumPy, or None where it is not installed."""
    try:
        import numpy
    except ImportError:
        return None
    return numpy


def _flat(values: Any, shape: Shape) -> Iterator[Any]:
    if not shape:
        yield values
        return
    if len(values) != shape[0]:
        raise ValueError("%d elements, where the shape has %d" % (len(values), shape[0]))
    for one in values:
        yield from _flat(one, shape[1:])


def _nested_shape(values: Any) -> Shape:
    return (len(values), *_nested_shape(values[0])) if isinstance(values, (list, tuple)) and values else ()


def look(values: Any) -> tuple[Any, Shape, str | None]:
    """Values as something whose shape and type are known: (values, shape, name of the type or None)."""
    if hasattr(values, "__dlpack__") and not hasattr(values, "__array__"):
        numpy = numpy_module()
        if numpy is None:
            raise TypeError("DLPack is read by NumPy, which is not installed")
        values = numpy.from_dlpack(values)
    if hasattr(values, "shape") and hasattr(values, "dtype"):
        name = getattr(values.dtype, "name", None) or str(values.dtype)  # that of ">f4" is float32
        return values, tuple(int(one) for one in values.shape), name.rsplit(".", 1)[-1]
    try:
        view = memoryview(values)
    except TypeError:
        return values, _nested_shape(values), None
    return view, tuple(view.shape or ()), _type_of(view)


def _type_of(view: memoryview) -> str:
    """The type whose numbers lie in a buffer: "f", "<f", "@l" and so on, as struct names them; those of ctypes have "<"."""
    order, code = view.format[:-1], view.format[-1:]
    if order in (">", "!") and view.itemsize > 1:
        raise TypeError("a buffer whose bytes are in the other order (%r): swap them first, or give a NumPy array" % view.format)
    found = CODES.get(code) or ("uint" if code in "cBHILQN" else "int" if code in "bhilqn" else "") + str(8 * view.itemsize)
    if order not in ("", "@", "=", "<", ">", "!") or not code or found[0].isdigit():
        raise TypeError("a buffer of %r: there are none of these in device memory" % view.format)
    return found


def values_of(data: memoryview, shape: Shape, dtype: DType) -> Any:
    """What `pack` converts: NumPy's array, or nested lists; bytes where nobody knows the type."""
    if not dtype.code:
        return data
    return unpack(data, shape, dtype) if numpy_module() is None else to_numpy(data, shape, dtype)


def pack(values: Any, shape: Shape, dtype: DType) -> memoryview:
    """The bytes of `values`, broadcast to `shape` and converted to `dtype`. Without a copy where they lie like that.

    Raises ValueError where the shapes do not fit, TypeError where the values cannot be converted.
    """
    values, have, kind = look(values)
    if have == shape and kind == dtype.name and isinstance(values, memoryview) and values.c_contiguous:
        return values.cast("B") if len(values.format) == 1 else memoryview(values.tobytes())
    numpy = numpy_module()
    if numpy is not None and dtype.code:
        taken = numpy.asarray(values, dtype=dtype.name if kind is None else None)
        if taken.dtype.kind == "c":
            raise TypeError("complex numbers do not fit %s" % dtype.name)
        made = numpy.ascontiguousarray(numpy.broadcast_to(taken.astype(dtype.name, copy=False), shape))
        return memoryview(made.reshape(-1).view("u1")).cast("B")
    if isinstance(values, memoryview) and kind is not None:
        if kind == dtype.name and have == shape or not dtype.code and values.nbytes == math.prod(shape) * dtype.size:
            return memoryview(values.tobytes())
        values = unpack(memoryview(values.tobytes()), have, find_dtype(kind))  # Python walks few formats itself
    if not dtype.code:
        raise TypeError("%s is taken as bytes only" % dtype.name)
    flat = [values] * math.prod(shape) if have == () else list(_flat(values, shape))
    try:
        return memoryview(struct.pack("<%d%s" % (len(flat), dtype.code), *flat))
    except (struct.error, OverflowError) as error:
        raise TypeError("these do not fit %s: %s" % (dtype.name, error)) from None


def unpack(data: memoryview, shape: Shape, dtype: DType) -> Any:
    """The numbers in `data` as nested lists."""
    if not dtype.code:
        raise TypeError("%s has no numbers in Python: read it as bytes" % dtype.name)
    flat = struct.unpack("<%d%s" % (math.prod(shape), dtype.code), data)

    def nest(at: int, left: Shape) -> Any:
        if not left:
            return flat[at]
        step = math.prod(left[1:])
        return [nest(at + i * step, left[1:]) for i in range(left[0])]
    return nest(0, shape)


def to_numpy(data: memoryview, shape: Shape, dtype: DType) -> numpy.ndarray[Any, Any]:
    """The same memory as a NumPy array. Raises ImportError without NumPy, TypeError for bfloat16, which it has not."""
    import numpy
    if not dtype.code:
        raise TypeError("NumPy has no %s: read it as bytes" % dtype.name)
    return numpy.frombuffer(data, dtype=dtype.name).reshape(shape)


if sys.byteorder != "little":
    raise ImportError("exogpu: device memory is little-endian, and this machine is not")
