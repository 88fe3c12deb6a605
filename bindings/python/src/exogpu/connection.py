"""One WebSocket to the server: the upgrade, calls and their answers, and what the server says by itself.

Belongs to one event loop. It does not come back after a loss: exogpu.link does.
"""
from __future__ import annotations

import asyncio
import base64
import hashlib
import ipaddress
import json
import os
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from . import api, frames
from .errors import ApiError, CallTimeoutError, ConnectionLostError, ProtocolError

if TYPE_CHECKING:
    from typing_extensions import Buffer

PORT = 52415
SILENCE_S = 60.0       # the server pings every 20 s
HEAD_LIMIT = 16 << 10  # of the answer to the upgrade
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Address(NamedTuple):
    """Where a server is; tls: how its certificate is checked, None for plain HTTP."""

    host: str
    port: int
    tls: ssl.SSLContext | None

    @property
    def open_way(self) -> bool:
        """Whether something between may read the bytes as HTTP."""
        if self.tls is not None or self.host == "localhost":
            return False
        try:
            return not ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return True


def address(url: str, ca: str | os.PathLike[str] | None = None) -> Address:
    """Of "http://127.0.0.1:52415", "https://HOST", "ws://..." or "HOST:PORT"; ca: a PEM file with the cluster's authority.
    Without a port: that of the scheme, 443 or 80; 52415 where there is no scheme either."""
    whole = url if "://" in url else "http://" + url
    parts = urlsplit(whole)
    if parts.scheme not in ("http", "https", "ws", "wss") or not parts.hostname:
        raise ValueError("no address of a server: %r; such as http://127.0.0.1:%d" % (url, PORT))
    tls = None
    if parts.scheme in ("https", "wss"):
        tls = ssl.create_default_context(cafile=ca)
        tls.minimum_version = ssl.TLSVersion.TLSv1_3
    elif ca is not None:
        raise ValueError("ca= is for https addresses, and %r is none" % url)
    port = PORT if whole is not url else 80 if tls is None else 443
    return Address(parts.hostname, port if parts.port is None else parts.port, tls)


class Pending(NamedTuple):
    method: str
    answer: asyncio.Future[tuple[Any, memoryview]]
    into: memoryview | None
    answered: Callable[[Any], None] | None  # at once with the result, before anything that follows it is heard


