import dev.exogpu.ExogpuException;
import dev.exogpu.client.Api;
import dev.exogpu.client.CallTimeoutException;
import dev.exogpu.client.Client;
import dev.exogpu.client.ConnectionLostException;
import dev.exogpu.client.Events;
import dev.exogpu.client.RemoteArray;
import dev.exogpu.client.RemoteDevice;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;

/** dev.exogpu.client against the server of EXOGPU_URL, whose token has all scopes. */
final class ClientTest {
	private static final String URL = System.getenv("EXOGPU_URL"), TOKEN = System.getenv("EXOGPU_TOKEN");

	public static void main(String[] words) throws Exception {
		try (Client client = Client.connect()) {
			List<Api.Device> devices = client.cluster.snapshot().devices();
			Check.test("the server and the session say who they are", () -> {
				Api.ServerInfo info = client.server.info();
				Check.right(!info.version().isEmpty() && info.limits().size() > 5 && !info.tls(), info.toString());
				Check.right(client.login().scopes().contains(Api.Scope.ADMIN), client.login().toString());
				Check.equal(client.server.infoAsync().get(Check.PATIENCE_MS, TimeUnit.MILLISECONDS).clusterId(), info.clusterId());
			});
			for (Api.Backend backend : new Api.Backend[] {Api.Backend.CPU, Api.Backend.VULKAN})
				devices.stream().filter(one -> one.backend() == backend && one.verification().state() == Api.VerificationState.PASSED)
						.findFirst().ifPresentOrElse(device -> Check.test(backend.word() + ": a product is right", () -> product(client, device)),
								() -> System.out.println("# skipped: no " + backend.word() + " device that passed"));
			String cpu = devices.stream().filter(one -> one.backend() == Api.Backend.CPU).findFirst().orElseThrow().deviceId();
			Check.test("memory of any size comes back as it was", () -> {
				byte[] sent = new byte[(9 << 20) + 5];
				new Random(25).nextBytes(sent);
				ByteBuffer from = ByteBuffer.wrap(sent), back = ByteBuffer.allocateDirect(sent.length);
				String allocation = client.memory.allocate(cpu, sent.length).allocationId();
				client.write(allocation, 0, from);
				client.read(allocation, 0, back);
				Check.equal(from.remaining() + back.remaining(), 0);
				Check.equal(back.flip(), ByteBuffer.wrap(sent));
				Check.equal(client.memory.read(allocation, 9 << 20, 5).body(), ByteBuffer.wrap(sent, 9 << 20, 5));
				Check.equal(client.memory.read(allocation, 0, 0).body().remaining(), 0);
				client.memory.free(allocation);
			});
			Check.test("arrays on a device, of any machine", () -> arrays(client));
			Check.test("numbers, lists and what a record may lack are read", () -> {
				Api.ComputeRunResult ran = client.compute.run(cpu, "saxpy_f32", List.of(new Api.RunArgument.F32s(List.of(1.0, 2.5)),
						new Api.RunArgument.F32s(List.of(10.0, -4.0)), new Api.RunArgument.F32(0.5), new Api.RunArgument.U32(2)),
						new Api.ComputeRunOptions().timeoutMs(30_000L));
				Check.equal(ran.f32s(), List.of(6.0, 0.5));
				ran = client.compute.run(cpu, "fill_f32", List.of(new Api.RunArgument.Zeros(1), new Api.RunArgument.F32(3e38),
						new Api.RunArgument.U32(1)));
				Check.equal(ran.f32s().size(), 1);
				Api.TokenCreateResult made = client.token.create("short", List.of(Api.Scope.OBSERVE), new Api.TokenCreateOptions().expiresInS(60L));
				Check.right(made.token().length() > 10, "a token");
			});
			Check.test("an error has its class, its reason and the server's hint", () -> {
				Api.NotFoundException none = Check.fails(Api.NotFoundException.class, () -> client.memory.free("alloc_none"));
				Check.equal(List.of(none.reason(), none.method()), List.of("not_found", "memory.free"));
				Check.right(none.code() != 0 && none.data().get("reason").equals("not_found"), none.toString());
				Check.right(List.of(none.getStackTrace()).toString().contains("ClientTest"), "it says where it was called");
				Api.LimitExceededException much = Check.fails(Api.LimitExceededException.class, () -> client.memory.allocate(cpu, 1L << 50));
				Check.right(much.getMessage().startsWith("memory.allocate: "), much.getMessage());
				ExecutionException later = Check.fails(ExecutionException.class, () -> client.memory.freeAsync("alloc_none").get());
				Check.right(later.getCause() instanceof Api.NotFoundException, later.toString());
				Check.fails(Api.InvalidParamsException.class, () -> client.memory.allocate(cpu, -1));
				Check.fails(IllegalArgumentException.class, () -> client.memory.allocate(null, 1));
				Check.fails(IllegalArgumentException.class, () -> client.compute.load(cpu, Api.ComputeLoadFormat.UNRECOGNIZED));
				Check.fails(IllegalArgumentException.class, () -> client.compute.run(cpu, "fill_f32", List.of(new Api.RunArgument.F32(Double.NaN))));
				Check.right(client.server.info().version() != null, "the connection has not suffered");
			});
			Check.test("who cannot log in is told so", () -> {
				Check.fails(Api.UnauthenticatedException.class, () -> Client.connect(new Client.Settings().token("exo_none")));
				Check.fails(ConnectionLostException.class, () -> Client.connect(new Client.Settings().url("http://127.0.0.1:1")));
				Check.fails(IllegalArgumentException.class, () -> Client.connect(new Client.Settings().url("ftp://127.0.0.1")));
				Check.fails(IllegalArgumentException.class, () -> Client.connect(new Client.Settings().token("")));
			});
			Check.test("a call has a time, and can be given up", () -> givenUp());
			Check.test("memory outlives a connection, and events that were missed are replayed", () -> comesBack(client, cpu));
			Check.test("a server that says nothing is a lost connection", () -> silent());
			Check.test("a revoked token ends a client for good", () -> {
				Api.TokenCreateResult token = client.token.create("gone", List.of(Api.Scope.OBSERVE));
				try (Client mine = Client.connect(new Client.Settings().token(token.token()))) {
					client.token.revoke(token.tokenId());
					Check.eventually("it says so", () -> {
						try {
							mine.server.info();
							return false;
						} catch (ConnectionLostException lost) {
							return lost.code() == 4410;
						}
					});
				}
			});
		}
		Check.test("by TLS with the cluster's authority, and not without", () -> {
			Client.Settings secure = new Client.Settings().url(System.getenv("EXOGPU_TEST_TLS_URL")).token(System.getenv("EXOGPU_TEST_TLS_TOKEN"));
			Check.fails(ConnectionLostException.class, () -> Client.connect(secure));
			try (Client mine = Client.connect(secure.ca(Path.of(System.getenv("EXOGPU_TEST_TLS_CA"))))) {
				Check.right(mine.server.info().tls(), "by TLS");
			}
			Check.fails(IllegalArgumentException.class, () -> Client.connect(secure.ca(Path.of("nowhere.pem"))));
		});
		Check.end();
	}

