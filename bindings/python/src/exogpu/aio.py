"""exogpu for asyncio: AsyncCluster, AsyncDevice, AsyncArray, AsyncModule. exogpu.sync has the same without await.

    async with await exogpu.connect_async(url, token) as cluster:
        device = await cluster.device()
        x = await device.array([1.0, 2.0, 3.0])
        print(await x.sum())
"""
from __future__ import annotations

import asyncio
import math
import os
import weakref
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from . import api, display, host
from .connection import SILENCE_S, address
from .dtypes import DType, dtype as find_dtype
from .errors import ExogpuError, SessionLostError
from .launch import Grid, RawKernel, UserKernel, argument, source_of, three
from .link import Events, Link

if TYPE_CHECKING:
    import numpy
    from typing_extensions import Buffer

Self = TypeVar("Self", bound="Owned")
PIECE = 1 << 20   # as memory.write advises: some pieces under way at a time
WINDOW = 8
FLOATS = "float32"


async def connect_async(url: str | None = None, token: str | None = None, *, ca: str | os.PathLike[str] | None = None,
                        timeout: float | None = None, reconnect_s: float = 60.0, silence_s: float = SILENCE_S,
                        on_notice: Callable[[api.Notification], None] | None = None) -> AsyncCluster:
    """As exogpu.connect, for asyncio."""
    url = url or os.environ.get("EXOGPU_URL") or "http://127.0.0.1:52415"
    token = token or os.environ.get("EXOGPU_TOKEN")
    if not token:
        raise ValueError("a token is needed: token=, or EXOGPU_TOKEN; exogpu token create makes one")
    link = Link(address(url, ca), token, timeout=timeout, reconnect_s=reconnect_s, silence_s=silence_s, noticed=on_notice)
    await link.start()
    return AsyncCluster(link, url)


async def in_pieces(total: int, move: Callable[[int, int], Awaitable[object]]) -> None:
    """move(at, length) for pieces of `total` bytes, some at a time."""
    if total <= PIECE:
        await move(0, total)
        return
    begins = iter(range(0, total, PIECE))

    async def some() -> None:
        for at in begins:
            await move(at, min(PIECE, total - at))
    workers = [asyncio.ensure_future(some()) for _ in range(WINDOW)]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


class AsyncCluster:
    """A session with a server. Use it as a context: leaving it closes the connection, and 10 s later the
    server ends the session and frees its memory.

    api: every method of the server, typed (cluster.api.instance.list()); login: the token's name and scopes.
    """

    def __init__(self, link: Link, url: str):
        self.link, self.url = link, url
        self.api = api.AsyncApi(link)

    @property
    def login(self) -> api.Login:
        assert self.link.login is not None
        return self.link.login

    async def devices(self) -> list[AsyncDevice]:
        """Every device that the cluster has, also those that cannot be used now."""
        return [AsyncDevice(self, each) for each in (await self.api.cluster.snapshot())["devices"]]

    async def device(self, name: str | None = None) -> AsyncDevice:
        """The device of that id, or name, or beginning of one; without a name that with the most memory among those
        which can compute, GPUs before processors. Raises LookupError, which names those that there are."""
        found = await self.devices()
        usable = [each for each in found if each.record["state"] in ("idle", "computing", "throttled")
                  and each.record["verification"]["state"] == "passed"]
        if name is None and usable:
            return max(usable, key=lambda one: (one.record["kind"] != "cpu", one.record["kind"] != "virtual",
                                                one.record["memory_bytes"] or 0))
        for fits in (lambda text: text == name, lambda text: text.lower().startswith((name or " ").lower()),
                     lambda text: (name or " ").lower() in text.lower()):
            some = [each for each in found if fits(each.device_id) or fits(each.record["name"])]
            if some:
                return next((each for each in some if each in usable), some[0])
        raise LookupError("no device %s; there are: %s" % (
            "that can compute" if name is None else repr(name), "; ".join(map(repr, found)) or "none"))

    def events(self, *topics: api.Topic) -> EventStream:
        """Events, as `async with cluster.events("inventory") as stream: async for event in stream`. The first message
        has the topic "snapshot" and holds the whole state; it comes again only where events were missed for good.

        topics: inventory, telemetry, topology, placement, alerts; with the scope admin also audit and log.
        """
        return EventStream(self.link, topics)

    async def close(self) -> None:
        await self.link.close()

    async def __aenter__(self) -> AsyncCluster:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        await self.close()

    def __repr__(self) -> str:
        return "<exogpu %s as %s>" % (self.url, self.login["name"])


