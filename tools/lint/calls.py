"""Calls that are not used in C, each with what to use instead. Tests may run programs and use plain random numbers."""
import re

from tree import error, line_of

BOUNDED = "write into a struct buffer, or use snprintf"
NUMBER = "use strtol, strtod or their kin, and look at the end and at errno"
CLOCK = "use common/base/clock.h"
PROCESS = "spawn without a shell"
RANDOM = "use getrandom, or a generator with a seed of its own"
BANNED = {
    "strcpy": BOUNDED, "strcat": BOUNDED, "strncpy": BOUNDED, "strncat": BOUNDED, "stpcpy": BOUNDED,
    "sprintf": BOUNDED, "vsprintf": BOUNDED, "gets": BOUNDED,
    "strtok": "walk the text with strcspn", "strtok_r": "walk the text with strcspn",
    "atoi": NUMBER, "atol": NUMBER, "atoll": NUMBER, "atof": NUMBER,
    "gmtime": CLOCK, "localtime": CLOCK, "asctime": CLOCK, "ctime": CLOCK,
    "system": PROCESS, "popen": PROCESS, "vfork": PROCESS,
    "alloca": "use a fixed array or the heap",
    "rand": RANDOM, "srand": RANDOM, "random": RANDOM, "drand48": RANDOM,
    "signal": "use sigaction or signalfd (signal only with SIG_DFL or SIG_IGN)",
    "tmpnam": "use mkstemp", "tempnam": "use mkstemp", "mktemp": "use mkstemp",
    "bcopy": "use memmove", "bzero": "use memset",
    "gethostbyname": "use getaddrinfo", "inet_ntoa": "use inet_ntop", "inet_addr": "use inet_pton",
}
HARMLESS_IN_TESTS = {"system", "popen", "rand", "srand", "random"}
CALL = re.compile(r"(?<![\w.])(?<!->)(%s)\s*\(" % "|".join(BANNED))
PLAIN_SIGNAL = re.compile(r"signal\s*\(\w+, SIG_(?:DFL|IGN)\)")
# The declarations of a vendor's interface keep the vendor's names.
# Not that of a function, which has no tag.
TYPEDEF = re.compile(r"^\s*typedef\s+(?:struct|enum|union)\b(?!\s+(?:CU|nvml|hip|Vk))(?!\s+\w+\s+\w+\()", re.M)


def check(tree):
    for path in tree.ending(".c", ".h"):
        code = tree.code(path)
        for match in CALL.finditer(code):
            name = match.group(1)
            if name in HARMLESS_IN_TESTS and path.startswith("tests/") or PLAIN_SIGNAL.match(code, match.start()):
                continue
            yield error(path, line_of(code, match.start()), "calls", "%s is not used here: %s" % (name, BANNED[name]))
        for match in TYPEDEF.finditer(code):
            yield error(path, line_of(code, match.start(0)), "typedef", "a struct, union or enum keeps its tag")
