"""Makes the typed clients from schema/api.json: the dashboard's types, and bindings/typescript, python and java (with Kotlin).

usage: python3 -B tools/clients/generate.py [ui|typescript|python|java|kotlin]...      all of them unless some are named

The results are not committed: the builds of the dashboard, of the wheel and of the npm package run this first. A file
whose text would not change is left alone. Python's standard library is all it needs.
"""
import os
import pathlib
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import java_client        # noqa: E402
import kotlin_client      # noqa: E402
import python_client      # noqa: E402
import typescript_client  # noqa: E402
from contract import Contract  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLIENTS = {
    "ui": (typescript_client, ROOT / "ui/src/lib/api.gen.ts"),
    "typescript": (typescript_client, ROOT / "bindings/typescript/src/api.gen.ts"),
    "python": (python_client, ROOT / "bindings/python/src/exogpu/api.py"),
    "java": (java_client, ROOT / "bindings/java/src/dev/exogpu/client/Api.java"),
    "kotlin": (kotlin_client, ROOT / "bindings/java/kotlin/dev/exogpu/kotlin/Calls.kt"),
}


def put(path, text):
    """At once, so that a build beside this one never reads half of it."""
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return
    scratch = path.with_name(".%s.%d" % (path.name, os.getpid()))
    scratch.write_text(text, encoding="utf-8")
    os.replace(scratch, path)


def main(wanted):
    if set(wanted) - set(CLIENTS):
        sys.exit(__doc__)
    contract = Contract(ROOT / "schema/api.json")
    for name in wanted or CLIENTS:
        writer, path = CLIENTS[name]
        put(path, writer.write(contract))


if __name__ == "__main__":
    main(sys.argv[1:])