class EventStream:
    def __init__(self, link: Link, topics: Sequence[api.Topic]):
        self.link, self.topics = link, topics
        self.events: Events | None = None

    async def __aenter__(self) -> Events:
        self.events = Events(self.link, self.topics)
        try:
            if self.link.connection is not None:
                await self.events.resume(self.link.connection)
        except BaseException:
            self.link.events = None
            raise
        return self.events

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        if self.events is not None:
            try:
                await self.events.close()
            except ExogpuError:
                pass  # without a connection there is nothing to end


class Owned:
    """What belongs to a session and is freed when it is closed, left as a context, or forgotten.

    method, key: the call that frees it, such as memory.free and allocation_id.
    """

    def __init__(self, device: AsyncDevice, method: str, key: str, value: str):
        self.device, self.link, self.session = device, device.cluster.link, device.cluster.link.session_id
        self.free_call = method, {key: value}
        self.forgotten = weakref.finalize(self, forget, asyncio.get_running_loop(), self.link, self.session, *self.free_call)
        self.forgotten.atexit = False  # the session's end frees it anyway

    def check(self) -> None:
        if not self.forgotten.alive:
            raise ValueError("this was freed")
        if self.session != self.link.session_id:
            raise SessionLostError("the session that this belonged to has ended (allocate and load again)")

    async def free(self) -> None:
        """Frees it now. A second time does nothing."""
        if self.forgotten.detach() and self.session == self.link.session_id:
            await self.link.call(*self.free_call)

    async def leave(self, error: BaseException | None) -> None:
        """The end of a `with`: after an error it is freed in the background, so that the error is told at once, and no other."""
        if error is None:
            await self.free()
        else:
            self.forgotten()

    async def __aenter__(self: Self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        await self.leave(error)


async def _free(link: Link, method: str, params: dict[str, Any]) -> None:
    try:
        await link.call(method, params)
    except ExogpuError:
        pass  # it is gone already, or the connection is: then the session's end frees it


def forget(loop: asyncio.AbstractEventLoop, link: Link, session: str, method: str, params: dict[str, Any]) -> None:
    """Frees what nobody holds any more, from whichever thread finds out."""
    def begin() -> None:
        if link.over is None and link.session_id == session:
            task = loop.create_task(_free(link, method, params))
            link.freeing.add(task)
            task.add_done_callback(link.freeing.discard)
    if not loop.is_closed():
        loop.call_soon_threadsafe(begin)


class AsyncDevice:
    """A device of some machine. record: all that the server says of it."""

    def __init__(self, cluster: AsyncCluster, record: api.Device):
        self.cluster, self.record, self.device_id = cluster, record, record["device_id"]
        self.loaded: dict[tuple[str, str, Any], AsyncModule] = {}

    async def empty(self, shape: int | Sequence[int], dtype: Any = FLOATS, *, label: str | None = None) -> AsyncArray:
        """Memory for an array, zeroed by the server. Raises OutOfMemoryError, LimitExceededError (the token's limit)."""
        shape, kind = host.shape_of(shape), find_dtype(dtype)
        answer = await self.cluster.api.memory.allocate(self.device_id, math.prod(shape) * kind.size, label=label)
        return AsyncArray(self, Allocation(self, answer["allocation_id"]), shape, kind, 0)

    async def array(self, values: Any, dtype: Any = None, *, label: str | None = None) -> AsyncArray:
        """A copy of NumPy's array, of a buffer, of what DLPack knows, of lists, or of an array of any device. dtype: that
        of the values, and float32 for lists unless said."""
        if isinstance(values, AsyncArray):
            return await self._made(values.shape, dtype or values.dtype, lambda made: made.write(values), label)
        taken, shape, kind = host.look(values)
        return await self._made(shape, dtype or kind or FLOATS, lambda made: made.write(taken), label)

    async def _made(self, shape: host.Shape, dtype: Any, fill: Callable[[AsyncArray], Awaitable[object]],
                    label: str | None = None) -> AsyncArray:
        """A new array once it is filled; freed where that fails."""
        made = await self.empty(shape or 1, dtype, label=label)
        made.shape = shape
        try:
            await fill(made)
        except BaseException as error:
            await made.memory.leave(error)
            raise
        return made

    async def load(self, source: Any, format: str | None = None) -> AsyncModule:
        """A module of kernels: PTX (text, CUDA), SPIR-V (bytes, Vulkan), WGSL (text, browsers), CUDA C
        (text, CUDA where the node has NVRTC, which compiles it there: data["log"] of the error says what is wrong), a path of such a file, or
        "builtin"."""
        if isinstance(source, str) and source == "builtin" and format is None:
            data, kind = None, "builtin"
        else:
            data, kind = source_of(source) if format is None else (bytes(source.encode() if isinstance(source, str) else source), format)
        params = {"device_id": self.device_id, "format": kind}
        answer, _ = await self.cluster.link.call("compute.load", params, body=data)
        return AsyncModule(self, answer)

    async def module(self, source: Any, format: str | None = None) -> AsyncModule:
        """As load, but once for each session: kept on this device."""
        key = self._key(source, format)
        if key not in self.loaded:
            made = await self.load(source, format)
            self.loaded = {known: each for known, each in self.loaded.items() if known[0] == key[0]}
            self.loaded[key] = made
        return self.loaded[key]

    def _key(self, source: Any, format: str | None) -> tuple[str, str, Any]:
        kept = bytes(source) if isinstance(source, (bytearray, memoryview)) else source  # what may change is no key
        return self.cluster.link.session_id, str(format), kept

    async def _launch(self, source: Any, format: str | None, kernel: str, values: Sequence[Any], **more: Any) -> float:
        """By the module that is kept. One that the session has lost with its device is loaded anew, once."""
        kept = self.loaded.get(self._key(source, format))
        module = await self.module(source, format)
        try:
            return await module.launch(kernel, *values, **more)
        except (api.DeviceLostError, api.NotFoundError):
            if kept is not module:
                raise
        key = self._key(source, format)
        if self.loaded.get(key) is module:
            del self.loaded[key]
        return await (await self.module(source, format)).launch(kernel, *values, **more)

    async def launch(self, kernel: str, *args: Any, timeout_ms: int | None = None) -> float:
        """A built-in kernel (fill_f32, saxpy_f32, matmul_f32, sum_f32): its time on the device in microseconds."""
        return await self._launch("builtin", None, kernel, args, timeout_ms=timeout_ms)

    async def run(self, kernel: UserKernel | RawKernel, values: Sequence[Any], *, grid: Grid | None, block: Grid | None,
                  timeout_ms: int | None) -> float:
        return await self._launch(kernel.source, kernel.format, kernel.name, values, grid=grid, block=block, timeout_ms=timeout_ms)

    def __repr__(self) -> str:
        return "<exogpu device %s (%s)>" % (display.device_line(self.record), self.device_id)

    def _repr_html_(self) -> str:
        return display.devices_table([self.record])


class Allocation(Owned):
    def __init__(self, device: AsyncDevice, allocation_id: str):
        super().__init__(device, "memory.free", "allocation_id", allocation_id)
        self.allocation_id = allocation_id


class AsyncArray:
    """Numbers in the memory of a device, in C order. A view (x[2:5], x[0]) shares the memory of its array."""

    def __init__(self, device: AsyncDevice, memory: Allocation, shape: host.Shape, dtype: DType, offset: int):
        self.device, self.memory, self.shape, self.dtype, self.offset = device, memory, shape, dtype, offset

    @property
    def allocation_id(self) -> str:
        self.memory.check()
        return self.memory.allocation_id

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.size

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array without dimensions has no length")
        return self.shape[0]

    def __getitem__(self, key: Any) -> AsyncArray:
        """A view of rows: x[3], x[2:5], x[:], x[...]."""
        keys = key if isinstance(key, tuple) else (key,)
        view = self
        for place, one in enumerate(keys):
            if one is Ellipsis or one == slice(None):
                continue
            if place and len(view.shape) == len(self.shape):
                raise IndexError("a view is of whole rows: x[2:5], not x[:, 2:5]")
            view = view._row(one)
        return view

    def _row(self, key: Any) -> AsyncArray:
        count, row = len(self), self.dtype.size * math.prod(self.shape[1:])
        if isinstance(key, slice):
            begin, end, step = key.indices(count)
            if step != 1 or end <= begin:
                raise IndexError("a view has rows that follow each other, at least one")
            return AsyncArray(self.device, self.memory, (end - begin, *self.shape[1:]), self.dtype, self.offset + begin * row)
        at = int(key) + (count if int(key) < 0 else 0)
        if not 0 <= at < count:
            raise IndexError("row %d of %d" % (key, count))
        return AsyncArray(self.device, self.memory, self.shape[1:], self.dtype, self.offset + at * row)

    def reshape(self, *shape: int | Sequence[int]) -> AsyncArray:
        """The same memory in another shape; one size may be -1."""
        sizes = [int(one) for one in (shape[0] if len(shape) == 1 and isinstance(shape[0], Sequence) else shape)]  # type: ignore[arg-type]
        if sizes.count(-1) == 1:
            sizes[sizes.index(-1)] = self.size // max(1, -math.prod(sizes))
        if math.prod(sizes) != self.size or any(one < 1 for one in sizes):
            raise ValueError("%d elements do not make the shape %r" % (self.size, tuple(sizes)))
        return AsyncArray(self.device, self.memory, tuple(sizes), self.dtype, self.offset)

    async def write(self, values: Any) -> None:
        """Values of the same shape, or that NumPy broadcasts to it, converted to this array's type. An array of a device
        passes through this program only where it is converted, or of another cluster."""
        if isinstance(values, AsyncArray):
            if (values.shape, values.dtype, values.memory.link) == (self.shape, self.dtype, self.memory.link):
                await self.copy_from(values)
                return
            values = await values.values()
        data = host.pack(values, self.shape, self.dtype)
        call, allocation_id = self.device.cluster.api.memory.write, self.allocation_id
        await in_pieces(self.nbytes, lambda at, count: call(allocation_id, self.offset + at, data[at:at + count]))

    async def read(self, into: Buffer | None = None) -> memoryview:
        """The bytes; into: memory that receives them, as of a NumPy array of this size."""
        memory = memoryview(bytearray(self.nbytes)) if into is None else memoryview(into).cast("B")
        if memory.nbytes != self.nbytes or memory.readonly:
            raise ValueError("into= is writable memory of %d bytes" % self.nbytes)
        call, allocation_id = self.device.cluster.api.memory.read, self.allocation_id
        await in_pieces(self.nbytes, lambda at, count: call(allocation_id, self.offset + at, count, into=memory[at:at + count]))
        return memory

    async def numpy(self) -> numpy.ndarray[Any, Any]:
        """A copy as a NumPy array."""
        return host.to_numpy(await self.read(), self.shape, self.dtype)

    async def tolist(self) -> Any:
        return host.unpack(await self.read(), self.shape, self.dtype)

    async def values(self) -> Any:
        """A copy as that which write takes: NumPy's array where NumPy is there, else lists, and of bfloat16 bytes."""
        return host.values_of(await self.read(), self.shape, self.dtype)

    async def copy(self, device: AsyncDevice | None = None) -> AsyncArray:
        """A copy on this device or another one, also of another machine; its bytes do not pass through this program."""
        return await (device or self.device)._made(self.shape, self.dtype, lambda made: made.copy_from(self))

    async def copy_from(self, other: AsyncArray) -> None:
        """The bytes of an array of the same size, on any device of the cluster."""
        if other.nbytes != self.nbytes:
            raise ValueError("%d bytes do not fill %d" % (other.nbytes, self.nbytes))
        await self.device.cluster.api.memory.copy(other.allocation_id, other.offset, self.allocation_id, self.offset, self.nbytes)

    async def fill(self, value: float) -> None:
        """Every element; done on the device for 0 and, in a whole array of float32, for every finite value."""
        if not math.isfinite(value) and self.dtype.code not in ("f", "d", "e"):
            raise ValueError("%s has no %r" % (self.dtype.name, value))
        below = value == 0 and math.copysign(1, value) < 0  # -0.0, which does not pass as a kernel's argument, nor inf
        if value == 0 and not below:
            await self.device.cluster.api.memory.fill(self.allocation_id, self.offset, self.nbytes, 0)
        elif self.dtype.name == FLOATS and not self.offset and math.isfinite(value) and not below:
            await self.device.launch("fill_f32", self, float(value), self.size)
        else:
            await self.write(value)

    def _floats(self, *others: AsyncArray) -> None:
        if any(each.dtype.name != FLOATS or each.offset for each in (self, *others)):
            raise TypeError("the built-in kernels compute whole arrays of float32")
        if any(each.device.device_id != self.device.device_id for each in others):
            raise ValueError("these arrays are on different devices: x.copy(device) brings one to the other")

    async def matmul(self, other: AsyncArray) -> AsyncArray:
        """self @ other, of (m, k) and (k, n) in float32, computed on the device."""
        self._floats(other)
        if self.ndim != 2 or other.ndim != 2 or self.shape[1] != other.shape[0]:
            raise ValueError("the product of %r and %r is not defined" % (self.shape, other.shape))
        (m, k), n = self.shape, other.shape[1]
        return await self.device._made((m, n), FLOATS, lambda made: self.device.launch("matmul_f32", made, self, other, m, n, k))

    async def sum(self) -> float:
        """The sum of all elements, in float32."""
        self._floats()
        async with await self.device.empty(1, FLOATS) as out:
            await self.device.launch("sum_f32", out, self, self.size)
            return float((await out.tolist())[0])

    async def add(self, x: AsyncArray, a: float = 1.0) -> None:
        """self += a x, by saxpy_f32."""
        self._floats(x)
        if x.shape != self.shape:
            raise ValueError("%r does not fit %r" % (x.shape, self.shape))
        await self.device.launch("saxpy_f32", self, x, float(a), self.size)

    async def free(self) -> None:
        """Frees the memory, that of its views too."""
        await self.memory.free()

    async def __aenter__(self) -> AsyncArray:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        await self.memory.leave(error)

    def __repr__(self) -> str:
        return "<exogpu array %s %s, %s on %s>" % (
            "x".join(map(str, self.shape)) or "scalar", self.dtype.name, display.size(self.nbytes), self.device.record["name"])


class AsyncModule(Owned):
    """Kernels that are loaded on a device. kernels: their names."""

    def __init__(self, device: AsyncDevice, loaded: api.ComputeLoadResult):
        super().__init__(device, "compute.unload", "module_id", loaded["module_id"])
        self.module_id = loaded["module_id"]
        self.signatures = {each["kernel"]: each for each in loaded["signatures"]}
        self.kernels = list(loaded["kernels"])

    async def launch(self, kernel: str, *args: Any, grid: Grid | None = None, block: Grid | None = None,
                     timeout_ms: int | None = None) -> float:
        """Runs a kernel and waits for it: its time on the device in microseconds. grid counts blocks, block the threads
        of one. Raises exogpu.api.TimeoutError after timeout_ms (60,000 unless said), with which the session loses what
        it has on that back end."""
        self.check()
        if kernel not in self.signatures:
            raise LookupError("no kernel %r in this module, which has %s" % (kernel, ", ".join(self.kernels)))
        parameters = self.signatures[kernel]["parameters"]
        if len(args) != len(parameters):
            raise TypeError("%s takes %d arguments, not %d" % (kernel, len(parameters), len(args)))
        answer = await self.device.cluster.api.compute.launch(
            self.module_id, kernel, [argument(*pair) for pair in zip(args, parameters)],
            grid=three(grid), block=three(block), timeout_ms=timeout_ms)
        return answer["device_us"]

    def __repr__(self) -> str:
        return "<exogpu module %s on %s>" % (", ".join(self.kernels), self.device.record["name"])
