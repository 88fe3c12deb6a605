"""A PostgreSQL of its own for one command: `python3 tests/postgres.py COMMAND...`. It listens on a socket in a new
directory, whose path is EXOGPU_TEST_POSTGRES for the command, and trusts whoever reaches it; it is gone when the command
ends. Exit status: the command's, or 77 with a word about it where PostgreSQL 15 or newer is not installed."""
import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

NOBODY = 65534
LEAST = 15
# A crash of this machine loses nothing that anybody wants.
SETTINGS = ["fsync=off", "full_page_writes=off", "listen_addresses=", "shared_buffers=16MB", "max_wal_size=256MB", "max_connections=60",
            "autovacuum=off", "unix_socket_permissions=0777", "log_min_messages=fatal", "password_encryption=scram-sha-256"]


def programs():
    found = []
    for folder in glob.glob("/usr/lib/postgresql/*/bin") + [os.path.dirname(os.path.realpath(shutil.which("postgres") or "/nowhere"))]:
        version = re.search(r"/postgresql/(\d+)/", folder + "/")
        if folder and os.access(folder + "/initdb", os.X_OK) and (not version or int(version.group(1)) >= LEAST):
            found.append((int(version.group(1)) if version else LEAST, folder))
    return max(found)[1] if found else None


class Postgres:
    """Runs as nobody where this runs as root, since PostgreSQL refuses to run as that."""

    def __init__(self, bin_folder):
        self.bin = bin_folder
        self.who = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.getuid() == 0 else {}
        self.folder = tempfile.mkdtemp(prefix="exogpu-postgres-", dir="/tmp")
        if self.who:
            os.chown(self.folder, NOBODY, NOBODY)
        os.chmod(self.folder, 0o755)
        self.process = None

    def make(self):
        subprocess.run([self.bin + "/initdb", "-D", self.folder + "/data", "-U", "exogpu", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync",
                        "--no-instructions"], check=True, stdout=subprocess.DEVNULL, cwd="/", **self.who)

    def start(self):
        durable = os.environ.get("EXOGPU_TEST_POSTGRES_DURABLE")  # as it is by itself: for what is measured
        settings = [word for setting in ([SETTINGS[2]] if durable else SETTINGS) + ["unix_socket_directories=" + self.folder] for word in ("-c", setting)]
        self.process = subprocess.Popen([self.bin + "/postgres", "-D", self.folder + "/data"] + settings, cwd="/", stdin=subprocess.DEVNULL, **self.who)
        for _ in range(6000):
            ready = subprocess.run([self.bin + "/pg_isready", "-q", "-h", self.folder], check=False)
            if ready.returncode == 0:
                self.teach()
                return
            if self.process.poll() is not None:
                raise RuntimeError("PostgreSQL ended while it started")
            time.sleep(0.02)
        raise RuntimeError("PostgreSQL does not start")

    # Words of SQLite's that the tests' own SQL uses.
    def teach(self):
        subprocess.run([self.bin + "/psql", "-Xq", "-v", "ON_ERROR_STOP=1", "-h", self.folder, "-U", "exogpu", "template1", "-c",
                        "CREATE FUNCTION zeroblob(bytes BIGINT) RETURNS BYTEA LANGUAGE sql AS $$SELECT decode(repeat('00', bytes::int), 'hex')$$"],
                       check=True, stdout=subprocess.DEVNULL)

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)  # at once, with its connections
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def main():
    found = programs()
    if not found:
        print("skipped: PostgreSQL %d or newer is not installed (Debian: postgresql)" % LEAST)
        return 77
    postgres = Postgres(found)
    try:
        postgres.make()
        postgres.start()
        return subprocess.run(sys.argv[1:], check=False,
                              env=dict(os.environ, EXOGPU_TEST_POSTGRES=postgres.folder, EXOGPU_TEST_POSTGRES_BIN=found)).returncode
    finally:
        postgres.stop()


if __name__ == "__main__":
    sys.exit(main())
