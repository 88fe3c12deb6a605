"""./dev check-catalog against a hub of the test's own: what is the same, what differs, what is null, and no network."""
import copy
import hashlib
import http.server
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
REVISION = "0" * 39 + "1"
FILES = {"o/nomic": "nomic-bert.gguf", "o/qwen35": "qwen35.gguf", "o/mixture": "gpt-oss-mxfp4.gguf"}
BYTES = {repository: (ROOT / "tests/models" / name).read_bytes() for repository, name in FILES.items()}
# As tests/models/make.py and make_encoders.py chose them. Files without a tokenizer say nothing of their vocabulary.
GEOMETRIES = {
    "o/nomic": {"architecture": "nomic-bert", "layers": 3, "embedding": 32, "heads": 4, "kv_heads": 4, "head_size": 8, "vocabulary": 128,
                "context": 2048, "tied": True, "feed_forward": 80, "pooling": "mean"},
    "o/qwen35": {"architecture": "qwen35", "layers": 5, "embedding": 32, "heads": 4, "kv_heads": 2, "head_size": 16, "vocabulary": None,
                 "context": 1024, "tied": False, "feed_forward": 64,
                 "delta": {"key_heads": 2, "heads": 4, "key_size": 16, "value_size": 24, "kernel": 4}},
    "o/mixture": {"architecture": "gpt-oss", "layers": 2, "embedding": 64, "heads": 4, "kv_heads": 2, "head_size": 64, "vocabulary": None,
                  "context": 1024, "tied": False, "feed_forward": 0, "experts": 8, "experts_used": 3, "expert_width": 32},
}


class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        path = self.path.split("?")[0]
        for repository, data in BYTES.items():
            name = FILES[repository]
            if path == f"/api/models/{repository}/revision/{REVISION}":
                return self.give(json.dumps({"sha": REVISION, "cardData": {"license": "mit"}, "siblings": [
                    {"rfilename": name, "size": 1, "lfs": {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}}]}).encode())
            if path == f"/{repository}/resolve/{REVISION}/{name}":
                first, last = self.headers["Range"].removeprefix("bytes=").split("-")
                return self.give(data[int(first):int(last) + 1], 206)
        return self.give(b"{}", 404)

    def give(self, data, status=200):
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


def entries():
    return [{"id": repository[2:], "repository": repository, "revision": REVISION, "file": FILES[repository], "bytes": len(data),
             "sha256": hashlib.sha256(data).hexdigest(), "licence": "mit", "geometry": copy.deepcopy(GEOMETRIES[repository])}
            for repository, data in BYTES.items()]


class CheckCatalog(unittest.TestCase):
    def setUp(self):
        self.hub = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        threading.Thread(target=self.hub.serve_forever, daemon=True).start()

    def tearDown(self):
        self.hub.shutdown()
        self.hub.server_close()

    def check(self, models, url=None):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "models.json"
            path.write_text(json.dumps({"models": models}), encoding="utf-8")
            return subprocess.run([sys.executable, "-B", ROOT / "tools/dev/check_catalog.py", "--hub-url",
                                   url or f"http://127.0.0.1:{self.hub.server_address[1]}", path],
                                  env={**os.environ, "no_proxy": "*"}, capture_output=True, text=True, check=False)

    def test_what_is_the_same(self):
        ran = self.check(entries())
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        self.assertIn("3 entries, 0 values are otherwise, 0 that are null here", ran.stdout)

    def test_what_differs_is_told_with_both_values(self):
        models = entries()
        models[0]["bytes"] += 1
        models[1]["geometry"]["delta"]["heads"] = 8
        models[2]["sha256"] = "a" * 64
        ran = self.check(models)
        self.assertEqual(ran.returncode, 1, ran.stdout)
        self.assertIn(f"bytes: {models[0]['bytes']} here, {models[0]['bytes'] - 1} at the hub", ran.stdout)
        self.assertIn("geometry.delta: ", ran.stdout)
        self.assertIn(f"sha256: {'a' * 64} here", ran.stdout)
        self.assertIn("3 values are otherwise", ran.stdout)

    def test_null_is_no_difference_and_what_the_hub_knows_is_told(self):
        models = entries()
        models[0]["licence"] = models[0]["sha256"] = None
        ran = self.check(models)
        self.assertEqual(ran.returncode, 0, ran.stdout)
        self.assertIn("licence: not known here, mit at the hub", ran.stdout)
        self.assertIn("2 that are null here are known there", ran.stdout)

    def test_what_the_hub_does_not_have(self):
        models = entries()
        models[0]["repository"], models[1]["file"] = "o/gone", "gone.gguf"
        ran = self.check(models)
        self.assertEqual(ran.returncode, 1)
        self.assertIn("not there, or not open to everybody", ran.stdout)
        self.assertIn("file: gone.gguf here, not there at the hub", ran.stdout)

    def test_without_a_network_it_says_so_and_compares_nothing(self):
        ran = self.check(entries(), "http://127.0.0.1:9")
        self.assertEqual(ran.returncode, 77, ran.stdout)
        self.assertIn("the hub cannot be reached", ran.stderr)
        self.assertIn("No entry was compared", ran.stderr)


if __name__ == "__main__":
    unittest.main()
