"""The installed package against a real server with this machine's own devices: EXOGPU_URL and EXOGPU_TOKEN, of an admin.

Where NumPy is not installed its tests say so and are skipped; the others do without.
"""
import array
import asyncio
import gc
import math
import os
import pathlib
import random
import threading
import unittest
from unittest import mock

import exogpu
from exogpu import api, host, link as link_module
from way import SLOW, Proxy, eventually

numpy = host.numpy_module()
with_numpy = unittest.skipIf(numpy is None, "NumPy is not installed")


def matrix(rows, columns, seed):
    generator = random.Random(seed)
    return [[generator.randrange(-8, 9) / 4 for _ in range(columns)] for _ in range(rows)]


FOREVER = (60000, 60000) # blocks: a software device bounds the rounds of a loop, not these


class OnServer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = exogpu.connect()
        cls.addClassCleanup(cls.cluster.close)
        cls.devices = [one for one in cls.cluster.devices() if one.record["state"] in ("idle", "computing", "throttled")]
        cls.device = next(one for one in cls.devices if one.record["backend"] == "cpu")

    def each_device(self):
        for device in self.devices:
            with self.subTest(device=device.record["name"]):
                yield device


class Arrays(OnServer):
    def test_it_is_the_version_of_the_server(self):
        self.assertEqual(exogpu.__version__, self.cluster.api.server.info()["version"])

    def test_bytes_come_back_as_they_went_in_pieces_too(self):
        for device in self.each_device():
            data = random.Random(1).randbytes(3 * (1 << 20) + 20)
            with device.array(data) as x:
                self.assertEqual((x.shape, x.dtype.name), ((len(data),), "uint8"))
                self.assertEqual(bytes(x), data)
                into = bytearray(len(data))
                self.assertIs(x.read(into).obj, into)
                self.assertEqual(into, data)
                with self.assertRaisesRegex(ValueError, "writable memory of"):
                    x.read(bytearray(4))

    def test_new_memory_is_zero_and_every_type_keeps_its_values(self):
        for name, values in (("float32", [1.5, -2]), ("float64", [0.1, 1e300]), ("float16", [0.5, 3]), ("int8", [-128, 127]),
                             ("uint8", [0, 255]), ("int16", [-5, 5]), ("int32", [-(1 << 31), 7]), ("uint32", [0, (1 << 32) - 1]),
                             ("int64", [-(1 << 63), 1]), ("uint64", [0, (1 << 64) - 1]), ("bool", [True, False])):
            with self.subTest(name), self.device.empty(2, name) as x:
                self.assertEqual(x.tolist(), [0, 0])
                x[:] = values
                self.assertEqual(x.tolist(), values)

    def test_views_share_memory(self):
        with self.device.array(matrix(4, 3, 2)) as x:
            self.assertEqual(x[1].shape, (3,))
            x[1] = [7, 8, 9]
            x[2:4] = [[1, 1, 1], [2, 2, 2]]
            self.assertEqual(x[-3:].tolist(), [[7, 8, 9], [1, 1, 1], [2, 2, 2]])
            self.assertEqual(x[:, :].reshape(2, -1).shape, (2, 6))
            x[3, ...] = 0
            self.assertEqual(x[3].tolist(), [0, 0, 0])
            x[0][:] = x[1]
            self.assertEqual(x[0].tolist(), [7, 8, 9])
            for wrong in (lambda: x[4], lambda: x[::2], lambda: x[:, 1], lambda: x[2:2]):
                self.assertRaises(IndexError, wrong)
            with self.assertRaises(ValueError):
                x[0] = [1, 2]

    def test_built_in_kernels_compute_what_they_should(self):
        for device in self.each_device():
            a, b = matrix(5, 7, 3), matrix(7, 4, 4)
            with device.array(a) as x, device.array(b) as y, x @ y as z:
                self.assertEqual(z.tolist(), [[sum(a[i][k] * b[k][j] for k in range(7)) for j in range(4)] for i in range(5)])
                self.assertEqual(x.sum(), math.fsum(map(math.fsum, a)))
                z.fill(2.5)
                z += z
                self.assertEqual(z.tolist(), [[5.0] * 4] * 5)
                with self.assertRaisesRegex(ValueError, "is not defined"):
                    x @ x

    def test_a_copy_goes_to_another_device(self):
        values = matrix(64, 64, 5)
        with self.device.array(values) as x:
            for other in self.each_device():
                with x.copy(other) as y:
                    self.assertEqual(y.device.device_id, other.device_id)
                    self.assertEqual(y.tolist(), values)

    def test_an_array_of_a_device_is_taken_as_values(self):
        values = matrix(3, 4, 9)
        for device in self.each_device():
            with self.device.array(values) as x, device.array(x) as y, device.array(x[1:], "float64") as z:
                self.assertEqual((y.device.device_id, y.dtype.name, y.tolist()), (device.device_id, "float32", values))
                self.assertEqual((z.dtype.name, z.tolist()), ("float64", values[1:]))
                y[:2] = z # converted
                self.assertEqual(y.tolist(), [*values[1:], values[2]])
        with exogpu.connect() as other, self.device.array(values) as x:
            self.assertEqual(other.device(self.device.device_id).array(x).tolist(), values)

    def test_every_value_fills(self):
        for device in self.each_device():
            for name, value in (("float32", math.inf), ("float32", -0.0), ("float64", -math.inf), ("float16", math.inf), ("int32", 7)):
                with self.subTest(name, value=value), device.empty(3, name) as x:
                    x.fill(value)
                    self.assertEqual(list(map(repr, x.tolist())), [repr(value)] * 3)
            with device.empty(2) as x, device.empty(2, "int32") as whole:
                x[:] = math.nan
                self.assertTrue(all(map(math.isnan, x.tolist())))
                self.assertRaisesRegex(ValueError, "int32 has no inf", whole.fill, math.inf)

    def test_what_went_wrong_is_told_and_not_that_freeing_failed(self):
        with self.assertRaises(ZeroDivisionError), self.device.array([1.0]) as x:
            self.cluster.api.memory.free(x.allocation_id)
            raise ZeroDivisionError
        with self.assertRaises(ZeroDivisionError), self.device.load("builtin") as module:
            self.cluster.api.compute.unload(module._inner.module_id)
            raise ZeroDivisionError
        with self.assertRaises(exogpu.NotFoundError), self.device.array([1.0]) as x:
            self.cluster.api.memory.free(x.allocation_id)

    def test_what_nobody_holds_is_freed(self):
        held = lambda: {one["allocation_id"] for one in self.cluster.api.memory.list()["allocations"]}
        x = self.device.empty(1000)
        row, mine = x[3:5], x.allocation_id
        del x
        gc.collect()
        self.assertIn(mine, held())
        del row
        gc.collect()
        eventually(lambda: mine not in held(), "the array is freed")
        y = self.device.empty(10)
        y.free()
        y.free()
        self.assertRaisesRegex(ValueError, "freed", y.tolist)

    @with_numpy
    def test_numpy_goes_in_and_out(self):
        values = numpy.random.default_rng(6).standard_normal((33, 17)).astype("f4")
        with self.device.array(values) as x:
            self.assertTrue(numpy.array_equal(numpy.asarray(x), values))
            self.assertTrue(numpy.array_equal(numpy.from_dlpack(x), values))
            x[:] = values.T.copy().T  # not contiguous
            self.assertTrue(numpy.array_equal(x.numpy(), values))
            x[:] = numpy.arange(17)   # other type, broadcast
            self.assertTrue(numpy.array_equal(x, numpy.broadcast_to(numpy.arange(17), (33, 17))))
            x.read(values)
            self.assertEqual(values[5, 3], 3)
            self.assertRaises(ValueError, numpy.asarray, x, copy=False)
        with self.device.array(numpy.float64(2.5)) as scalar:
            self.assertEqual((scalar.shape, float(numpy.asarray(scalar))), ((), 2.5))

    @with_numpy
    def test_products_agree_with_numpy(self):
        generator = numpy.random.default_rng(7)
        for device in self.each_device():
            a, b = generator.standard_normal((100, 130), "f4"), generator.standard_normal((130, 90), "f4")
            numpy.testing.assert_allclose(device.array(a) @ device.array(b), a.astype("f8") @ b, rtol=1e-4, atol=1e-4)

    def test_how_it_looks(self):
        with self.device.empty((3, 4)) as x:
            self.assertRegex(repr(x), r"^<exogpu array 3x4 float32, 48 B on .+>$")
            self.assertIn("<td>3x4</td>", x._repr_html_())
        self.assertIn(self.device.device_id, self.cluster._repr_html_())
        self.assertIn(self.device.device_id, repr(self.device))


