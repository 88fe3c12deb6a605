#!/usr/bin/env python3
"""How long things take that end in time: a session's first allocation on each device (it starts a worker), an empty
launch, and after a revocation until it is answered, a connection is closed, the worker's process is gone, its memory is
free, and another token has read zeros from as much memory.

  tests/bench/revoke.py BINARY [--bytes N] [--rounds N] [--pause SECONDS] [--device TEXT] [--backends LIST]

Starts a server of its own, with --backends a node that uses only these. Nothing but Python's standard library, so that
it runs on a machine that has only a GPU. One WebSocket client, written from schema/api.json; it keeps no more than the
bench needs."""
import argparse
import base64
import concurrent.futures
import ctypes
import json
import os
import socket
import statistics
import struct
import subprocess
import tempfile
import time


class Refused(Exception):
    pass


class Client:
    """One connection, logged in. Calls are answered one after the other."""

    def __init__(self, port, token):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer, self.id, self.notices = b"", 0, []
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall((f"GET /ws HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\n"
                             f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
                             f"Sec-WebSocket-Protocol: exogpu.v1\r\nAuthorization: Bearer {token}\r\n\r\n").encode())
        while b"\r\n\r\n" not in self.buffer:
            self.more()
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        if b" 101 " not in head.split(b"\r\n")[0]:
            raise Refused(head.decode())

    def more(self):
        got = self.socket.recv(1 << 20)
        if not got:
            raise ConnectionError("closed")
        self.buffer += got

    def take(self, length):
        while len(self.buffer) < length:
            self.more()
        taken, self.buffer = self.buffer[:length], self.buffer[length:]
        return taken

    def send(self, payload, opcode):
        length, mask = len(payload), os.urandom(4)
        size = (bytes([0x80 | length]) if length < 126 else b"\xfe" + struct.pack(">H", length) if length < 65536
                else b"\xff" + struct.pack(">Q", length))
        keys = int.from_bytes((mask * (length // 4 + 1))[:length], "big")
        masked = (int.from_bytes(payload, "big") ^ keys).to_bytes(length, "big")
        self.socket.sendall(bytes([0x80 | opcode]) + size + mask + masked)

    def receive(self):
        """A whole message: (opcode, payload)."""
        first, message = None, b""
        while True:
            head = self.take(2)
            opcode, length = head[0] & 15, head[1] & 127
            if length == 126:
                length = struct.unpack(">H", self.take(2))[0]
            elif length == 127:
                length = struct.unpack(">Q", self.take(8))[0]
            payload = self.take(length)
            if opcode == 8:
                raise ConnectionError(struct.unpack(">H", payload[:2])[0] if payload else 1005)
            if opcode == 9:
                self.send(payload, 10)
            elif opcode < 3:
                first = opcode or first
                message += payload
                if head[0] & 0x80:
                    return first, message

    def closed(self):
        """When the server has closed the connection, as it does when its token is revoked."""
        try:
            while True:
                self.receive()
        except ConnectionError as end:
            if end.args[0] != 4410:
                raise
        return time.monotonic()

    def post(self, method, params, body=None):
        self.id += 1
        head = json.dumps({"jsonrpc": "2.0", "id": self.id, "method": method, "params": params}).encode()
        if body is None:
            self.send(head, 1)
        else:
            self.send(struct.pack("<I", len(head)) + head + body, 2)
        return self.id

    def call(self, method, params=None, body=None):
        """The result, or for an answer with a body the body."""
        wanted = self.post(method, params or {}, body)
        while True:
            opcode, message = self.receive()
            length = struct.unpack_from("<I", message)[0] if opcode == 2 else 0
            head = json.loads(message[4:4 + length] if opcode == 2 else message)
            if head.get("id") != wanted:
                self.notices.append(head)
            elif "error" in head:
                raise Refused(f"{method}: {head['error']}")
            else:
                return message[4 + length:] if opcode == 2 else head["result"]


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(word) for word in file.read().split()]


def workers(nodes):
    """The processes of sessions: workers of these nodes."""
    found = []
    for node in nodes:
        for pid in children(node):
            try:
                with open(f"/proc/{pid}/comm", encoding="ascii") as file:
                    if file.read().strip() == "exogpu-worker":
                        found.append(pid)
            except OSError:
                pass
    return found


class Nvml:
    """Memory in use of the first GPU, as the driver says; None without one."""

    def __init__(self):
        self.library = None
        try:
            library = ctypes.CDLL("libnvidia-ml.so.1")
            if not library.nvmlInit_v2():
                self.library, self.device = library, ctypes.c_void_p()
                library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.device))
        except OSError:
            pass

    def used(self):
        class Memory(ctypes.Structure):
            _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]
        if not self.library:
            return None
        memory = Memory()
        self.library.nvmlDeviceGetMemoryInfo(self.device, ctypes.byref(memory))
        return memory.used


