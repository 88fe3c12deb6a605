"""tests/engine/conformance/abi.py: what breaks programs that were built with libexogpu, and what does not."""
import contextlib
import io
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "engine/conformance"))

import abi  # noqa: E402

HEADER = """typedef unsigned int uint32_t; extern int puts(const char *);
enum exogpu_memory { EXOGPU_MEMORY_UNKNOWN, EXOGPU_MEMORY_HOST, }; enum { EXOGPU_BIT = 1 << 3, EXOGPU_NEXT };
enum status { STATUS_OK, STATUS_LOST, STATUS_COUNT }; struct exogpu_device;
struct exogpu_open { const char *name; uint32_t sizes[3], bytes; bool debug; };
__attribute__((visibility("default"))) enum status exogpu_open(const struct exogpu_open *params,
    int (*each)(void *)) __attribute__((format(printf, 1, 2)));
int status_inside(enum status status);
"""


class Abi(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.run_on(HEADER, "--record")

    def run_on(self, text, *words, version="0"):
        """The exit status, and what it said."""
        (self.folder / "now.i").write_text(text)
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said):
                abi.main([*words, version, str(self.folder), str(self.folder / "now.i")])
        except SystemExit as end:
            return 1, str(end)
        return 0, said.getvalue()

    def test_the_record_has_what_programs_rely_on(self):
        self.assertEqual((self.folder / "exogpu-0.abi").read_text().splitlines(), [
            "EXOGPU_BIT = 8", "EXOGPU_MEMORY_HOST = 1", "EXOGPU_MEMORY_UNKNOWN = 0", "EXOGPU_NEXT = 9", "STATUS_LOST = 1", "STATUS_OK = 0",
            "enum status exogpu_open(const struct exogpu_open *params, int (*each)(void *))",
            "struct exogpu_open { const char *name; uint32_t sizes[3], bytes; _Bool debug; }"])
        self.assertEqual(self.run_on(HEADER), (0, "abi: 8 lines of libexogpu.so.0\n"))

    def test_what_breaks_programs_wants_another_version(self):
        for old, new in (("bool debug;", "bool debug, more;"), ("uint32_t sizes", "uint64_t sizes"), ("params,", "params, int more,"),
                         ("STATUS_OK, STATUS_LOST", "STATUS_OK, STATUS_NEW, STATUS_LOST"), ("1 << 3", "1 << 4"),
                         ("visibility", "hidden"), ("EXOGPU_MEMORY_HOST, ", "")):
            text = HEADER.replace(old, new)
            self.assertNotEqual(text, HEADER)
            for words in ((), ("--record",)):
                with self.subTest(new, words=words):
                    code, said = self.run_on(text, *words)
                    self.assertEqual(code, 1)
                    self.assertIn("Raise SOVERSION", said)
            self.assertEqual(self.run_on(text, "--record", version="1")[0], 0)
            self.assertEqual(self.run_on(text, version="1")[0], 0)
            (self.folder / "exogpu-1.abi").unlink()

    def test_what_is_new_breaks_none_and_is_recorded(self):
        text = HEADER.replace("EXOGPU_MEMORY_HOST,", "EXOGPU_MEMORY_HOST, EXOGPU_MEMORY_NEW,").replace(
            "STATUS_LOST,", "STATUS_LOST, STATUS_NEW,")
        code, said = self.run_on(text)
        self.assertEqual(code, 1)
        self.assertIn("EXOGPU_MEMORY_NEW = 2", said)
        self.assertIn("Nothing breaks by it", said)
        self.assertEqual(self.run_on(text, "--record")[0], 0)
        self.assertEqual(self.run_on(text)[0], 0)

    def test_a_file_without_the_library_is_no_success(self):
        self.assertEqual(self.run_on("int puts(const char *);\n")[0], 1)


if __name__ == "__main__":
    unittest.main()
