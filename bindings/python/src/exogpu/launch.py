"""What a kernel is given: numbers in the type that its signature says, grids, and kernels of your own."""
from __future__ import annotations

import functools
import inspect
import math
import numbers
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from . import api

Grid = int | Sequence[int]
EXACT = 1 << 53


class Scalar(NamedTuple):
    """A number whose type is said: exogpu.f32(2), for kernels whose signature leaves it open."""

    kind: str
    value: float


def f32(value: float) -> Scalar:
    return Scalar("f32", float(value))


def i32(value: int) -> Scalar:
    return Scalar("i32", int(value))


def u32(value: int) -> Scalar:
    return Scalar("u32", int(value))


def u64(value: int) -> Scalar:
    return Scalar("u64", int(value))


NUMPY = {"float16": "f32", "float32": "f32", "float64": "f32", "int32": "i32", "uint32": "u32", "uint64": "u64"}


def three(grid: Grid | None) -> list[int] | None:
    """1, (4, 2) -> [1, 1, 1], [4, 2, 1]."""
    if grid is None:
        return None
    sizes = [int(grid)] if isinstance(grid, (int, numbers.Integral)) else [int(one) for one in grid]
    if not 1 <= len(sizes) <= 3 or min(sizes) < 1:
        raise ValueError("a grid or block has one to three sizes of at least 1, not %r" % (grid,))
    return sizes + [1] * (3 - len(sizes))


def argument(value: Any, parameter: api.KernelParameter) -> api.KernelArgument:
    """One argument as the server takes it. A bool is 1 or 0, an integer wherever the kernel leaves the type open. Raises
    TypeError where it does not fit the kernel's parameter."""
    kind: str = parameter["kind"]
    where = "the argument %s" % (parameter["name"] or "of the kind %s" % kind)
    allocation = getattr(value, "allocation_id", None)
    if allocation is not None:
        if kind not in ("allocation", "dword"):
            raise TypeError("%s is a number, not an array" % where)
        if value.offset:
            raise ValueError("%s begins inside another array: kernels take whole allocations, so copy() it" % where)
        return {"allocation_id": allocation}
    if kind == "allocation":
        raise TypeError("%s is an array of the device, not %r" % (where, value))
    if isinstance(value, Scalar):
        kind, value = value.kind, value.value
    else:
        given = value
        named = NUMPY.get(str(getattr(value, "dtype", "")).rsplit(".", 1)[-1])
        if hasattr(value, "dtype") and not getattr(value, "shape", ()):
            value = value.item()  # of NumPy or PyTorch
        if not isinstance(value, numbers.Real):
            raise TypeError("%s is a number, not %r" % (where, given))
        if kind == "dword":
            kind = "u64"
        elif kind == "word":
            kind = named or ("f32" if not isinstance(value, numbers.Integral) else "u32" if int(value) >= 0 else "i32")
    if kind == "f32":
        if not math.isfinite(value):
            raise TypeError("%s: JSON has no %r; write it into an array" % (where, float(value)))
        return {"f32": float(value)}
    if not math.isfinite(value) or int(value) != value:
        raise TypeError("%s is an integer, not %r" % (where, value))
    number = int(value)
    if kind == "i32":
        return {"i32": number}
    if kind == "u32" or kind == "count" and number < 1 << 32:
        return {"u32": number}
    return {"u64": number if number < EXACT else str(number)}


def source_of(source: Any) -> tuple[bytes, str]:
    """A module's bytes and format, by what each has in it; a path is read."""
    if isinstance(source, os.PathLike):
        source = pathlib.Path(source).read_bytes()
    data = source.encode() if isinstance(source, str) else bytes(source)
    if data[:4] == b"\x03\x02\x23\x07":
        return data, "spirv"
    if b".version" in data[:4096]:
        return data, "ptx"
    if b"@compute" in data:
        return data, "wgsl"
    if b"__global__" in data:
        return data, "cuda"
    raise ValueError("neither PTX (text with .version) nor SPIR-V (little-endian), WGSL (@compute) or CUDA C (__global__); say format=")


class UserKernel:
    """A kernel of your own, written as a function that names its parameters; see exogpu.kernel."""

    def __init__(self, function: Callable[..., Any], source: Any, format: str | None, name: str):
        functools.update_wrapper(self, function)
        self.signature = inspect.signature(function)
        self.source, self.format, self.name = source, format, name

    def __call__(self, *args: Any, grid: Grid | None = None, block: Grid | None = None,
                 timeout_ms: int | None = None, **named: Any) -> Any:
        """Runs it on the device of its first array: the time on the device in microseconds, of an AsyncArray an awaitable."""
        bound = self.signature.bind(*args, **named)
        bound.apply_defaults()
        values = list(bound.arguments.values())
        device = next((one.device for one in values if hasattr(one, "allocation_id")), None)
        if device is None:
            raise TypeError("%s: one of its arguments has to be an array of a device" % self.name)
        return device.run(self, values, grid=grid, block=block, timeout_ms=timeout_ms)


class RawKernel:
    """A kernel in CUDA C, or any other source, by its name: as CuPy's class of this name, without its options.

        double = exogpu.RawKernel('extern "C" __global__ void twice(float *x) { x[threadIdx.x] *= 2; }', "twice")
        double((1,), (128,), (x,))
    """

    def __init__(self, code: Any, name: str, *, format: str | None = None):
        self.source, self.name, self.format = code, name, format

    def __call__(self, grid: Grid, block: Grid, args: Sequence[Any], *, timeout_ms: int | None = None) -> Any:
        """Runs it on the device of its first array: the time on the device in microseconds, of an AsyncArray an awaitable."""
        device = next((one.device for one in args if hasattr(one, "allocation_id")), None)
        if device is None:
            raise TypeError("%s: one of its arguments has to be an array of a device" % self.name)
        return device.run(self, args, grid=grid, block=block, timeout_ms=timeout_ms)


def kernel(source: Any, *, format: str | None = None, name: str | None = None) -> Callable[[Callable[..., Any]], UserKernel]:
    """A decorator: the function's parameters are the kernel's, in order, and its body is not run.

        @exogpu.kernel(pathlib.Path("scale.ptx"))
        def scale(y, x, factor=2.0, n=0):
            "y[i] = factor x[i]"

        scale(y, x, n=1000, grid=4, block=256)

    source: PTX, WGSL or CUDA C (text or bytes), SPIR-V (bytes) or the path of such a file; name: that of the kernel in the module,
    without it the function's. The module is loaded once for each device and session.
    """
    def decorate(function: Callable[..., Any]) -> UserKernel:
        return UserKernel(function, source, format, name or function.__name__)
    return decorate
