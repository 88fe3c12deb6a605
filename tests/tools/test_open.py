"""./dev up opens the page of the server that it starts, on a desktop, and only there."""
import os
import pathlib
import pty
import shutil
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def shell(script, stdin=subprocess.DEVNULL, **env):
    script = "set -euo pipefail\nsource tools/dev/open.sh\n" + script
    plain = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
    return subprocess.run(["bash", "-c", script], cwd=ROOT, env={**plain, **env}, stdin=stdin, capture_output=True, text=True,
                          check=False, timeout=120)


def program(folder, name, text):
    path = pathlib.Path(folder, name)
    path.write_text("#!/bin/bash\n" + text, encoding="utf-8")
    path.chmod(0o755)
    return str(path)


class Open(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.master, self.terminal = pty.openpty()
        self.addCleanup(os.close, self.master)
        self.addCleanup(os.close, self.terminal)

    def opens(self, stdin, **env):
        return shell("opens_page && echo yes || echo no", stdin=stdin, **env).stdout == "yes\n"

    def test_only_at_a_terminal_of_a_desktop_with_xdg_open(self):
        program(self.folder, "xdg-open", "")
        path = self.folder + ":" + os.environ["PATH"]
        self.assertTrue(self.opens(self.terminal, DISPLAY=":0", PATH=path))
        self.assertTrue(self.opens(self.terminal, WAYLAND_DISPLAY="wayland-0", PATH=path))
        self.assertFalse(self.opens(self.terminal, PATH=path))
        self.assertFalse(self.opens(self.terminal, DISPLAY="", PATH=path))
        self.assertFalse(self.opens(subprocess.DEVNULL, DISPLAY=":0", PATH=path))
        os.unlink(os.path.join(self.folder, "xdg-open"))
        os.symlink(shutil.which("bash"), os.path.join(self.folder, "bash"))
        self.assertFalse(self.opens(self.terminal, DISPLAY=":0", PATH=self.folder))

    def test_up_opens_the_page_unless_it_is_told_not_to(self):
        os.mkdir(os.path.join(self.folder, "build"))
        program(os.path.join(self.folder, "build"), "exogpu", 'echo "runs $*"')
        script = """need_packages() { :; }; build() { :; }; opens_page() { true; }
            open_page() { shift; echo "opens $*"; }
            root=$FOLDER
            eval "$(sed -n '/^cmd_up() {/,/^}/p' dev)"
            cmd_up %s"""
        for flags, said in (("", ["opens ", "runs serve"]), ("--lan --no-open", ["runs serve --lan"]),
                            ("--lan --data /a", ["opens --lan --data /a", "runs serve --lan --data /a"])):
            ran = shell(script % flags, FOLDER=self.folder)  # it is heard until both have ended
            self.assertEqual((sorted(ran.stdout.splitlines()), ran.stderr), (said, ""))

    def test_the_data_directory_of_the_flags(self):
        for flags, words in (("", ""), ("--lan --data '/a b' --name x", "--data\n/a b\n"), ("--data=/a --data=/b", "--data=/b\n")):
            self.assertEqual(shell("data_words " + flags).stdout, words)

    def test_it_waits_for_the_server_and_opens_the_page_of_that_one(self):
        # It answers at the third time.
        exogpu = program(self.folder, "exogpu", """echo "$* ${EXOGPU_URL-unset}" >>"$0.calls"
            [ "$1" != nodes ] || [ "$(grep -c nodes "$0.calls")" -ge 3 ]""")
        ran = shell('open_page "$EXOGPU" --data /a --lan', EXOGPU=exogpu, EXOGPU_URL="https://elsewhere")
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        calls = pathlib.Path(exogpu + ".calls").read_text(encoding="utf-8")
        self.assertEqual(calls, "nodes --data /a unset\n" * 3 + "open --data /a unset\n")

    def test_it_gives_up_when_the_server_has_gone(self):
        exogpu = program(self.folder, "exogpu", 'echo "$*" >>"$0.calls"; kill -9 "$SHELL_PID"; exit 1')
        inner = 'source tools/dev/open.sh; export SHELL_PID=$$; open_page "$EXOGPU" & wait'
        shell('bash -c "$INNER" || true', EXOGPU=exogpu, INNER=inner) # ends once what runs in the background has
        calls = pathlib.Path(exogpu + ".calls").read_text(encoding="utf-8").split()
        self.assertEqual(set(calls), {"nodes"})  # perhaps once more, until the shell that was killed is waited for


if __name__ == "__main__":
    unittest.main()
