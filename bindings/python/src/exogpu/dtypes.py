"""Types of numbers in device memory, by NumPy's names; NumPy itself is not needed."""
from __future__ import annotations

from typing import Any, NamedTuple


class DType(NamedTuple):
    """name: as NumPy calls it; size: bytes of one number; code: that of struct and array, or "" where they have none."""

    name: str
    size: int
    code: str

    @property
    def itemsize(self) -> int:
        return self.size


_ALL = {each.name: each for each in (
    DType("float32", 4, "f"), DType("float64", 8, "d"), DType("float16", 2, "e"), DType("bfloat16", 2, ""),
    DType("int8", 1, "b"), DType("int16", 2, "h"), DType("int32", 4, "i"), DType("int64", 8, "q"),
    DType("uint8", 1, "B"), DType("uint16", 2, "H"), DType("uint32", 4, "I"), DType("uint64", 8, "Q"),
    DType("bool", 1, "?"))}
_SHORT = {"f4": "float32", "f8": "float64", "f2": "float16", "i1": "int8", "i2": "int16", "i4": "int32", "i8": "int64",
          "u1": "uint8", "u2": "uint16", "u4": "uint32", "u8": "uint64", "?": "bool", "float": "float64", "int": "int64",
          "f": "float32", "d": "float64"}


def dtype(of: Any) -> DType:
    """The type that `of` names: a DType, "float32", "f4", numpy.float32, a NumPy or PyTorch dtype.

    Raises TypeError for one that is not here.
    """
    if isinstance(of, DType):
        return of
    name = of if isinstance(of, str) else getattr(of, "name", None) or getattr(of, "__name__", None) or str(of)
    name = str(name).rsplit(".", 1)[-1].lstrip("<=|")
    found = _ALL.get(_SHORT.get(name, name))
    if found is None:
        raise TypeError("no such type here: %r; there are %s" % (of, ", ".join(_ALL)))
    return found
