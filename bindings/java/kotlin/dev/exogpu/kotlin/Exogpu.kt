package dev.exogpu.kotlin

import dev.exogpu.Device
import dev.exogpu.DeviceMemory
import dev.exogpu.ExogpuException
import dev.exogpu.client.Api
import dev.exogpu.client.Client
import dev.exogpu.client.Events
import dev.exogpu.client.RemoteArray
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.currentCoroutineContext
import kotlinx.coroutines.ensureActive
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.flow
import kotlinx.coroutines.runInterruptible
import kotlinx.coroutines.withContext

/** Connects and logs in, as [Client.connect] does, without holding up a thread that others wait for. */
suspend fun connect(settings: Client.Settings = Client.Settings()): Client =
	withContext(Dispatchers.IO) { Client.connect(settings) }

/** Every method as a function that suspends; of [Client.within], too. Cancelling one gives its call up. */
val Api.calls: Calls
	get() = Calls(this)

/**
 * Events of these topics for as long as the flow is collected: a [Api.SnapshotMessage] first, then what happens, over lost
 * connections too (see [Events]). A client has one subscription at a time.
 */
fun Client.eventFlow(vararg topics: Api.Topic): Flow<Api.Event> = flow {
	events(*topics).use { events ->
		while (true)
			emit(waited(events) ?: break)
	}
}

private suspend fun waited(events: Events): Api.Event? = try {
	runInterruptible(Dispatchers.IO) { events.next() }
} catch (failed: ExogpuException) {
	currentCoroutineContext().ensureActive() // that it was interrupted is how a wait is cancelled
	throw failed
}

/** `y += x`, on the device. */
operator fun RemoteArray.plusAssign(other: RemoteArray) = add(other, 1f)

/** Whether it can be opened. */
val Device.Info.usable: Boolean
	get() = reason == null

/** Opens this device, of which at most so many bytes may be allocated; 0: as much as it has. */
fun Device.Info.open(memoryLimitBytes: Long = 0): Device = Device.open(this, memoryLimitBytes)

/** New memory that holds these numbers. */
fun Device.memoryOf(vararg values: Float): DeviceMemory {
	val memory = allocate(4L * values.size)
	try {
		memory.write(0, values)
	} catch (failed: Throwable) {
		memory.close()
		throw failed
	}
	return memory
}

/** All of it, as numbers. */
fun DeviceMemory.toFloatArray(): FloatArray = FloatArray((bytes() / 4).toInt()).also { read(0, it) }