def until(condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(condition)
        time.sleep(0.0005)
    return time.monotonic()


class Bench:
    def __init__(self, arguments):
        self.arguments, self.nvml = arguments, Nvml()
        self.data = tempfile.mkdtemp(prefix="exogpu-bench-")
        serve = [arguments.binary, "serve", "--data", self.data, "--listen", "127.0.0.1:0"]
        self.server = subprocess.Popen(serve + (["--no-local-node"] if arguments.backends else []),
                                       stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.port = int(self.server.stdout.readline().split(":")[3].split("/")[0])
        with open(self.server.stdout.readline().split(": ", 1)[1].strip(), encoding="ascii") as file:
            self.admin = Client(self.port, file.read().strip())
        self.node = None
        if arguments.backends:
            self.node = subprocess.Popen([arguments.binary, "node", "--join", f"unix:{self.data}/exogpu.sock",
                                          "--data", f"{self.data}/node", "--backends", arguments.backends],
                                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def finish(self):
        for process in (self.node, self.server):
            if process:
                process.terminate()
                process.wait()

    def workers(self):
        return workers([self.node.pid] if self.node else children(self.server.pid))

    def devices(self):
        def settled():
            devices = self.admin.call("cluster.snapshot")["devices"]
            return devices and all(one["verification"]["state"] != "pending" for one in devices)
        until(settled)
        time.sleep(3)  # bandwidths are measured after that, which would be in the way
        return [one for one in self.admin.call("cluster.snapshot")["devices"]
                if one["state"] in ("idle", "computing") and self.arguments.device in one["device_id"] + one["name"]]

    def token(self):
        return self.admin.call("token.create", {"name": "bench", "scopes": ["observe", "allocate", "compute"]})

    def first_allocation_ms(self, device):
        time.sleep(self.arguments.pause)
        tenant = Client(self.port, self.token()["token"])
        tenant.call("server.info")
        began = time.monotonic()
        tenant.call("memory.allocate", {"device_id": device["device_id"], "bytes": 1 << 20})
        return 1000 * (time.monotonic() - began)

    def launches_us(self, device, count=300):
        tenant = Client(self.port, self.token()["token"])
        held = tenant.call("memory.allocate", {"device_id": device["device_id"], "bytes": 4096})["allocation_id"]
        module = tenant.call("compute.load", {"device_id": device["device_id"], "format": "builtin"})["module_id"]
        launch = {"module_id": module, "kernel": "fill_f32",
                  "args": [{"allocation_id": held}, {"f32": 1}, {"u64": 1}]}
        times = []
        for _ in range(count):
            began = time.monotonic()
            tenant.call("compute.launch", launch)
            times.append(1e6 * (time.monotonic() - began))
        return statistics.median(times)

    def revoke_ms(self, device):
        """(answered, connection closed, worker dead, memory free, zeros read by another), from the call on. The answer
        comes once the revocation and its entry of the audit log are on disk, signed."""
        size, made = self.arguments.bytes, self.token()
        before, known = self.nvml.used(), set(self.workers())
        tenant, other = Client(self.port, made["token"]), Client(self.port, self.token()["token"])
        held = tenant.call("memory.allocate", {"device_id": device["device_id"], "bytes": size})["allocation_id"]
        tenant.call("memory.fill", {"allocation_id": held, "offset": 0, "bytes": size, "value": 0xA5})
        mine = [pid for pid in self.workers() if pid not in known]
        full = self.nvml.used() if device["vendor"] == "NVIDIA" else None
        for offset in range(0, 64 << 20, 1 << 20):  # bulk on its way
            tenant.post("memory.read", {"allocation_id": held, "offset": offset % (size - (1 << 20) + 1),
                                        "bytes": 1 << 20})
        idle = Client(self.port, made["token"])
        closing = concurrent.futures.ThreadPoolExecutor().submit(idle.closed)
        began = time.monotonic()
        self.admin.call("token.revoke", {"token_id": made["token_id"]})
        ended = time.monotonic()
        closed = closing.result()
        told = self.admin.call("audit.list", {"action": "token.revoke", "limit": 1})["entries"][0]
        if (told["target"], told["outcome"]) != (made["token_id"], "ok"):
            raise AssertionError(f"the audit log says {told}")
        dead = until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in mine))
        free = until(lambda: self.nvml.used() < (before + full) / 2) if full else dead
        again = other.call("memory.allocate", {"device_id": device["device_id"], "bytes": size})["allocation_id"]
        for offset in (0, size // 2, size - (1 << 20)):
            body = other.call("memory.read", {"allocation_id": again, "offset": offset, "bytes": 1 << 20})
            if body.count(0) != len(body):
                raise AssertionError("another token read what was there before")
        zeros = time.monotonic()
        tenant.closed()
        other.call("memory.free", {"allocation_id": again})
        return [1000 * (at - began) for at in (ended, closed, dead, free, zeros)]

    def run(self):
        rounds = self.arguments.rounds
        print("| device | first allocation of a session, ms | empty launch, µs | revoke: answered, ms "
              "| connection closed, ms | worker dead, ms | memory free, ms | zeros read by another, ms |\n|---|---|---|---|---|---|---|---|")
        for device in self.devices():
            starts = statistics.median(self.first_allocation_ms(device) for _ in range(rounds))
            launch = self.launches_us(device)
            revokes = [statistics.median(column) for column in zip(*(self.revoke_ms(device) for _ in range(rounds)))]
            print(f"| {device['name']}, {device['backend']} | {starts:.0f} | {launch:.0f} | "
                  + " | ".join(f"{one:.1f}" for one in revokes) + " |", flush=True)
        print(f"\n{self.arguments.bytes >> 20} MiB held and filled, 64 MiB of reads under way at the revocation; "
              f"medians of {rounds}.")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--bytes", type=int, default=256 << 20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pause", type=float, default=0, help="seconds before each session: a spare worker may come")
    parser.add_argument("--device", default="", help="only devices whose id or name has this")
    parser.add_argument("--backends", help="only these, separated by commas")
    bench = Bench(parser.parse_args())
    try:
        bench.run()
    finally:
        bench.finish()


if __name__ == "__main__":
    main()
