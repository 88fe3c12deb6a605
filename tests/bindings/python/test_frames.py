"""What needs no server: frames in any pieces, values for kernels, numbers of the host."""
import array
import ctypes
import fractions
import math
import random
import struct
import unittest
from unittest import mock

from exogpu import connection, frames, host, launch
from exogpu.dtypes import dtype

numpy = host.numpy_module()
with_numpy = unittest.skipIf(numpy is None, "NumPy is not installed")


def frame(opcode, payload, last=True):
    head = frames.header(opcode, len(payload), b"")
    return bytes([head[0] & 0x7F | (0x80 if last else 0), head[1] & 0x7F]) + head[2:] + payload


def binary(text, body):
    return len(text).to_bytes(4, "little") + text + body


class Listener:
    """Takes messages; the body of a binary one whose head begins with "p" is placed."""

    def __init__(self):
        self.heard = []
        self.reader = frames.Reader(lambda opcode, payload: self.heard.append((opcode, bytes(payload))), self.place, self.placed)

    def place(self, first, length):
        if first[4:5] != b"p":
            return None
        self.memory = bytearray(length - len(first))
        self.head = bytes(first)
        return len(first), memoryview(self.memory)

    def placed(self):
        self.heard.append((frames.BINARY, self.head + bytes(self.memory)))

    def take(self, data, size):
        while data:
            room = self.reader.room()
            count = min(len(room), len(data), size())
            room[:count] = data[:count]
            self.reader.filled(count)
            data = data[count:]


class Frames(unittest.TestCase):
    def test_messages_arrive_whole_however_they_are_cut(self):
        for seed in range(25):
            chance = random.Random(seed)
            wanted, sent = [], b""
            for _ in range(12):
                size = chance.choice((0, 1, 125, 126, 300, 65535, 65536, 70000, 200000))
                body = chance.randbytes(size)
                opcode, payload = chance.choice((
                    (frames.TEXT, body), (frames.BINARY, binary(b"p" * chance.choice((1, 90)), body)),
                    (frames.BINARY, binary(b"p" * 70000, body)), (frames.BINARY, binary(b"other", body)),
                    (frames.PING, body[:100])))
                wanted.append((opcode, payload))
                if opcode == frames.TEXT and len(payload) > 2 and chance.random() < 0.4: # in pieces, with a ping between
                    at = chance.randrange(len(payload))
                    wanted.insert(-1, (frames.PING, b"now"))
                    sent += frame(opcode, payload[:at], False) + frame(frames.PING, b"now") + frame(0, payload[at:])
                else:
                    sent += frame(opcode, payload)
            most = chance.choice((300, 4096, 65536, 1 << 20))
            listener = Listener()
            listener.take(memoryview(sent), lambda: chance.randrange(1, most + 1))
            self.assertEqual(listener.heard, wanted, "seed %d" % seed)

    def test_byte_by_byte(self):
        payloads = [(frames.TEXT, b"a" * 130), (frames.BINARY, binary(b"p" * 9, b"b" * 200)), (frames.BINARY, binary(b"o", b"")),
                    (frames.BINARY, binary(b"p", b"")), (frames.PING, b""), (frames.CLOSE, b"\x03\xe8bye")]
        listener = Listener()
        listener.take(memoryview(b"".join(frame(*one) for one in payloads)), lambda: 1)
        self.assertEqual(listener.heard, payloads)

    def test_what_no_server_may_send_is_refused(self):
        for wrong in (b"\xc1\x00", b"\x81\x80aaaa", b"\x89\x7e\x00\x80", b"\x82\x7f" + b"\x7f" * 8, b"\x80\x00",
                      b"\x01\x00\x81\x00", b"\x09\x00", frame(frames.BINARY, b"\xff\xff\xff\x7f" + bytes(9))):
            with self.subTest(wrong), self.assertRaises(frames.FrameError):
                Listener().take(memoryview(wrong), lambda: len(wrong))

    def test_garbage_ends_in_an_error_or_in_messages(self):
        for seed in range(500):
            data = memoryview(random.Random(seed).randbytes(64))
            try:
                Listener().take(data, lambda: 64)
            except frames.FrameError:
                pass

    def test_a_mask_is_what_the_standard_says(self):
        self.assertEqual(frames.mask(bytes.fromhex("37fa213d"), b"Hello"), bytes.fromhex("7f9f4d5158")) # RFC 6455, 5.7
        head, payload = frames.pack(frames.TEXT, [b"Hel", memoryview(b"lo")], True)
        self.assertEqual(head[:2], b"\x81\x85")
        self.assertEqual(frames.mask(head[2:], payload), b"Hello")
        self.assertEqual(b"".join(frames.pack(frames.TEXT, [b"Hello"], False)), b"\x81\x85\0\0\0\0Hello")