class Connection(asyncio.BufferedProtocol):
    """heard(message): a notification; ended(connection, error): called once, when it is over.

    After a third of silence_s without a sign of the server it is asked for one by a ping; if none comes in the rest of
    silence_s, the connection is lost.
    """

    def __init__(self, where: Address, heard: Callable[[dict[str, Any]], None],
                 ended: Callable[[Connection, ConnectionLostError], None], silence_s: float = SILENCE_S):
        loop = asyncio.get_running_loop()
        self.where, self.heard, self.ended = where, heard, ended
        self.transport: asyncio.Transport | None = None
        self.upgraded: asyncio.Future[None] = loop.create_future()
        self.key = base64.b64encode(os.urandom(16))
        self.answer = bytearray(HEAD_LIMIT)  # to the upgrade
        self.answered = 0
        self.reader = frames.Reader(self._message, self._place, self._placed)
        self.pending: dict[int, Pending] = {}
        self.last_id = 0
        self.placing: tuple[dict[str, Any], memoryview] | None = None  # the answer whose body is being received
        self.gone = asyncio.Event()
        self.writable = asyncio.Event()
        self.writable.set()
        self.close_code: int | None = None
        self.error: ConnectionLostError | None = None
        self.silence_s = silence_s
        self.sign_at = loop.time()              # when the server was heard last, or took what was sent
        self.pinged_at: float | None = None     # since then nothing
        self.unsent = 0
        self.watch: asyncio.TimerHandle | None = None
        self.silent = False

    @classmethod
    async def open(cls, where: Address, heard: Callable[[dict[str, Any]], None],
                   ended: Callable[[Connection, ConnectionLostError], None], timeout: float,
                   silence_s: float = SILENCE_S) -> Connection:
        """Raises ConnectionLostError, ProtocolError; ssl.SSLError where the certificate is not trusted."""
        made: Connection | None = None
        try:
            async with asyncio.timeout(timeout):
                _, made = await asyncio.get_running_loop().create_connection(
                    lambda: cls(where, heard, ended, silence_s), where.host, where.port, ssl=where.tls)
                await made.upgraded
        except TimeoutError:
            raise ConnectionLostError("no answer from %s:%d within %g s" % (where.host, where.port, timeout)) from None
        except ssl.SSLError:
            raise
        except OSError as error:
            if isinstance(error, ConnectionLostError):
                raise
            raise ConnectionLostError("no server at %s:%d: %s" % (where.host, where.port, error)) from error
        finally:
            if made is not None and not made.usable:
                made.abort()
        return made

    @property
    def usable(self) -> bool:
        """Whether the upgrade is over, and went well."""
        return self.upgraded.done() and not self.upgraded.cancelled() and self.upgraded.exception() is None

    # --- what asyncio calls -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        host = "[%s]" % self.where.host if ":" in self.where.host else self.where.host
        transport.write(b"GET /ws HTTP/1.1\r\nHost: %s:%d\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\nSec-WebSocket-Protocol: %s\r\n\r\n" % (
                            host.encode("idna") if host.isascii() is False else host.encode(), self.where.port, self.key,
                            api.SUBPROTOCOL.encode()))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.reader.room() if self.upgraded.done() else memoryview(self.answer)[self.answered:]

    def buffer_updated(self, nbytes: int) -> None:
        self._sign()
        try:
            if self.upgraded.done():
                self.reader.filled(nbytes)
            else:
                self.answered += nbytes
                self._upgrade()
        except (frames.FrameError, ProtocolError, ValueError, KeyError, TypeError) as error:
            self._fail(ProtocolError("the server sent what the contract does not know: %s" % error))

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self._sign()
        self.writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.watch is not None:
            self.watch.cancel()
        text = "nothing was heard for %g s" % self.silence_s if self.silent else api.CLOSE_CODES.get(self.close_code or 0)
        self.error = ConnectionLostError("the connection ended%s" % (
            ": %s" % (text or exc) if text or exc else ""), self.close_code)
        self.writable.set()
        self.gone.set()
        if not self.upgraded.done():
            self.upgraded.set_exception(self.error)
        for call in self.pending.values():
            if not call.answer.done():
                call.answer.set_exception(ConnectionLostError(str(self.error), self.close_code))
        self.pending.clear()
        self.ended(self, self.error)

    def _sign(self) -> None:
        self.sign_at, self.pinged_at = asyncio.get_running_loop().time(), None

    def _watch(self) -> None:
        """Looks whether the server is still there; again in a sixth of silence_s."""
        if self.transport is None or self.error is not None:
            return
        loop, waiting = asyncio.get_running_loop(), self.transport.get_write_buffer_size()
        if waiting < self.unsent:
            self._sign()
        self.unsent = waiting
        if self.pinged_at is not None and loop.time() - self.pinged_at >= self.silence_s * 2 / 3:
            self.silent = True
            self.abort()
            return
        if self.pinged_at is None and loop.time() - self.sign_at >= self.silence_s / 3:
            self.pinged_at = loop.time()
            self._write(frames.PING, [b""])
        self.watch = loop.call_later(self.silence_s / 6, self._watch)

    # --- calls --------------------------------------------------------------------------------------------------

    async def call(self, method: str, params: dict[str, Any], timeout: float, body: Buffer | None = None,
                   into: Buffer | None = None, answered: Callable[[Any], None] | None = None) -> tuple[Any, memoryview]:
        """The result and the answer's body. A call that is given up writes nothing into `into` from then on."""
        self.last_id += 1
        call_id = self.last_id
        view = None if into is None else memoryview(into).cast("B")
        call = Pending(method, asyncio.get_running_loop().create_future(), view, answered)
        try:
            async with asyncio.timeout(timeout):
                await self.writable.wait()
                if self.error is not None or self.transport is None or self.transport.is_closing():
                    raise ConnectionLostError(str(self.error or "the connection is closing"), self.close_code)
                self.pending[call_id] = call
                self._send({"jsonrpc": "2.0", "id": call_id, "method": method, "params": params}, body)
                return await call.answer
        except TimeoutError as error:
            if isinstance(error, (ApiError, CallTimeoutError)):
                raise
            raise CallTimeoutError("%s: not answered within %g s" % (method, timeout)) from None
        finally:
            self.pending.pop(call_id, None)
            if self.placing is not None and self.placing[0].get("id") == call_id:
                self.reader.divert(memoryview(bytearray(len(self.placing[1]))))

    def _send(self, head: dict[str, Any], body: Buffer | None) -> None:
        text = json.dumps(head, separators=(",", ":"), allow_nan=False).encode()
        if body is None:
            self._write(frames.TEXT, [text])
        else:
            self._write(frames.BINARY, [len(text).to_bytes(4, "little") + text, memoryview(body).cast("B")])

    def _write(self, opcode: int, parts: list[bytes | memoryview]) -> None:
        if self.transport is not None and not self.transport.is_closing():
            pieces = frames.pack(opcode, parts, self.where.open_way)
            small = b"".join(piece for piece in pieces if len(piece) < 16 << 10)
            if sum(map(len, pieces)) == len(small):
                self.transport.write(small)
            else:
                for piece in pieces:
                    self.transport.write(piece)

    async def close(self) -> None:
        """Says good-bye and waits for the end, 2 s at most."""
        if self.transport is None or self.error is not None:
            return
        self._write(frames.CLOSE, [(1000).to_bytes(2, "big")])
        try:
            async with asyncio.timeout(2):
                await self.gone.wait()
        except TimeoutError:
            self.abort()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def _fail(self, error: ProtocolError) -> None:
        if not self.upgraded.done():
            self.upgraded.set_exception(error)
        for call in self.pending.values():
            if not call.answer.done():
                call.answer.set_exception(error)
        self.abort()

    # --- what arrives -------------------------------------------------------------------------------------------

    def _upgrade(self) -> None:
        end = self.answer.find(b"\r\n\r\n", 0, self.answered)
        if end < 0:
            if self.answered == HEAD_LIMIT:
                raise ProtocolError("an answer to the upgrade that is too long")
            return
        first, *lines = self.answer[:end].decode("latin-1").split("\r\n")
        values = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        wanted = base64.b64encode(hashlib.sha1(self.key + GUID).digest()).decode()
        if first.split(" ")[1:2] != ["101"] or values.get("sec-websocket-accept") != wanted:
            raise ProtocolError("no WebSocket at this address, which answers %s" % first)
        rest = self.answer[end + 4:self.answered]
        self.upgraded.set_result(None)
        self._watch()
        if rest:
            self.reader.room()[:len(rest)] = rest
            self.reader.filled(len(rest))

    def _message(self, opcode: int, payload: bytearray) -> None:
        if opcode == frames.PING:
            self._write(frames.PONG, [bytes(payload)])
        elif opcode == frames.CLOSE:
            self.close_code = int.from_bytes(payload[:2], "big") if len(payload) >= 2 else None
            self._write(frames.CLOSE, [bytes(payload[:2])])
            if self.transport is not None:
                self.transport.close()
        elif opcode == frames.TEXT:
            self._head(json.loads(payload), memoryview(b""))
        elif opcode == frames.BINARY:
            end = 4 + int.from_bytes(payload[:4], "little")
            self._head(json.loads(payload[4:end]), memoryview(payload)[end:])

    def _head(self, message: dict[str, Any], body: memoryview) -> None:
        if "method" in message:
            self.heard(message)
            return
        call = self.pending.get(message["id"]) if message.get("id") is not None else None
        if call is None or call.answer.done():
            return
        if "error" in message:
            call.answer.set_exception(self._refusal(call.method, message["error"]))
            return
        if call.into is not None and body.obj is not call.into.obj:
            if len(body) > len(call.into):
                raise ProtocolError("a body of %d bytes, where %d are due" % (len(body), len(call.into)))
            call.into[:len(body)] = body
            body = call.into[:len(body)]
        if call.answered is not None:
            call.answered(message["result"])
        call.answer.set_result((message["result"], body))

    @staticmethod
    def _refusal(method: str, error: dict[str, Any]) -> ApiError:
        data = dict(error.get("data") or {})
        made = api.ERRORS.get(str(data.get("reason")), ApiError)
        return made(str(error.get("message")), data.get("hint"), method, data)

    def _place(self, first: memoryview, length: int) -> tuple[int, memoryview] | None:
        """Memory for the body of an answer: that which the caller gave, where it fits."""
        message = json.loads(bytes(first[4:]))
        call = self.pending.get(message.get("id"))
        if "result" not in message or call is None:
            return None
        size = length - len(first)
        memory = call.into[:size] if call.into is not None and len(call.into) >= size else memoryview(bytearray(size))
        self.placing = message, memory
        return len(first), memory

    def _placed(self) -> None:
        assert self.placing is not None
        (message, memory), self.placing = self.placing, None
        self._head(message, memory)
