"""exogpu without await: each object here stands for its twin in exogpu.aio, which a thread of the client's own runs."""
from __future__ import annotations

import asyncio
import numbers
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from . import aio, api, display
from .connection import SILENCE_S
from .dtypes import DType
from .launch import Grid, RawKernel, UserKernel
from .link import Events, SnapshotMessage

if TYPE_CHECKING:
    import numpy
    from typing_extensions import Buffer

Result = TypeVar("Result")


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()
    for task in asyncio.all_tasks(loop):
        task.cancel()
        loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    loop.close()


class Runner:
    """A thread with an event loop. It ends with `stop`, or with the program."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=_run, args=(self.loop,), name="exogpu", daemon=True)
        self.thread.start()

    def __call__(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Waits for the result. An interrupt (Ctrl-C) cancels the work."""
        if not self.thread.is_alive():
            work.close()
            raise ValueError("this client was closed")
        if threading.current_thread() is self.thread:
            work.close()
            raise RuntimeError("not from a callback of this client: hand the work to another thread")
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        if self.thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join()


def connect(url: str | None = None, token: str | None = None, *, ca: str | os.PathLike[str] | None = None,
            timeout: float | None = None, reconnect_s: float = 60.0, silence_s: float = SILENCE_S,
            on_notice: Callable[[api.Notification], None] | None = None) -> Cluster:
    """A session with a server.

    url: such as "HOST", whose port is 52415, or "https://HOST:52415"; EXOGPU_URL unless said, else this machine's. An
    address with a scheme and no port has the port of the scheme, 443 or 80.
    token: EXOGPU_TOKEN unless said. ca: a PEM file with the cluster's authority (DATA/tls/authority.pem), for https.
    timeout: seconds that a call may take, 90 unless said. reconnect_s: how long a lost connection is tried again; the
    server keeps a session, and its memory, for 10 s. silence_s: when nothing has been heard for so long, not even an
    answer to a ping, the connection is lost. on_notice: is called with notifications, such as session.device_lost, in the
    client's own thread; what it raises is logged.
    Raises exogpu.api.UnauthenticatedError, ConnectionLostError, ssl.SSLError.
    """
    run = Runner()
    try:
        return Cluster(run, run(aio.connect_async(url, token, ca=ca, timeout=timeout, reconnect_s=reconnect_s,
                                                  silence_s=silence_s, on_notice=on_notice)))
    except BaseException:
        run.stop()
        raise


class Caller:
    """What the generated methods call by."""

    def __init__(self, run: Runner, inner: aio.AsyncCluster):
        self.run, self.link = run, inner.link

    def call(self, method: str, params: dict[str, Any], *, body: Buffer | None = None, into: Buffer | None = None,
             timeout: float | None = None) -> tuple[Any, memoryview]:
        return self.run(self.link.call(method, params, body=body, into=into, timeout=timeout))


class Cluster:
    """A session with a server. Use it as a context: leaving it closes the connection, and 10 s later the
    server ends the session and frees its memory.

    api: every method of the server, typed (cluster.api.instance.list()); login: the token's name and scopes.
    """

    def __init__(self, run: Runner, inner: aio.AsyncCluster):
        self._run, self._inner = run, inner
        self.url = inner.url
        self.api = api.Api(Caller(run, inner))

    @property
    def login(self) -> api.Login:
        return self._inner.login

    def devices(self) -> list[Device]:
        """Every device that the cluster has, also those that cannot be used now."""
        return [Device(self, each) for each in self._run(self._inner.devices())]

    def device(self, name: str | None = None) -> Device:
        """The device of that id, or name, or beginning of one; without a name that with the most memory among those
        which can compute, GPUs before processors. Raises LookupError, which names those that there are."""
        return Device(self, self._run(self._inner.device(name)))

    def events(self, *topics: api.Topic) -> EventStream:
        """Events, as `with cluster.events("inventory") as stream: for event in stream`. The first message has the topic
        "snapshot" and holds the whole state; it comes again only where events were missed for good.

        topics: inventory, telemetry, topology, placement, alerts; with the scope admin also audit and log.
        """
        return EventStream(self._run, self._inner.events(*topics))

    def close(self) -> None:
        if self._run.thread.is_alive():
            try:
                self._run(self._inner.close())
            finally:
                self._run.stop()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._inner)

    def _repr_html_(self) -> str:
        return display.devices_table(each.record for each in self.devices())


