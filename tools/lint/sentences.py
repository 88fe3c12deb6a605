"""The sentences of the C sources that a person may read on the dashboard: schema/sentences.json lists them by area.

A sentence is the literal that it is printed with: "the node speaks protocol %lld". The server finds the key of what it
sends in this list (common/wire/said.h), and the dashboard has a text for each key in every language but English:
ui/src/text/LANGUAGE/server/*.ts. An area of COMPLETE has all its texts; of the others what has none stays English.

    python3 -B tools/lint/sentences.py            write the list anew
    python3 -B tools/lint/sentences.py --lacking  print the keys that have no text yet
"""
import collections
import json
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from tree import Tree, error  # noqa: E402

LIST = "schema/sentences.json"
TEXTS = re.compile(r"ui/src/text/(\w+)/server/(?!index)[^/]+\.ts$")

# What begins so belongs to the area. The command line's own sentences, and those of /v1 alone, are in none.
AREAS = {
    "alerts": ("server/alerts/",),
    "api": ("server/api/", "server/app", "server/standby.c", "server/usage/", "server/conversations/"),
    "cluster": ("server/cluster/", "server/thermal/", "server/local_node.c"),
    "instances": ("server/instances/",),
    "library": ("server/library/", "server/hub/"),
    "placement": ("server/placement/",),
    "security": ("server/security/", "server/secrets.c", "server/identity.c"),
    "tenants": ("server/tenants/",),
    "wire": ("common/base/", "common/json/", "common/wire/", "common/text/"),
    "convert": ("server/convert/",),
    "journal": ("common/journal/",),
    "model": ("engine/model/",),
    "net": ("common/net/", "common/files/", "common/work/"),
    "node": ("engine/node/", "engine/device/", "engine/telemetry/"),
    "prompts": ("engine/text/", "engine/jinja/", "engine/grammar/", "engine/generation/"),
    "store": ("server/store/",),
    "worker": ("engine/worker/",),
    "backends": ("engine/cpu/", "engine/cuda/", "engine/vulkan/", "engine/nvrtc/", "engine/dialogue/"),
    "engine": ("engine/",),
}
COMPLETE = ("alerts", "api", "backends", "cluster", "convert", "engine", "instances", "journal", "library", "model", "net", "node",
            "placement", "prompts", "security", "store", "tenants", "wire", "worker")

# Literals in calls of these are for the log, for the command line, or are compared and not shown.
ELSEWHERE = re.compile(r"(log_\w+|f?printf|fputs|command_\w+|_?[sS]tatic_assert|assert|strn?cmp|strstr|memcmp|f?sscanf|"
                       r"db_\w+|postgres_\w+|usage|table_add|text_is|contains|rpc_init)$")
SENTENCE = re.compile(r"[a-z]{2,}[,:;]? [a-z%\"(]|% [a-z]")  # of a text whose conversions are % alone
NO_SENTENCE = re.compile(r"SELECT |INSERT |UPDATE |DELETE |CREATE |PRAGMA|FROM |WHERE |^[A-Z][\w-]+: %|^[a-z]+-[\w-]+: %|^Content-Type:|^You are (?:a |Qwen)|^exogpu (?:row|%s %s$)|^, bound|%p|^vulkan %|^<\||^extern |^(?:Authorization: )?Bearer %|\\n|^[\w-]+(, [\w.-]+)+$")
# Sentences and parts of sentences that do not look it.
WORDS = {"GPUs alone", "TLS failed", "a NUL byte", "added", "by ", "changed", "found", "joined", "nodes", "not JSON", "online", "removed",
         "the GPUs", "through "}
# What is printed is the name of a machine, a person, a file or the like: never a sentence, whatever it is called.
NAME = re.compile(r"(?:^|\W|_)(?:name|id|path|file|folder|directory|dir|host|address|uri|url|source|method|model|sha256|fingerprint)"
                  r"(?:\[\w+\])?$|^(?:topology_node_name|why_node_name|gather_name|cluster_device_id|file_of|json_name)\(")
