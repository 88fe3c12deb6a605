"""What can go wrong, beside the errors of the server, which are in exogpu.api: one class for each reason."""
from __future__ import annotations

from typing import Any, ClassVar


class ExogpuError(Exception):
    """Everything that this package raises by itself, but for ValueError and TypeError."""


class ApiError(ExogpuError):
    """The server refused a call, or could not do it.

    reason: a stable word, one class each (NotFoundError, OutOfMemoryError ...); hint: what to do about it, or None;
    method: the call; data: all that the server said beside it.
    """

    reason: ClassVar[str] = ""
    code: ClassVar[int] = 0

    def __init__(self, message: str, hint: str | None = None, method: str = "", data: dict[str, Any] | None = None):
        super().__init__(message)
        self.message, self.hint, self.method, self.data = message, hint, method, data or {}

    def __str__(self) -> str:
        return "%s%s%s" % ("%s: " % self.method if self.method else "", self.message,
                           " (%s)" % self.hint if self.hint else "")


class ConnectionLostError(ExogpuError, ConnectionError):
    """The connection ended while a call was under way, so whether it was done is not known; or no server is there.

    code: the WebSocket's close code, or None (exogpu.api.CLOSE_CODES says what it means).
    """

    def __init__(self, message: str, code: int | None = None):
        super().__init__(message)
        self.code = code


class CallTimeoutError(ExogpuError, TimeoutError):
    """No answer came within the call's own timeout. The server may still do what was asked."""


class SessionLostError(ExogpuError):
    """The session that owned this memory or module has ended, as after 10 s without a connection. Allocate again."""


class ProtocolError(ExogpuError):
    """The other side does not speak as schema/api.json says: it is no exogpu server, or a proxy stands between."""
