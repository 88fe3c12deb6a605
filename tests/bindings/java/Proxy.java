import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.ArrayList;
import java.util.List;

/** A TCP proxy before the server: `hold` keeps back what a client sends, `cut` ends every connection. */
final class Proxy implements AutoCloseable {
	private final ServerSocket listener;
	private final int far;
	private final List<Socket> open = new ArrayList<>(); // this and what follows: guarded by this
	private boolean holding;
	private long kept;

	Proxy(int far) throws IOException {
		this.far = far;
		listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
		daemon(() -> {
			for (;;)
				add(listener.accept());
		});
	}

	private interface Work {
		void run() throws Exception;
	}

	private static void daemon(Work work) {
		Thread thread = new Thread(() -> {
			try {
				work.run();
			} catch (Exception ended) {
				// with its connection
			}
		});
		thread.setDaemon(true);
		thread.start();
	}

	private void add(Socket near) throws IOException {
		Socket server = new Socket(InetAddress.getLoopbackAddress(), far);
		synchronized (this) {
			open.add(near);
			open.add(server);
		}
		daemon(() -> pass(near, server, true));
		daemon(() -> pass(server, near, false));
	}

	private void pass(Socket from, Socket to, boolean up) throws Exception {
		try (from; to) {
			InputStream in = from.getInputStream();
			OutputStream out = to.getOutputStream();
			byte[] bytes = new byte[65536];
			for (int count; (count = in.read(bytes)) > 0;) {
				synchronized (this) {
					while (up && holding && open.contains(from)) {
						kept += count;
						notifyAll();
						wait();
					}
				}
				out.write(bytes, 0, count);
			}
		}
	}

	String url() {
		return "http://127.0.0.1:" + listener.getLocalPort();
	}

	synchronized void hold() {
		holding = true;
		kept = 0;
	}

	synchronized boolean hasKept() {
		return kept > 0;
	}

	synchronized void release() {
		holding = false;
		notifyAll();
	}

	synchronized void cut() throws IOException {
		for (Socket each : open)
			each.close();
		open.clear();
		release();
	}

	@Override
	public void close() throws IOException {
		listener.close();
		cut();
	}
}