WORD_CALL = re.compile(r"^\w+_text\(")  # of those that give single words
# Files without any: a program that tries to leave its confinement, and the names of columns.
SILENT = ("engine/worker/confine/escape.c", "server/store/tables.c")
# Here a literal outside of calls names the parameters of a function of templates.
PARAMETERS = ("engine/jinja/call.c", "engine/jinja/filters.c", "engine/jinja/list_filters.c", "engine/jinja/text_methods.c")
# What joins two sentences; common/wire/said.c makes them.
JOINTS = ("%s%s", "%s%s%s")
MOST_BYTES = 1024
PRINTS = {"PRIu64": "lu", "PRId64": "ld", "PRIu32": "u", "PRIx64": "lx", "PRIX64": "lX", "PRIu16": "u", "PRIu8": "u"}
TOKEN = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|[A-Za-z_]\w*|\\\n|\s+|.", re.S)
CONVERSION = re.compile(r"%[-+#0]*(?:\d+|\*)?(?:\.(?:\d+|\*)?)?(?:hh|h|ll|l|z|j|t)?[a-zA-Z]")
# What said.c can read back. A `*` stands for a value of its own, which is not told.
KNOWN_CONVERSION = re.compile(r"%[-+#0]*(?:\d+|\*)?(?:\.(?:\d+|\*)?)?(?:hh|h|ll|l|z|j|t)?[diuxXfFeEgGcs]$")


def literals(text):
    """(text, names of the calls around it, what is printed into it) of each string literal; those that stand together are one."""
    tokens = [token for token in TOKEN.findall(re.sub(r"^[ \t]*#[ \t]*(?:include|if|error|pragma)\b[^\n]*", "", text, flags=re.M))
              if not token.isspace() and not token.startswith(("/*", "//", "\\"))]
    calls, at = [], 0
    while at < len(tokens):
        token = tokens[at]
        if token in "([{":
            calls.append(tokens[at - 1] if token == "(" and at and re.match(r"\w", tokens[at - 1]) else "")
        elif token in ")]}" and calls:
            calls.pop()
        elif token[0] == '"':
            parts = []
            while at < len(tokens) and (tokens[at][0] == '"' or tokens[at] in PRINTS):
                parts.append(tokens[at][1:-1] if tokens[at][0] == '"' else PRINTS[tokens[at]])
                at += 1
            yield "".join(parts), [call for call in calls if call], values(tokens, at) if "%" in "".join(parts) else []
            continue
        at += 1


def values(tokens, at):
    """The expressions behind the literal that ends at `at`, up to the end of its call."""
    found, depth = [], 0
    while at < len(tokens) and tokens[at] != ";":
        token = tokens[at]
        depth += (token in "([{") - (token in ")]}")
        if depth < 0:
            break
        if token == "," and not depth:
            found.append("")
        elif found:
            found[-1] += token
        at += 1
    return found


def place(value):
    """What is printed there: "n" the name of something, "w" perhaps a single word of ours, "." anything else."""
    if NAME.search(value) and '"' not in value:
        return "n"
    return "w" if any('"%s"' % word in value for word in WORDS) or WORD_CALL.search(value) else "."


def told(key, expressions):
    """The places of one use of a key, one character for each value: "n.w"."""
    out, at = "", 0
    for one in CONVERSION.findall(key.replace("%%", "\0\0")):
        at += one.count("*")
        out += place(expressions[at]) if one.endswith("s") and at < len(expressions) else "."
        at += 1
    return out


def plain(literal):
    """What the compiler makes of the escapes."""
    return literal.encode("utf-8").decode("latin-1").encode("latin-1").decode("unicode_escape").encode("latin-1") \
        .decode("utf-8")


def is_sentence(text, calls):
    return (text in WORDS or bool(SENTENCE.search(CONVERSION.sub("%", text)))) and not NO_SENTENCE.search(text) and len(text.encode()) <= MOST_BYTES \
        and not text.startswith(("{", "/")) and not any(ELSEWHERE.match(call) for call in calls)


def extract(tree):
    """{area: [key]}, each key once, in the area that has it first."""
    found, seen = {}, set(JOINTS)
    for area, folders in AREAS.items():
        keys = set(JOINTS) if area == "wire" else set()
        for path in tree.ending(".c", ".h"):
            if path.startswith(folders) and path not in SILENT:
                for literal, calls, _ in literals(tree.text(path)):
                    if is_sentence(literal, calls) and literal not in seen and (calls or path not in PARAMETERS):
                        seen.add(literal)
                        keys.add(plain(literal))
        found[area] = sorted(keys)
    return found