class Kernels(OnServer):
    def test_a_module_has_its_kernels(self):
        with self.device.load("builtin") as module, self.device.array([1.0, 2.0]) as x, self.device.empty(2) as y:
            self.assertIn("saxpy_f32", dir(module))
            self.assertGreaterEqual(module.saxpy_f32(y, x, 3, 2), 0)
            self.assertEqual(y.tolist(), [3, 6])
            self.assertRaisesRegex(TypeError, "takes 4 arguments", module.saxpy_f32, y, x)
            self.assertRaisesRegex(TypeError, "is an array", module.saxpy_f32, y, 1, 3, 2)
            self.assertRaisesRegex(ValueError, "takes? whole", module.saxpy_f32, y[1:], x, 3, 1)
            self.assertRaises(AttributeError, lambda: module.nothing)

    def test_a_kept_module_that_is_gone_is_loaded_anew_once(self):
        device = self.cluster.device(self.device.device_id)
        with device.array([1.0, 2.0]) as x:
            self.assertEqual(x.sum(), 3)
            kept, = device._inner.loaded.values()
            self.cluster.api.compute.unload(kept.module_id)
            self.assertEqual(x.sum(), 3)
            self.assertNotEqual([one.module_id for one in device._inner.loaded.values()], [kept.module_id])

    def vulkan(self):
        found = next((one for one in self.devices if one.record["backend"] == "vulkan"), None)
        if found is None:
            self.skipTest("no Vulkan device")
        return found

    def test_a_spirv_kernel_of_ones_own(self):
        @exogpu.kernel(pathlib.Path(os.environ["EXOGPU_TEST_SPIRV"]), name="main")
        def count(data):
            "data[0] += 1"
        with self.vulkan().array(array.array("I", [41, 5])) as data:
            count(data, grid=1)
            count(data, grid=(1, 1))
            self.assertEqual(data.tolist(), [43, 5])

    def test_one_that_never_ends_is_a_timeout_and_what_was_lost_is_told(self):
        told = []
        with open(os.environ["EXOGPU_TEST_ENDLESS"], "rb") as file, exogpu.connect(on_notice=told.append) as cluster:
            data = cluster.device(self.vulkan().device_id).array(array.array("I", [0, 1]))
            module = data.device.load(file.read())
            self.assertEqual(data.device.array([1.0, 2.0]).sum(), 3) # by a module that the device keeps
            with self.assertRaises(TimeoutError) as caught: # Python's own, too
                module.main(data, grid=FOREVER, timeout_ms=300)
            self.assertEqual((type(caught.exception), caught.exception.reason), (api.TimeoutError, "timeout"))
            eventually(lambda: told, "the session is told")
            self.assertEqual(told[0]["method"], "session.device_lost")
            self.assertIn(data.allocation_id, told[0]["params"]["allocations"])
            self.assertRaises(exogpu.DeviceLostError, data.tolist)
            self.assertEqual(data.device.array([1.0, 2.0]).sum(), 3)

    def test_ptx_is_for_cuda(self):
        with self.assertRaises(exogpu.ApiError):
            self.device.load(".version 7.0\n.target sm_75\n.address_size 64\n")
        self.assertRaisesRegex(ValueError, "neither PTX", self.device.load, b"what is this")

    def test_cuda_c_is_known_by_its_word_and_refused_elsewhere(self):
        source = 'extern "C" __global__ void twice(float *x) { x[threadIdx.x] *= 2; }'
        for use in (lambda: self.device.load(source), lambda: exogpu.RawKernel(source, "twice")((1,), (4,), (self.device.empty(4),))):
            with self.assertRaises(exogpu.ApiError) as caught:
                use()
            self.assertEqual(caught.exception.reason, "unavailable")
            self.assertIn("cuda modules are for CUDA devices", str(caught.exception))
        self.assertRaisesRegex(TypeError, "an array of a device", exogpu.RawKernel(source, "twice"), (1,), (4,), (1.0,))


