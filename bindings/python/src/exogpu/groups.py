"""What the generated methods of exogpu.api stand on: how a call leaves, and how values are left out."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Unset:
    """The type of UNSET: an optional value that is left out where None is a value."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET = Unset()


def given(values: dict[str, Any], absent: Unset | None = None) -> dict[str, Any]:
    """Those values that are not `absent`."""
    return {name: value for name, value in values.items() if value is not absent}


class AsyncCaller(Protocol):
    async def call(self, method: str, params: dict[str, Any], *, body: Buffer | None = None,
                   into: Buffer | None = None, timeout: float | None = None) -> tuple[Any, memoryview]:
        """The result and the body of the answer, which is empty where there is none."""
        ...


class SyncCaller(Protocol):
    def call(self, method: str, params: dict[str, Any], *, body: Buffer | None = None,
             into: Buffer | None = None, timeout: float | None = None) -> tuple[Any, memoryview]:
        """The same, blocking."""
        ...


class AsyncGroup:
    """Methods that begin with the same word."""

    def __init__(self, caller: AsyncCaller):
        self._caller = caller

    async def _call(self, method: str, params: dict[str, Any], *, body: Buffer | None = None,
                    timeout: float | None = None) -> Any:
        return (await self._caller.call(method, params, body=body, timeout=timeout))[0]

    async def _call_body(self, method: str, params: dict[str, Any], *, body: Buffer | None = None,
                         into: Buffer | None = None, timeout: float | None = None) -> Any:
        return await self._caller.call(method, params, body=body, into=into, timeout=timeout)


class SyncGroup:
    """The same, blocking."""

    def __init__(self, caller: SyncCaller):
        self._caller = caller

    def _call(self, method: str, params: dict[str, Any], *, body: Buffer | None = None,
              timeout: float | None = None) -> Any:
        return self._caller.call(method, params, body=body, timeout=timeout)[0]

    def _call_body(self, method: str, params: dict[str, Any], *, body: Buffer | None = None,
                   into: Buffer | None = None, timeout: float | None = None) -> Any:
        return self._caller.call(method, params, body=body, into=into, timeout=timeout)