def places_of(tree, found):
    """{key: places} of the keys that a name or a single word is printed into. A name must be one wherever the key is used."""
    keys, uses = {key for area in found.values() for key in area}, collections.defaultdict(set)
    for path in tree.ending(".c", ".h"):
        if path.startswith(tuple(folder for folders in AREAS.values() for folder in folders)):
            for literal, calls, expressions in literals(tree.text(path)):
                if expressions and is_sentence(literal, calls) and plain(literal) in keys:
                    uses[plain(literal)].add(told(plain(literal), expressions))
    merged = {key: "".join(one.pop() if len(one) == 1 else "w" if "w" in one else "." for one in map(set, zip(*uses[key])))
              for key in sorted(uses)}
    return {key: places for key, places in merged.items() if places.strip(".")}


def printed(found, places):
    return json.dumps({**found, "places": places}, indent=1, ensure_ascii=False) + "\n"


ENTRY = re.compile(r'^\s*("(?:[^"\\]|\\.)*"):\s*("(?:[^"\\]|\\.)*"),?$', re.M)


def texts(tree):
    """{language: {key: (path, line, text)}}, and a finding for each key that stands twice."""
    languages, findings = collections.defaultdict(dict), []
    for path in tree.files:
        match = TEXTS.match(path)
        if not match:
            continue
        for entry in ENTRY.finditer(tree.text(path)):
            key, text = json.loads(entry.group(1)), json.loads(entry.group(2))
            line = tree.text(path).count("\n", 0, entry.start(1)) + 1
            if key in languages[match.group(1)]:
                findings.append(error(path, line, "sentences", "a text for \"%s\" stands twice" % key))
            languages[match.group(1)][key] = path, line, text
    return languages, findings


def places(key):
    """({numbers of its values}, {those that an English word ends with: "layer%s"}): other languages have other plurals."""
    found = list(CONVERSION.finditer(key.replace("%%", "\0\0")))
    endings = {str(i + 1) for i, one in enumerate(found) if one.group().endswith("s") and re.search(r"[a-z]$", key[:one.start()])}
    return {str(i + 1) for i in range(len(found))}, endings


def misplaced(key, text):
    """What is wrong with the places of a text: {1}, or {1n} for a noun that may take an n."""
    given, (numbers, endings) = set(re.findall(r"\{(\d+)n?\}", text)), places(key)
    lacking = sorted(numbers - endings - given, key=int)
    return ", ".join(["without {%s}" % one for one in lacking] + ["with {%s}" % one for one in sorted(given - numbers)])


def check(tree):
    if LIST not in tree.files:
        return
    found = extract(tree)
    if tree.text(LIST) != printed(found, places_of(tree, found)):
        yield error(LIST, 1, "sentences", "it is not what the sources say: python3 -B tools/lint/sentences.py")
    keys = {key: area for area in found for key in found[area]}
    for key in keys:
        for one in CONVERSION.findall(key.replace("%%", "")):
            if not KNOWN_CONVERSION.match(one):
                yield error(LIST, 1, "sentences", "common/wire/said.c does not know %s of \"%s\"" % (one, key))
    languages, findings = texts(tree)
    yield from findings
    for language, given in languages.items():
        for key, (path, line, text) in given.items():
            if key not in keys:
                yield error(path, line, "sentences", "no source says \"%s\"" % key)
            elif misplaced(key, text):
                yield error(path, line, "sentences", "the text for \"%s\" is %s" % (key, misplaced(key, text)))
        for key, area in keys.items():
            if area in COMPLETE and key not in given:
                yield error(LIST, 1, "sentences", "%s has no text for \"%s\" (%s)" % (language, key, area))


def main(arguments):
    sources = Tree(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    found = extract(sources)
    if arguments == ["--lacking"]:
        languages = texts(sources)[0]
        for language in languages or {"de": {}}:
            print(json.dumps({area: [key for key in found[area] if key not in languages.get(language, {})] for area in found},
                             indent=1, ensure_ascii=False))
        return 0
    with open(os.path.join(sources.root, LIST), "w", encoding="utf-8") as file:
        file.write(printed(found, places_of(sources, found)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