class Errors(OnServer):
    def test_each_reason_is_a_class_with_the_servers_hint(self):
        with self.assertRaises(exogpu.NotFoundError) as caught:
            self.cluster.api.memory.free("alloc_none")
        self.assertEqual((caught.exception.reason, caught.exception.method), ("not_found", "memory.free"))
        with self.assertRaises((exogpu.OutOfMemoryError, exogpu.LimitExceededError)) as caught:
            self.device.empty(1 << 46, "u1")
        self.assertTrue(caught.exception.hint)
        self.assertIn(caught.exception.hint, str(caught.exception))
        self.assertRaises(exogpu.UnauthenticatedError, exogpu.connect, token="exo_none")
        self.assertRaisesRegex(LookupError, "there are", self.cluster.device, "no such device")

    def test_a_token_may_do_what_its_scopes_say(self):
        made = self.cluster.api.token.create("reader", ["observe"], expires_in_s=60)
        with exogpu.connect(token=made["token"]) as reader:
            self.assertEqual(reader.login["scopes"], ["observe"])
            with self.assertRaises(api.ForbiddenError):
                reader.device(self.device.device_id).empty(1)
            self.cluster.api.token.revoke(made["token_id"])
            eventually(lambda: reader._inner.link.over, "the connection is closed")
            with self.assertRaises(exogpu.ConnectionLostError) as caught:
                reader.devices()
            self.assertEqual(caught.exception.code, 4410)

    def test_where_no_server_is(self):
        self.assertRaises(exogpu.ConnectionLostError, exogpu.connect, "http://127.0.0.1:1", "exo_none")
        self.assertRaises(ValueError, exogpu.connect, "ftp://127.0.0.1", "exo_none")

    def test_tls_by_the_clusters_authority(self):
        import ssl
        url, ca, token = (os.environ["EXOGPU_TEST_TLS_" + name] for name in ("URL", "CA", "TOKEN"))
        with exogpu.connect(url, token, ca=ca) as cluster:
            self.assertTrue(cluster.api.server.info()["tls"])
        self.assertRaises(ssl.SSLCertVerificationError, exogpu.connect, url, token)