	private static void product(Client client, Api.Device device) {
		String module = client.compute.load(device.deviceId(), Api.ComputeLoadFormat.BUILTIN).moduleId();
		String a = put(client, device.deviceId(), 1, 2, 3, 4), b = put(client, device.deviceId(), 5, 6, 7, 8), c = put(client, device.deviceId(), 0, 0, 0, 0);
		Api.KernelArgument two = new Api.KernelArgument.U32(2);
		Api.ComputeLaunchResult done = client.compute.launch(module, "matmul_f32", List.of(new Api.KernelArgument.AllocationId(c),
				new Api.KernelArgument.AllocationId(a), new Api.KernelArgument.AllocationId(b), two, two, two));
		Check.right(done.deviceUs() >= 0, "a time");
		Check.equal(get(client, c, 4), FloatBuffer.wrap(new float[] {19, 22, 43, 50}));
	}

	private static void arrays(Client client) throws Exception {
		RemoteDevice device = client.device();
		Check.equal(client.device(device.info().deviceId()).info().name(), device.info().name());
		Check.equal(Check.fails(ExogpuException.class, () -> client.device("no such device")).reason(), "not_found");
		try (RemoteArray x = device.array(1, 2, 3, 4, 5, 6); RemoteArray y = device.array(1, 0, 0, 1, 1, 1);
				RemoteArray z = x.matmul(y, 2, 3, 2)) {
			Check.equal(z.toArray(), new float[] {4, 5, 10, 11});
			x.add(y, 0.5f);
			Check.equal(x.sum(), 23f);
			Check.right(device.launch("fill_f32", x, 2, 3) >= 0, "a time");
			Check.equal(x.toArray(), new float[] {2, 2, 2, 4.5f, 5.5f, 6.5f});
			Check.fails(IllegalArgumentException.class, () -> x.matmul(y, 3, 3, 2));
			Check.fails(IllegalArgumentException.class, () -> x.write(1, 2));
			Check.fails(IllegalArgumentException.class, () -> x.add(null, 1));
			Check.fails(IllegalArgumentException.class, () -> device.zeros(0));
			Check.fails(IllegalArgumentException.class, () -> device.launch("divide_f32", x));
			Check.fails(IllegalArgumentException.class, () -> device.launch("fill_f32", x, 1, 1.5));
			Check.fails(IllegalArgumentException.class, () -> device.launch("fill_f32", 1, 1, 1));
			y.close();
			Check.fails(IllegalStateException.class, y::toArray);
		}
	}

