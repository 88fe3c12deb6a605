"""WebSocket frames (RFC 6455) without a socket: what is written, and a reader of what arrives.

The reader hands out memory to receive into (`room`) and is told how much of it was filled (`filled`). A large frame is
received directly where it belongs: `place` names that memory once the first bytes of a binary message are known, so a
body of 16 MiB is not copied on its way into an array.

     0               1               2               3
    |F|RSV| opcode  |M| length 7    | 16 or 64 bits more of length, if 126 or 127 | mask, if M | payload
"""
from __future__ import annotations

import os
import struct
from collections.abc import Callable

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
ROOM = 64 << 10
# A message of the server has a head of at most 1 MiB and a body of at most 16 MiB; a snapshot of a large cluster is longer.
LONGEST = 64 << 20


class FrameError(Exception):
    """These bytes are no frames that a server may send."""


def header(opcode: int, length: int, key: bytes) -> bytes:
    """The head of a whole, masked frame."""
    if length < 126:
        head = struct.pack("!BB", 0x80 | opcode, 0x80 | length)
    elif length < 1 << 16:
        head = struct.pack("!BBH", 0x80 | opcode, 0xFE, length)
    else:
        head = struct.pack("!BBQ", 0x80 | opcode, 0xFF, length)
    return head + key


def mask(key: bytes, data: bytes | memoryview) -> bytes:
    """`data` xor the repeated key, as one large number, which is fast."""
    if key == bytes(4) or not len(data):
        return bytes(data)
    size = len(data)
    pattern = int.from_bytes((key * (size // 4 + 1))[:size], "little")
    return (int.from_bytes(data, "little") ^ pattern).to_bytes(size, "little")


def pack(opcode: int, parts: list[bytes | memoryview], open_way: bool) -> list[bytes | memoryview]:
    """A frame as pieces to send. A mask keeps bytes of a page's choice from being read as HTTP by what stands between;
    by TLS and on loopback nothing does, and then (open_way false) the mask is zero, which saves a copy of the body."""
    length = sum(len(part) for part in parts)
    if not open_way:
        return [header(opcode, length, bytes(4)), *parts]
    key = os.urandom(4)
    return [header(opcode, length, key), mask(key, b"".join(parts))]


class Reader:
    """Frames from bytes. Owned by one connection, and used by its loop's thread.

    message(opcode, payload): a whole message but for a body; place(first, length): where `length` bytes of payload, of
    which `first` are the first, are to be received, as (skip, memory), or None; placed(): that memory is full.
    """

    def __init__(self, message: Callable[[int, bytearray], None],
                 place: Callable[[memoryview, int], tuple[int, memoryview] | None], placed: Callable[[], None]):
        self.message, self.place, self.placed = message, place, placed
        self.store = bytearray(ROOM)
        self.view = memoryview(self.store)
        self.start = self.end = 0
        self.target: memoryview | None = None  # a frame that is too long for the store, or goes elsewhere
        self.done: Callable[[], None] = placed
        self.at = 0
        self.parts: bytearray | None = None    # a message in several frames
        self.opcode = 0

    def room(self) -> memoryview:
        return self.view[self.end:] if self.target is None else self.target[self.at:]

    def filled(self, count: int) -> None:
        if self.target is not None:
            self.at += count
            self._target_done()
            return
        self.end += count
        while self.target is None and self._frame():
            pass
        if self.start:
            self.store[:self.end - self.start] = self.store[self.start:self.end]
            self.start, self.end = 0, self.end - self.start

    def divert(self, memory: memoryview) -> None:
        """What is still to come of the present target goes to `memory` instead, of the same length."""
        self.target = memory

    def _target_done(self) -> None:
        if self.target is not None and self.at == len(self.target):
            self.target = None
            self.done()

    def _frame(self) -> bool:
        """Takes one frame, or the beginning of a long one, from the store; false: more must arrive first."""
        have = self.end - self.start
        if have < 2:
            return False
        first, second = self.store[self.start], self.store[self.start + 1]
        opcode, length, size = first & 15, second & 127, 2
        if first & 0x70 or second & 0x80:
            raise FrameError("a frame with reserved bits, or masked")
        if length > 125:
            form, size = ("!H", 4) if length == 126 else ("!Q", 10)
            if have < size:
                return False
            (length,) = struct.unpack_from(form, self.store, self.start + 2)
        if length > (125 if opcode >= CLOSE else LONGEST - len(self.parts or b"")):
            raise FrameError("a frame of %d bytes" % length)
        whole = size + length <= have
        if opcode == BINARY and first & 0x80 and self.parts is None and not (whole and length < 4):
            begun = self._binary(size, length, have)
            if begun is not None:
                return begun
        if whole:
            payload = self.store[self.start + size:self.start + size + length]
            self.start += size + length
            self._payload(first, payload)
            return True
        if size + length <= ROOM and opcode < CLOSE or opcode >= CLOSE:
            return False
        payload = bytearray(length)
        self._receive(payload, memoryview(payload), size, lambda: self._payload(first, payload))
        return True

    def _binary(self, size: int, length: int, have: int) -> bool | None:
        """A binary message whose memory `place` knows; None: it is to be taken as a whole; false: too little is known."""
        begin = self.start + size
        if have < size + 4:
            return False
        head = 4 + struct.unpack_from("<I", self.store, begin)[0]
        if head > length:
            raise FrameError("a head of %d bytes in a message of %d" % (head - 4, length))
        if size + head > ROOM:
            return None
        if have < size + head:
            return False
        placed = self.place(self.view[begin:begin + head], length)
        if placed is None:
            return None
        skip, memory = placed
        self._receive(None, memory, size + skip, self.placed)
        return True

    def _receive(self, keep: bytearray | None, memory: memoryview, size: int, done: Callable[[], None]) -> None:
        """Go on in `memory`, into which goes what the store has behind `size` bytes."""
        here = min(self.end - self.start - size, len(memory))
        memory[:here] = self.view[self.start + size:self.start + size + here]
        self.start += size + here
        self.target, self.at, self.done = memory, here, done
        self._target_done()

    def _payload(self, first: int, payload: bytearray) -> None:
        opcode, last = first & 15, first & 0x80
        if opcode >= CLOSE:
            if not last:
                raise FrameError("a control frame in pieces")
            self.message(opcode, payload)
            return
        if (opcode == 0) != (self.parts is not None):
            raise FrameError("a piece of no message, or another message before its end")
        if self.parts is None:
            self.opcode, self.parts = opcode, bytearray()
        self.parts += payload
        if last:
            whole, self.parts = self.parts, None
            self.message(self.opcode, whole)