class Connections(OnServer):
    def setUp(self):
        self.proxy = Proxy(os.environ["EXOGPU_URL"])
        self.addCleanup(self.proxy.close)
        self.mine = exogpu.connect(self.proxy.url)
        self.addCleanup(self.mine.close)

    def test_memory_outlives_a_connection(self):
        x = self.mine.device(self.device.device_id).array([1.0, 2.0, 3.0])
        for _ in range(3):
            self.proxy.cut()
            try:
                self.assertEqual(x.tolist(), [1, 2, 3])
            except exogpu.ConnectionLostError: # it was under way already
                self.assertEqual(x.tolist(), [1, 2, 3])

    def test_what_is_under_way_fails_when_the_connection_ends(self):
        self.proxy.keep_back("up")
        failed = []

        def call():
            try:
                self.mine.devices()
            except exogpu.ConnectionLostError as error:
                failed.append(error)
        thread = threading.Thread(target=call)
        thread.start()
        self.proxy.wait_kept("up")
        self.proxy.cut()
        thread.join()
        self.assertEqual(len(failed), 1)
        self.assertTrue(self.mine.devices())

    def test_a_connection_on_which_nothing_is_heard_is_lost(self):
        mine = exogpu.connect(self.proxy.url, silence_s=3 * SLOW)
        self.addCleanup(mine.close)
        link = mine._inner.link
        connection = link.connection
        before = connection.sign_at
        eventually(lambda: (link.connection or connection).sign_at > before, "a ping is answered")
        self.proxy.keep_back("down")
        self.assertRaisesRegex(exogpu.ConnectionLostError, "nothing was heard", mine.devices)
        self.proxy.cut()
        self.assertTrue(mine.devices())

    def test_an_error_of_ones_own_in_on_notice_is_logged_and_the_connection_goes_on(self):
        def fails(notice):
            raise RuntimeError("of one's own")
        with exogpu.connect(on_notice=fails) as mine, self.assertLogs("exogpu") as logs:
            connection = mine._inner.link.connection
            x = mine.device(self.device.device_id).empty(3)
            self.cluster.api.memory.free(x.allocation_id)
            eventually(lambda: logs.output, "it is logged")
            self.assertRegex(logs.output[0], r"session\.device_lost[\s\S]*of one's own")
            self.assertTrue(mine.devices())
            self.assertIs(mine._inner.link.connection, connection)

    def test_a_connection_that_cannot_take_up_the_events_is_closed(self):
        made, opened, link = [], link_module.Connection.open, self.mine._inner.link

        async def noted(*args):
            made.append(await opened(*args))
            return made[-1]
        with mock.patch.object(link_module.Connection, "open", noted), self.mine.events("inventory") as stream:
            topics, stream._events.topics = stream._events.topics, ["none"]
            self.proxy.cut()
            eventually(lambda: len(made) >= 2, "it is tried again")
            stream._events.topics = topics
            self.assertTrue(self.mine.devices())
            eventually(lambda: all(one.error for one in made if one is not link.connection), "the others are closed")

    def test_a_session_that_is_over_says_so(self):
        x = self.mine.device(self.device.device_id).empty(3)
        link = self.mine._inner.link
        link.login["session_id"] = "ses_none" # as if the server had ended it
        self.proxy.cut()
        eventually(lambda: link.session_id != "ses_none", "another session is there")
        self.assertRaises(exogpu.SessionLostError, x.tolist)
        self.assertEqual(self.mine.device(self.device.device_id).empty(2).tolist(), [0, 0])

    def test_a_call_has_a_time(self):
        self.proxy.keep_back("down")
        with self.assertRaises(TimeoutError) as caught:
            self.mine.api.server.info(timeout=0.05)
        self.assertIsInstance(caught.exception, exogpu.CallTimeoutError)
        self.proxy.release()
        self.assertTrue(self.mine.api.server.info()["version"])

    def test_events_that_were_missed_come_after_a_reconnection(self):
        def drained(stream, wanted):
            return next(event for event in stream if event["topic"] == "inventory" and (device := event["data"]["device"])
                        and (device["device_id"], device["draining"]) == (self.device.device_id, wanted))
        with self.mine.events("inventory") as stream:
            first = next(stream)
            self.assertEqual(first["topic"], "snapshot")
            self.assertIn(self.device.device_id, [one["device_id"] for one in first["data"]["devices"]])
            self.addCleanup(self.cluster.api.device.drain, self.device.device_id, False)
            self.cluster.api.device.drain(self.device.device_id, True)
            seq = drained(stream, True)["seq"]
            self.proxy.open = False
            self.proxy.cut()
            self.cluster.api.device.drain(self.device.device_id, False)
            self.proxy.open = True
            topics = []
            event = drained((topics.append(one["topic"]) or one for one in stream), False)
            self.assertGreater(event["seq"], seq)
            self.assertNotIn("snapshot", topics, "it was replayed")
            with self.assertRaisesRegex(ValueError, "one stream"):
                self.mine.events("telemetry").__enter__()
        with self.mine.events("telemetry") as again:
            self.assertEqual(next(again)["topic"], "snapshot")

    def test_a_client_that_was_closed_says_so(self):
        self.mine.close()
        self.mine.close()
        self.assertRaisesRegex(ValueError, "closed", self.mine.devices)

    def test_asyncio_and_a_call_that_is_cancelled(self):
        async def work():
            async with await exogpu.connect_async(self.proxy.url) as cluster:
                device = await cluster.device(self.device.device_id)
                values = array.array("f", range(100_000))
                x, y = await asyncio.gather(device.array(values), device.array([[1.0, 2.0], [3.0, 4.0]]))
                z = await y.matmul(y)
                self.assertEqual(await z.tolist(), [[7, 10], [15, 22]])
                into = bytearray(x.nbytes)
                self.proxy.keep_back("down")
                reading = asyncio.create_task(x.read(into))
                await asyncio.to_thread(self.proxy.wait_kept, "down")
                reading.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await reading
                self.proxy.release()
                self.assertEqual(await x[2:4].tolist(), [2, 3])
                self.assertEqual(into, bytes(len(into)), "what was given up is not written")
                self.assertEqual(bytes(await x.read(into)), values.tobytes())
                with self.assertRaises(exogpu.NotFoundError):
                    await cluster.api.compute.unload("mod_none")
                async with cluster.events("telemetry") as stream:
                    async for event in stream:
                        self.assertEqual(event["topic"], "snapshot")
                        break
        asyncio.run(work())


if __name__ == "__main__":
    unittest.main()