class Values(unittest.TestCase):
    def test_arguments_take_the_form_that_the_signature_says(self):
        def given(value, kind):
            return launch.argument(value, {"name": "it", "kind": kind})
        for value, kind, wanted in ((2, "f32", {"f32": 2.0}), (-3, "i32", {"i32": -3}), (3.0, "u32", {"u32": 3}),
                                    (1 << 60, "u64", {"u64": str(1 << 60)}), (5, "count", {"u32": 5}), (1 << 40, "count", {"u64": 1 << 40}),
                                    (1.5, "word", {"f32": 1.5}), (-1, "word", {"i32": -1}), (1, "word", {"u32": 1}),
                                    (launch.f32(1), "word", {"f32": 1.0}), (7, "dword", {"u64": 7})):
            self.assertEqual(given(value, kind), wanted, (value, kind))
        for value, kind in ((1.5, "u32"), (1, "allocation")):
            self.assertRaises(TypeError, given, value, kind)
        for value, kind, wanted in ((True, "word", {"u32": 1}), (False, "f32", {"f32": 0.0}), (fractions.Fraction(1, 2), "word", {"f32": 0.5})):
            self.assertEqual(given(value, kind), wanted, (value, kind))
        for value, kind in (("2", "f32"), ("2", "word"), (2j, "word"), (math.inf, "f32"), (math.nan, "u32"), ([1], "f32")):
            self.assertRaises(TypeError, given, value, kind)
        self.assertEqual(launch.three((4, 2)), [4, 2, 1])
        self.assertRaises(ValueError, launch.three, 0)

    @with_numpy
    def test_numbers_of_numpy_are_what_they_are(self):
        for value, wanted in ((numpy.int64(3), {"u32": 3}), (numpy.int64(-3), {"i32": -3}), (numpy.int8(-1), {"i32": -1}),
                              (numpy.uint16(9), {"u32": 9}), (numpy.int32(5), {"i32": 5}), (numpy.uint64(5), {"u64": 5}),
                              (numpy.bool_(True), {"u32": 1}), (numpy.float16(0.5), {"f32": 0.5}), (numpy.float64(2), {"f32": 2.0}),
                              (numpy.array(7), {"u32": 7})):
            with self.subTest(repr(value)):
                self.assertEqual(launch.argument(value, {"name": "it", "kind": "word"}), wanted)
        self.assertEqual(launch.argument(numpy.int64(4), {"name": "it", "kind": "dword"}), {"u64": 4})
        self.assertRaises(TypeError, launch.argument, numpy.array([1, 2]), {"name": "it", "kind": "word"})
        self.assertEqual(launch.three(numpy.int64(4)), [4, 1, 1])

    def test_buffers_say_their_type_and_order(self):
        for values, kind in ((ctypes.c_float * 2, "float32"), (ctypes.c_double * 2, "float64"), (ctypes.c_int32 * 2, "int32"),
                             (ctypes.c_uint16 * 2, "uint16"), (ctypes.c_int64 * 2, "int64"), (ctypes.c_bool * 2, "bool")):
            made = values(1, 0)
            with self.subTest(kind):
                self.assertEqual(host.look(made)[1:], ((2,), kind))
                self.assertEqual(host.pack(made, (2,), dtype(kind)).tobytes(), bytes(made))
                self.assertEqual(host.pack(made, (2,), dtype("f4")).tobytes(), struct.pack("<2f", 1, 0))
        swapped = ctypes.c_float.__ctype_be__ * 2
        self.assertRaisesRegex(TypeError, "other order", host.look, swapped(1, 2))
        self.assertRaisesRegex(TypeError, "none of these", host.look, (ctypes.c_void_p * 1)())
        grid = (ctypes.c_float * 2 * 2)((1, 2), (3, 4))
        self.assertEqual(host.pack(grid, (2, 2), dtype("f8")).tobytes(), struct.pack("<4d", 1, 2, 3, 4))

    @with_numpy
    def test_numpys_arrays_in_the_other_order_are_turned(self):
        values = numpy.array([1, 2], ">f4")
        self.assertEqual(host.look(values)[1:], ((2,), "float32"))
        self.assertEqual(host.pack(values, (2,), dtype("f4")).tobytes(), struct.pack("<2f", 1, 2))

    def test_without_numpy_values_are_converted_too(self):
        with mock.patch.object(host, "numpy_module", lambda: None):
            self.test_buffers_say_their_type_and_order()
            self.test_values_of_the_host_become_bytes()
            self.assertRaises(TypeError, host.pack, [1, "x"], (2,), dtype("f4"))
            self.assertRaises(TypeError, host.pack, 300, (), dtype("u1"))
            self.assertEqual(host.pack(math.inf, (2,), dtype("f2")).tobytes(), struct.pack("<2e", math.inf, math.inf))

    def test_an_address_has_the_port_of_its_scheme_and_without_one_the_servers(self):
        for url, port in (("host", 52415), ("host:80", 80), ("[::1]", 52415), ("http://host", 80), ("ws://host", 80),
                          ("https://host", 443), ("wss://[::1]", 443), ("https://host:52415", 52415)):
            self.assertEqual(connection.address(url).port, port, url)

    def test_values_of_the_host_become_bytes(self):
        f4 = dtype("f4")
        self.assertEqual(host.pack([[1, 2], [3, 4]], (2, 2), f4).tobytes(), struct.pack("<4f", 1, 2, 3, 4))
        self.assertEqual(host.pack(2, (3,), f4).tobytes(), struct.pack("<3f", 2, 2, 2))
        numbers = array.array("f", [1, 2])
        self.assertIs(host.pack(numbers, (2,), f4).obj, numbers, "what lies as it should is not copied")
        self.assertRaises(ValueError, host.pack, [1, 2, 3], (2,), f4)
        self.assertRaises(TypeError, dtype, "complex64")
        self.assertRaises(ValueError, host.shape_of, (0, 2))


if __name__ == "__main__":
    unittest.main()
