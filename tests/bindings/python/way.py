"""A TCP proxy between a client and the server that a test can hold, cut and close, and waiting for a state."""
import os
import socket
import threading
import time
from urllib.parse import urlsplit

SLOW = float(os.environ.get("EXOGPU_SLOW", "1"))
PATIENCE_S = 30 * SLOW


def eventually(probe, what):
    until = time.monotonic() + PATIENCE_S
    while not (value := probe()):
        if time.monotonic() > until:
            raise AssertionError("not within %g s: %s" % (PATIENCE_S, what))
        time.sleep(0.02)
    return value


def shut(*ends):
    for end in ends:
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


class Proxy:
    """hold: bytes of that direction ("up" to the server, "down" to the client) are counted and kept back."""

    def __init__(self, url):
        self.far = urlsplit(url).port
        self.hold, self.kept = set(), {"up": 0, "down": 0}
        self.open, self.pairs, self.changed = True, [], threading.Condition()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = "http://127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            if not self.open:
                near.close()
                continue
            far = socket.create_connection(("127.0.0.1", self.far))
            self.pairs.append((near, far))
            for one, other, way in ((near, far, "up"), (far, near, "down")):
                threading.Thread(target=self._pass, args=(one, other, way), daemon=True).start()

    def _pass(self, one, other, way):
        try:
            while data := one.recv(65536):
                with self.changed:
                    if way in self.hold:
                        self.kept[way] += len(data)
                        self.changed.notify_all()
                    self.changed.wait_for(lambda: way not in self.hold)
                other.sendall(data)
        except OSError:
            pass
        shut(one, other)
        one.close() # the other direction's thread closes the other end

    def keep_back(self, way):
        with self.changed:
            self.hold.add(way)
            self.kept[way] = 0

    def wait_kept(self, way):
        with self.changed:
            assert self.changed.wait_for(lambda: self.kept[way], PATIENCE_S), "nothing came to the proxy"

    def release(self):
        with self.changed:
            self.hold.clear()
            self.changed.notify_all()

    def cut(self):
        """Ends every connection, and forgets what was kept back."""
        pairs, self.pairs = self.pairs, []
        for pair in pairs:
            shut(*pair)
        self.release()

    def close(self):
        self.listener.close()
        self.cut()
