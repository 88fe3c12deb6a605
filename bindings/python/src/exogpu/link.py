"""A session with the server that outlives its connections: it dials again, joins the session that it had, and asks for
the events that were missed. Belongs to one event loop.

What is under way when a connection ends fails with ConnectionLostError, since nobody knows whether it was done. Calls
that are made while there is no connection wait for the next one, as long as their timeout lets them.
"""
from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict, cast

from . import api
from .connection import SILENCE_S, Address, Connection
from .errors import CallTimeoutError, ConnectionLostError, ExogpuError

if TYPE_CHECKING:
    from typing_extensions import Buffer

CALL_S = 90.0        # longer than a kernel may take unless it is told otherwise
DIAL_S = 10.0
LAST_WAIT_S = 5.0    # between two tries
WAITING_EVENTS = 10000
# After these the server would only refuse again (schema/api.json, x-close-codes).
FINAL_CODES = (4403, 4410)


class SnapshotMessage(TypedDict):
    """The whole state, which comes first, and again when what was missed is no longer to be had."""

    topic: Literal["snapshot"]
    epoch: str
    seq: int
    data: api.Snapshot


class Link:
    """noticed(notification): what the server says to this session, such as session.device_lost."""

    def __init__(self, where: Address, token: str, *, timeout: float | None = None, reconnect_s: float = 60.0,
                 silence_s: float = SILENCE_S, noticed: Callable[[api.Notification], None] | None = None):
        self.where, self.token, self.silence_s, self.noticed = where, token, silence_s, noticed
        self.timeout = CALL_S if timeout is None else timeout
        self.reconnect_s = reconnect_s
        self.connection: Connection | None = None
        self.ready = asyncio.Event()      # set while logged in, and once there will be no more connections
        self.over: ExogpuError | None = None
        self.login: api.Login | None = None
        self.events: Events | None = None
        self.coming_back: asyncio.Task[None] | None = None
        self.freeing: set[asyncio.Task[None]] = set()  # kept here, since a loop alone lets tasks be collected

    @property
    def session_id(self) -> str:
        return self.login["session_id"] if self.login else ""

    async def start(self) -> None:
        """The first connection: what is wrong with it is raised, and not tried again."""
        await self._dial()

    async def _dial(self) -> None:
        connection = await Connection.open(self.where, self._heard, self._lost, DIAL_S, self.silence_s)
        try:
            self.login = await self._log_in(connection)
            if connection.error is not None:
                raise connection.error
            self.connection = connection
            if self.events is not None:
                await self.events.resume(connection)
        except BaseException:
            if self.connection is connection:
                self.connection = None
            connection.abort()
            raise
        if connection.error is None:
            self.ready.set()

    async def _log_in(self, connection: Connection) -> api.Login:
        params = {"token": self.token}
        if self.login is not None:
            try:
                return cast(api.Login, (await connection.call(
                    "auth.login", {**params, "session_id": self.session_id}, DIAL_S))[0])
            except api.NotFoundError:
                pass  # it has ended; what it owned is gone
        return cast(api.Login, (await connection.call("auth.login", params, DIAL_S))[0])

    def _lost(self, connection: Connection, error: ConnectionLostError) -> None:
        if self.connection is not connection:
            return
        self.connection = None
        self.ready.clear()
        if self.over is None and error.code in FINAL_CODES:
            self._finish(error)
        if self.over is None and (self.coming_back is None or self.coming_back.done()):
            self.coming_back = asyncio.get_running_loop().create_task(self._come_back())

    async def _come_back(self) -> None:
        loop = asyncio.get_running_loop()
        until, wait = loop.time() + self.reconnect_s, 0.05
        while self.over is None:
            try:
                await self._dial()
                if self.connection is not None:
                    return
            except (api.UnauthenticatedError, api.ForbiddenError) as error:
                self._finish(error)
            except (ExogpuError, OSError) as error:
                if loop.time() + wait > until:
                    self._finish(ConnectionLostError("no server for %g s: %s" % (self.reconnect_s, error)))
                    return
                await asyncio.sleep(wait * random.uniform(0.5, 1))
                wait = min(2 * wait, LAST_WAIT_S)

    def _finish(self, error: ExogpuError) -> None:
        self.over = error
        self.ready.set()
        if self.events is not None:
            self.events.wake()

    async def call(self, method: str, params: dict[str, Any], *, body: Buffer | None = None,
                   into: Buffer | None = None, timeout: float | None = None) -> tuple[Any, memoryview]:
        """The result and the answer's body. A call that names its own time on the server (timeout_ms) may take so
        much longer. Raises the error of its reason, CallTimeoutError, ConnectionLostError."""
        loop = asyncio.get_running_loop()
        until = loop.time() + (self.timeout + params.get("timeout_ms", 0) / 1000 if timeout is None else timeout)
        try:
            async with asyncio.timeout_at(until):
                await self.ready.wait()
        except TimeoutError:
            raise CallTimeoutError("%s: no connection in its time" % method) from None
        if self.over is not None:
            raise self.over
        if self.connection is None:
            raise ConnectionLostError("the connection has just ended")
        return await self.connection.call(method, params, until - loop.time(), body, into)

    def _heard(self, message: dict[str, Any]) -> None:
        if message["method"] == "event":
            if self.events is not None:
                self.events.add(message["params"])
        elif self.noticed is not None:
            told = cast(api.Notification, {"method": message["method"], "params": message["params"]})
            try:
                self.noticed(told)
            except Exception:  # of the program's own; the connection goes on
                logging.getLogger("exogpu").exception("on_notice failed at %s", message["method"])

    async def close(self) -> None:
        if self.over is None:
            self._finish(ConnectionLostError("this client was closed"))
        if self.coming_back is not None:
            self.coming_back.cancel()
        if self.connection is not None:
            await self.connection.close()