class EventStream:
    """An iterator of events, and a context that ends the subscription."""

    def __init__(self, run: Runner, inner: aio.EventStream):
        self._run, self._inner = run, inner
        self._events: Events | None = None

    def __enter__(self) -> EventStream:
        self._events = self._run(self._inner.__aenter__())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._run(self._inner.__aexit__(kind, error, trace))

    def __iter__(self) -> Iterator[api.Event | SnapshotMessage]:
        return self

    def __next__(self) -> api.Event | SnapshotMessage:
        if self._events is None:
            raise ValueError("use it as a context: with cluster.events(...) as stream")
        try:
            return self._run(self._next(self._events))
        except StopAsyncIteration:
            raise StopIteration from None

    @staticmethod
    async def _next(events: Events) -> api.Event | SnapshotMessage:
        return await events.__anext__()


class Device:
    """A device of some machine. record: all that the server says of it."""

    def __init__(self, cluster: Cluster, inner: aio.AsyncDevice):
        self.cluster, self._inner = cluster, inner
        self._run = cluster._run

    @property
    def device_id(self) -> str:
        return self._inner.device_id

    @property
    def record(self) -> api.Device:
        return self._inner.record

    def empty(self, shape: int | Sequence[int], dtype: Any = aio.FLOATS, *, label: str | None = None) -> Array:
        """Memory for an array, zeroed by the server. Raises OutOfMemoryError, LimitExceededError (the token's limit)."""
        return Array(self, self._run(self._inner.empty(shape, dtype, label=label)))

    def array(self, values: Any, dtype: Any = None, *, label: str | None = None) -> Array:
        """A copy of NumPy's array, of a buffer, of what DLPack knows, of lists, or of an array of any device. dtype: that
        of the values, and float32 for lists unless said."""
        if isinstance(values, Array):
            dtype = dtype or values.dtype
        return Array(self, self._run(self._inner.array(self._taken(values), dtype, label=label)))

    def _taken(self, values: Any) -> Any:
        """Values as this cluster's thread may use them: an array of another cluster is read."""
        if not isinstance(values, Array):
            return values
        return values._inner if values._run is self._run else values._run(values._inner.values())

    def load(self, source: Any, format: str | None = None) -> Module:
        """A module of kernels: PTX (text, CUDA), SPIR-V (bytes, Vulkan), WGSL (text, browsers), CUDA C
        (text, CUDA where the node has NVRTC, which compiles it there: data["log"] of the error says what is wrong), a path of such a file, or
        "builtin"."""
        return Module(self, self._run(self._inner.load(source, format)))

    def launch(self, kernel: str, *args: Any, timeout_ms: int | None = None) -> float:
        """A built-in kernel (fill_f32, saxpy_f32, matmul_f32, sum_f32): its time on the device in microseconds."""
        return self._run(self._inner.launch(kernel, *args, timeout_ms=timeout_ms))

    def run(self, kernel: UserKernel | RawKernel, values: Sequence[Any], *, grid: Grid | None, block: Grid | None,
            timeout_ms: int | None) -> float:
        return self._run(self._inner.run(kernel, values, grid=grid, block=block, timeout_ms=timeout_ms))

    def __repr__(self) -> str:
        return repr(self._inner)

    def _repr_html_(self) -> str:
        return self._inner._repr_html_()


