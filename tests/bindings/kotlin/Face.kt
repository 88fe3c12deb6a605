import dev.exogpu.Device
import dev.exogpu.client.Api
import dev.exogpu.client.Client
import dev.exogpu.kotlin.calls
import dev.exogpu.kotlin.connect
import dev.exogpu.kotlin.eventFlow
import dev.exogpu.kotlin.memoryOf
import dev.exogpu.kotlin.open
import dev.exogpu.kotlin.plusAssign
import dev.exogpu.kotlin.toFloatArray
import dev.exogpu.kotlin.usable
import java.nio.ByteBuffer
import java.time.Duration
import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.CompletableDeferred
import kotlinx.coroutines.async
import kotlinx.coroutines.awaitAll
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.coroutineScope
import kotlinx.coroutines.delay
import kotlinx.coroutines.flow.filterIsInstance
import kotlinx.coroutines.flow.first
import kotlinx.coroutines.flow.take
import kotlinx.coroutines.flow.toList
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.withTimeout

// dev.exogpu.kotlin over libexogpu (the word "local"), or against the server of EXOGPU_URL.

private val patienceMs = (30_000 * (System.getenv("EXOGPU_SLOW")?.toDouble() ?: 1.0)).toLong()
private var passed = 0

private fun test(name: String, body: suspend () -> Unit) {
	runBlocking { withTimeout(patienceMs) { body() } }
	passed++
	println("ok - $name")
}

private fun local() {
	val found = Device.find().filter { it.usable }.distinctBy { it.backend }
	check(found.any { it.backend == "cpu" })
	for (info in found)
		test("${info.backend}: a sum on a device of this machine") {
			info.open(1L shl 24).use { device ->
				device.memoryOf(1f, 2f, 3f).use { y ->
					device.memoryOf(10f, 20f, 30f).use { x ->
						device.launch("saxpy_f32", y, x, 0.5f, 3)
						check(y.toFloatArray().contentEquals(floatArrayOf(6f, 12f, 18f))) { y.toFloatArray().toList() }
					}
				}
			}
		}
}

private suspend fun fails(reason: String, body: suspend () -> Unit) {
	try {
		body()
	} catch (error: dev.exogpu.ExogpuException) {
		check(error.reason() == reason) { "$reason: $error" }
		return
	}
	error("it does not fail with $reason")
}

private fun remote() = runBlocking { connect() }.use { client ->
	val cluster = client.calls
	val cpu = runBlocking { cluster.cluster.snapshot() }.devices().first { it.backend() == Api.Backend.CPU }.deviceId()
	test("calls suspend, with and without what may be left out") {
		val mine = cluster.memory.allocate(cpu, 16, label = "mine").allocationId()
		val bare = cluster.memory.allocate(cpu, 16).allocationId()
		val labels = cluster.memory.list().allocations().associate { it.allocationId() to it.label() }
		check(labels[mine] == "mine" && labels.containsKey(bare) && labels[bare] != "mine") { labels }
		cluster.memory.write(mine, 0, ByteBuffer.wrap(ByteArray(16) { it.toByte() }))
		check(cluster.memory.read(mine, 4, 2).body() == ByteBuffer.wrap(byteArrayOf(4, 5)))
		coroutineScope { listOf(mine, bare).map { async { cluster.memory.free(it) } }.awaitAll() }
	}
	test("errors are those of Java, by their reasons") {
		fails("not_found") { cluster.memory.free("alc_none") }
		fails("not_found") { client.within(Duration.ofSeconds(20)).calls.compute.unload("mod_none") }
	}
	test("arrays add up") {
		val device = client.device(cpu)
		val y = device.array(1f, 2f)
		y += device.array(10f, 20f)
		check(y.toArray().contentEquals(floatArrayOf(11f, 22f)))
	}
	test("events flow: a snapshot, then what happens; a second flow begins anew") {
		val first = client.eventFlow(Api.Topic.TELEMETRY).take(2).toList()
		check(first[0] is Api.SnapshotMessage && first[1] is Api.TelemetryMessage) { first.map { it.javaClass } }
		check(client.eventFlow(Api.Topic.INVENTORY).filterIsInstance<Api.SnapshotMessage>().first().data().devices().isNotEmpty())
	}
	test("a collector that is cancelled while it waits ends as cancelled, and the client goes on") {
		val waits = CompletableDeferred<Unit>()
		var ended: Throwable? = null
		coroutineScope {
			val job = launch {
				try {
					client.eventFlow(Api.Topic.ALERTS).collect { waits.complete(Unit) }
				} catch (error: Throwable) {
					ended = error
					throw error
				}
			}
			waits.await()
			delay(100) // until it waits for the next one, most likely
			job.cancelAndJoin()
		}
		check(ended is CancellationException) { "$ended" }
		check(cluster.server.info().version().isNotEmpty())
	}
	test("a call that is cancelled is given up") {
		coroutineScope {
			val calls = List(20) { launch { cluster.telemetry.history(cpu, "2020-01-01T00:00:00Z", "2020-01-02T00:00:00Z", 60.0) } }
			calls.forEach { it.cancel() }
		}
		check(cluster.cluster.snapshot().devices().isNotEmpty())
	}
}

fun main(words: Array<String>) {
	if (words.contains("local")) local() else remote()
	println("$passed passed")
	kotlin.system.exitProcess(0) // whatever waits in other threads
}