class Events:
    """Events of some topics, in order: first a message of the topic "snapshot", then what happens.

    An iterator that outlives connections. One that is read too slowly, so that 10,000 events wait, asks the server
    again for those that it has not handed out.
    """

    def __init__(self, link: Link, topics: Sequence[api.Topic]):
        if link.events is not None:
            raise ValueError("a client has one stream of events: close the other, or connect once more")
        self.link, self.topics = link, list(topics)
        self.waiting: deque[api.Event | SnapshotMessage] = deque()
        self.more = asyncio.Event()
        self.seen: dict[str, Any] | None = None  # {epoch, seq} of what was handed out last
        self.late = False
        link.events = self

    async def resume(self, connection: Connection) -> None:
        self.waiting.clear()
        self.late = True  # what comes before the answer is of the subscription that it replaces
        params = {"topics": self.topics, **({"since": self.seen} if self.seen else {})}
        await connection.call("events.subscribe", params, self.link.timeout, answered=self._resumed)

    def _resumed(self, answer: api.EventsSubscribeResult) -> None:
        self.late = False
        if answer["snapshot"] is not None:
            self.waiting.append({"topic": "snapshot", "epoch": answer["epoch"], "seq": answer["seq"],
                                 "data": answer["snapshot"]})
        self.wake()

    def add(self, event: api.Event) -> None:
        if len(self.waiting) >= WAITING_EVENTS:
            self.waiting.clear()
            self.late = True
        if not self.late:
            self.waiting.append(event)
        self.wake()

    def wake(self) -> None:
        self.more.set()

    def __aiter__(self) -> AsyncIterator[api.Event | SnapshotMessage]:
        return self

    async def __anext__(self) -> api.Event | SnapshotMessage:
        while not self.waiting:
            if self.link.events is not self:
                raise StopAsyncIteration
            if self.link.over is not None:
                raise self.link.over
            self.more.clear()
            if self.late and self.link.connection is not None:
                try:
                    await self.resume(self.link.connection)
                    continue
                except ConnectionLostError:
                    pass  # the next connection asks again
            await self.more.wait()
        event = self.waiting.popleft()
        self.seen = {"epoch": event["epoch"], "seq": event["seq"]}
        return event

    async def close(self) -> None:
        """Ends the subscription."""
        if self.link.events is not self:
            return
        self.link.events = None
        self.wake()
        if self.link.connection is not None:
            await self.link.connection.call("events.subscribe", {"topics": []}, self.link.timeout)
