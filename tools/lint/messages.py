"""Calls between processes go through common/wire/rpc.h, which keeps those that wait: there is no second table of them.

REMAIN are the files that print notifications themselves, and why (docs/notes/rpc.md); one that does so no more is to go
from it.
"""
import re

from tree import error, line_of

PRINTS = re.compile(r"(?<!\w)message_print_call(?:_of)?\s*\(")
REMAIN = {
    # The one message that a byte stream begins with.
    "engine/node/links/hops_ways.c", "engine/node/links/relay.c", "engine/node/workers/handed.c", "server/tenants/hop.c",
    # What a worker tells its server, in turn with bodies that go out piece by piece.
    "engine/worker/answer.c", "engine/worker/instance/instance.c",
    # What workers of one model say to each other: no calls.
    "engine/worker/instance/ring_message.c",
    # One notification to many connections, printed once.
    "server/tenants/tenants.c", "server/api/chat.c",
}


def check(tree):
    for path in tree.ending(".c", ".h"):
        if path.startswith(("common/wire/", "tests/")):
            continue
        match = PRINTS.search(tree.code(path))
        if match and path not in REMAIN:
            yield error(path, line_of(tree.code(path), match.start()), "messages",
                        "calls are sent by rpc_call and rpc_notify (common/wire/rpc.h), which keep those that wait")
        if path in REMAIN and not match:
            yield error(path, 1, "messages", "it prints no calls: take it from REMAIN in tools/lint/messages.py")
