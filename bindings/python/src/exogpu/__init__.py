"""Memory and compute of a cluster's GPUs.

    import exogpu, numpy
    with exogpu.connect("http://127.0.0.1:52415", token) as cluster:
        device = cluster.device()
        x = device.array(numpy.random.rand(512, 512).astype("f4"))
        print(numpy.asarray(x @ x))

exogpu.api has every method, event and error of the server, typed; exogpu.aio the same objects for asyncio.
"""
from . import aio, api
from .aio import AsyncArray, AsyncCluster, AsyncDevice, AsyncModule, connect_async
from .api import DeviceLostError, LimitExceededError, NotFoundError, OutOfMemoryError, UnauthenticatedError
from .dtypes import DType, dtype
from .errors import (ApiError, CallTimeoutError, ConnectionLostError, ExogpuError, ProtocolError, SessionLostError)
from .launch import RawKernel, UserKernel, f32, i32, kernel, u32, u64
from .sync import Array, Cluster, Device, Module, connect

__version__ = "0.1.0"

__all__ = [
    "ApiError", "Array", "AsyncArray", "AsyncCluster", "AsyncDevice", "AsyncModule", "CallTimeoutError", "Cluster",
    "ConnectionLostError", "DType", "Device", "DeviceLostError", "ExogpuError", "LimitExceededError", "Module",
    "NotFoundError", "OutOfMemoryError", "ProtocolError", "RawKernel", "SessionLostError", "UnauthenticatedError",
    "UserKernel", "aio", "api", "connect", "connect_async", "dtype", "f32", "i32", "kernel", "u32", "u64",
]