	private static String put(Client client, String device, float... values) {
		ByteBuffer bytes = ByteBuffer.allocate(4 * values.length).order(ByteOrder.LITTLE_ENDIAN);
		bytes.asFloatBuffer().put(values);
		String allocation = client.memory.allocate(device, bytes.remaining()).allocationId();
		client.memory.write(allocation, 0, bytes);
		return allocation;
	}

	private static FloatBuffer get(Client client, String allocation, int count) {
		return client.memory.read(allocation, 0, 4L * count).body().order(ByteOrder.LITTLE_ENDIAN).asFloatBuffer();
	}

	private static Proxy proxy() throws Exception {
		return new Proxy(URI.create(URL).getPort());
	}

	private static void givenUp() throws Exception {
		try (Proxy proxy = proxy(); Client mine = Client.connect(new Client.Settings().url(proxy.url()))) {
			proxy.hold();
			Check.fails(CallTimeoutException.class, () -> mine.within(Duration.ofMillis(30)).server.info());
			CompletableFuture<Api.ServerInfo> waiting = mine.server.infoAsync();
			waiting.cancel(true);
			Check.right(waiting.isCancelled(), "it was given up");
			Thread caller = Thread.currentThread();
			CompletableFuture.runAsync(caller::interrupt, CompletableFuture.delayedExecutor(30, TimeUnit.MILLISECONDS));
			Check.equal(Check.fails(ExogpuException.class, () -> mine.server.info()).reason(), "interrupted");
			Check.right(Thread.interrupted(), "the interrupt is still to be seen");
			proxy.release();
			Check.right(mine.server.info().version() != null, "and the client goes on");
		}
	}

	private static void silent() throws Exception {
		Client.Settings settings = new Client.Settings().silence(Duration.ofMillis(Check.PATIENCE_MS / 15));
		try (Proxy proxy = proxy(); Client mine = Client.connect(settings.url(proxy.url()))) {
			proxy.hold();
			CompletableFuture<Api.ServerInfo> waiting = mine.server.infoAsync();
			ExecutionException lost = Check.fails(ExecutionException.class, () -> waiting.get(Check.PATIENCE_MS, TimeUnit.MILLISECONDS));
			Check.right(lost.getCause() instanceof ConnectionLostException, lost.toString());
			Check.right(lost.getMessage().contains("nothing was heard"), lost.toString());
			proxy.release();
			Check.right(mine.server.info().version() != null, "and the client goes on");
		}
	}

	private static void comesBack(Client client, String cpu) throws Exception {
		Duration patience = Duration.ofMillis(Check.PATIENCE_MS);
		try (Proxy proxy = proxy(); Client mine = Client.connect(new Client.Settings().url(proxy.url())); Events events = mine.events(Api.Topic.INVENTORY)) {
			Check.right(events.next(patience) instanceof Api.SnapshotMessage first && first.data().devices().stream()
					.anyMatch(one -> one.deviceId().equals(cpu)), "the snapshot comes first");
			String session = mine.login().sessionId(), kept = put(mine, cpu, 1, 2, 3);
			client.device.drain(cpu, true);
			long seq = drained(events, cpu, true, patience);
			proxy.cut();
			client.device.drain(cpu, false);
			Check.right(drained(events, cpu, false, patience) > seq, "the events are in order"); // and no snapshot between
			Check.equal(get(mine, kept, 3), FloatBuffer.wrap(new float[] {1, 2, 3}));
			Check.equal(mine.login().sessionId(), session);
			Check.fails(IllegalStateException.class, () -> mine.events(Api.Topic.TELEMETRY));
			proxy.hold();
			CompletableFuture<Api.ServerInfo> waiting = mine.server.infoAsync();
			Check.eventually("the call is under way", proxy::hasKept);
			proxy.cut();
			ExecutionException lost = Check.fails(ExecutionException.class, () -> waiting.get(Check.PATIENCE_MS, TimeUnit.MILLISECONDS));
			Check.right(lost.getCause() instanceof ConnectionLostException, lost.toString());
			events.close();
			Check.equal(events.next(), null);
			try (Events again = mine.events(Api.Topic.TELEMETRY, Api.Topic.INVENTORY)) {
				Check.right(again.next(patience) instanceof Api.SnapshotMessage, "another stream begins with a snapshot");
			}
			mine.close();
			Check.right(Check.fails(ConnectionLostException.class, () -> mine.server.info()).getMessage().contains("was closed"), "closed");
		}
	}

	/** The number of the event by which the device is (not) drained; no snapshot may come before. */
	private static long drained(Events events, String device, boolean wanted, Duration patience) {
		for (;;) {
			Api.Event event = events.next(patience);
			Check.right(event instanceof Api.InventoryMessage, "an event of the inventory, and not " + event);
			Api.InventoryEvent data = ((Api.InventoryMessage) event).data();
			if (data.device() != null && data.device().deviceId().equals(device) && data.device().draining() == wanted)
				return event.seq();
		}
	}
}