class Array:
    """Numbers in the memory of a device, in C order. NumPy reads it (numpy.asarray(x)), and x[:] = values writes it.

    A view (x[2:5], x[0]) shares the memory of its array. Arithmetic that the device does: x @ y, x += y, x.sum(),
    x.fill(2), x.add(y, 0.5). Its memory is freed by free(), at the end of a `with`, or when nobody holds it.
    """

    __array_priority__ = 1000  # numpy.ndarray @ Array is not tried element by element

    def __init__(self, device: Device, inner: aio.AsyncArray):
        self.device, self._inner = device, inner
        self._run = device._run

    @property
    def allocation_id(self) -> str:
        return self._inner.allocation_id

    @property
    def offset(self) -> int:
        return self._inner.offset

    @property
    def shape(self) -> tuple[int, ...]:
        return self._inner.shape

    @property
    def dtype(self) -> DType:
        return self._inner.dtype

    @property
    def size(self) -> int:
        return self._inner.size

    @property
    def nbytes(self) -> int:
        return self._inner.nbytes

    @property
    def ndim(self) -> int:
        return self._inner.ndim

    def __len__(self) -> int:
        return len(self._inner)

    def __getitem__(self, key: Any) -> Array:
        """A view of rows: x[3], x[2:5], x[:]."""
        return Array(self.device, self._inner[key])

    def __setitem__(self, key: Any, values: Any) -> None:
        view = self if key is Ellipsis or key == slice(None) else self[key]
        if isinstance(values, Array) and values._inner is view._inner:
            return  # x[:] += y has added already
        if isinstance(values, numbers.Real):
            view.fill(float(values))
        else:
            view.write(values)

    def reshape(self, *shape: int | Sequence[int]) -> Array:
        """The same memory in another shape; one size may be -1."""
        return Array(self.device, self._inner.reshape(*shape))

    def write(self, values: Any) -> None:
        """Values of the same shape, or that NumPy broadcasts to it, converted to this array's type. An array of a device
        passes through this program only where it is converted, or of another cluster."""
        self._run(self._inner.write(self.device._taken(values)))

    def read(self, into: Buffer | None = None) -> memoryview:
        """The bytes; into: memory that receives them, as of a NumPy array of this size."""
        return self._run(self._inner.read(into))

    def numpy(self) -> numpy.ndarray[Any, Any]:
        """A copy as a NumPy array."""
        return self._run(self._inner.numpy())

    def tolist(self) -> Any:
        return self._run(self._inner.tolist())

    def copy(self, device: Device | None = None) -> Array:
        """A copy on this device or another one, also of another machine; its bytes do not pass through this program."""
        return Array(device or self.device, self._run(self._inner.copy(device._inner if device else None)))

    def copy_from(self, other: Array) -> None:
        """The bytes of an array of the same size, on any device of the cluster."""
        self._run(self._inner.copy_from(other._inner))

    def fill(self, value: float) -> None:
        """Every element; done on the device for 0 and, in a whole array of float32, for every finite value."""
        self._run(self._inner.fill(value))

    def sum(self) -> float:
        """The sum of all elements, in float32."""
        return self._run(self._inner.sum())

    def add(self, x: Array, a: float = 1.0) -> None:
        """self += a x, by saxpy_f32."""
        self._run(self._inner.add(x._inner, a))

    def __matmul__(self, other: Array) -> Array:
        """The product of (m, k) and (k, n) in float32, computed on the device."""
        if not isinstance(other, Array):
            return NotImplemented
        return Array(self.device, self._run(self._inner.matmul(other._inner)))

    def __iadd__(self, other: Array) -> Array:
        if not isinstance(other, Array):
            return NotImplemented
        self.add(other)
        return self

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if copy is False:
            raise ValueError("device memory cannot be seen without a copy")
        made = self.numpy()
        return made if dtype is None else made.astype(dtype, copy=False)

    def __dlpack__(self, **options: Any) -> Any:
        """A copy in this machine's memory, for numpy.from_dlpack and torch.from_dlpack."""
        return self.numpy().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # kDLCPU

    def __bytes__(self) -> bytes:
        return bytes(self.read())

    def free(self) -> None:
        """Frees the memory, that of its views too."""
        self._run(self._inner.free())

    def __enter__(self) -> Array:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._run(self._inner.__aexit__(kind, error, trace))

    def __repr__(self) -> str:
        return repr(self._inner)

    def _repr_html_(self) -> str:
        return display.table(("array", "type", "memory", "device"), [(
            "x".join(map(str, self.shape)) or "scalar", self.dtype.name, display.size(self.nbytes), self.device.record["name"])])


class Module:
    """Kernels that are loaded on a device; each is an attribute: module.scale(y, x, 2.0, n, grid=4, block=256)."""

    def __init__(self, device: Device, inner: aio.AsyncModule):
        self.device, self._inner = device, inner
        self._run = device._run

    @property
    def kernels(self) -> list[str]:
        return self._inner.kernels

    def launch(self, kernel: str, *args: Any, grid: Grid | None = None, block: Grid | None = None,
               timeout_ms: int | None = None) -> float:
        """Runs a kernel and waits for it: its time on the device in microseconds. grid counts blocks, block the threads
        of one. Raises exogpu.api.TimeoutError after timeout_ms (60,000 unless said), with which the session loses what
        it has on that back end."""
        return self._run(self._inner.launch(kernel, *args, grid=grid, block=block, timeout_ms=timeout_ms))

    def __getattr__(self, name: str) -> Callable[..., float]:
        if name.startswith("_") or name not in self._inner.kernels:
            raise AttributeError("no kernel %r; this module has %s" % (name, ", ".join(self._inner.kernels)))

        def call(*args: Any, grid: Grid | None = None, block: Grid | None = None, timeout_ms: int | None = None) -> float:
            return self.launch(name, *args, grid=grid, block=block, timeout_ms=timeout_ms)
        return call

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._inner.kernels]

    def free(self) -> None:
        """Unloads it now."""
        self._run(self._inner.free())

    def __enter__(self) -> Module:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._run(self._inner.__aexit__(kind, error, trace))

    def __repr__(self) -> str:
        return repr(self._inner)
