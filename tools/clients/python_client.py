"""Writes the Python face of the contract, exogpu/api.py: a TypedDict for every record, an exception for every reason,
and for every group of methods a class with a coroutine for each and one with a plain function for each.
"""
import json
import keyword
import textwrap

from contract import Unknown, camel, note, reference

BASIC = {"string": "str", "number": "float", "integer": "int", "boolean": "bool", "null": "None"}
WIDTH = 118
# Names that a method's own parameters may not take from what every method has.
TAKEN = {"self", "body", "into", "timeout"}

HEAD = '''"""Every method, event and error of the server, typed. Made from schema/api.json by tools/clients/generate.py."""
from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, NotRequired, TypeAlias, TypedDict

from .errors import ApiError
from .groups import UNSET, AsyncCaller, AsyncGroup, SyncCaller, SyncGroup, Unset, given

if TYPE_CHECKING:
    from typing_extensions import Buffer
'''


def name_of(text):
    return text + "_" if keyword.iskeyword(text) or text in TAKEN else text


def docstring(lines, indent):
    """Paragraphs, wrapped; an entry of two parts is a name and what is said of it."""
    pad, out = " " * indent, []
    for line in lines:
        hang = "    " if isinstance(line, tuple) else ""
        text = "%s: %s" % line if isinstance(line, tuple) else line
        out += textwrap.wrap(text.replace("\\", "\\\\").replace('"""', "'''"), WIDTH - indent, initial_indent=pad,
                             subsequent_indent=pad + hang, break_long_words=False, break_on_hyphens=False) or [""]
    if not out:
        return ""
    text = "\n".join(out).lstrip()
    end = "\n%s" % pad if "\n" in text or len(text) + indent > WIDTH - 6 else ""
    return '%s"""%s%s"""\n' % (pad, text, end)


class Writer:
    def __init__(self, contract):
        self.contract = contract
        self.names = set()
        self.out = [HEAD]

    def claim(self, name):
        if name in self.names:
            raise Unknown("two things would be called %s" % name)
        self.names.add(name)
        return name

    # `name`: what a record that has no name of its own is called, by the way to it. `many`: the type of an array.
    def type_of(self, schema, name, many="list"):
        if "$ref" in schema:
            return reference(schema)
        if "const" in schema or "enum" in schema:
            values = schema.get("enum", [schema.get("const")])
            return "Literal[%s]" % ", ".join(json.dumps(value, ensure_ascii=False) if isinstance(value, str)
                                             else repr(value) for value in values)
        if "anyOf" in schema:
            return " | ".join(dict.fromkeys(self.type_of(part, self.variant(name, schema, part), many)
                                            for part in schema["anyOf"]))
        kind = schema.get("type")
        if isinstance(kind, list):
            return " | ".join(self.type_of({**schema, "type": one}, name, many) for one in kind)
        if kind == "array":
            return "%s[%s]" % (many, self.type_of(schema["items"], name, many) if "items" in schema else "object")
        if kind == "object":
            return self.object_of(schema, name)
        if kind in BASIC:
            return BASIC[kind]
        raise Unknown("%s: a schema without a type that is known" % name)

    def variant(self, name, schema, part):
        """One record of several is called by its keys: KernelArgumentF32."""
        records = [each for each in schema["anyOf"] if each.get("type") == "object"]
        return name if len(records) < 2 else name + camel("_".join(part.get("required", [])))

    def object_of(self, schema, name):
        if schema.get("properties"):
            self.record(name, schema)
            return name
        more = schema.get("additionalProperties")
        return "dict[str, %s]" % (self.type_of(more, name + "Value") if isinstance(more, dict) else "object")

    def record(self, name, schema):
        self.claim(name)
        required, fields = schema.get("required", []), []
        for key, part in schema["properties"].items():
            kind = self.type_of(part, name + camel(key))
            fields.append((key, kind if key in required else "NotRequired[%s]" % kind, note(key, part)))
        said = docstring([schema["description"]] if schema.get("description") else [], 4)
        if all(key.isidentifier() and not keyword.iskeyword(key) for key, _, _ in fields):
            lines = ["class %s(TypedDict):\n%s" % (name, said)]
            for key, kind, about in fields:
                lines += textwrap.wrap(about, WIDTH, initial_indent="    # ", subsequent_indent="    # ",
                                       break_on_hyphens=False)
                lines.append("    %s: %s" % (key, kind))
            self.out.append("\n" + "\n".join(lines) + "\n")
        else:
            lines = ["    %s: %s," % (json.dumps(key), json.dumps(kind) if '"' not in kind else repr(kind))
                     for key, kind, _ in fields]
            self.out.append("\n%s = TypedDict(\"%s\", {\n%s\n})\n" % (name, name, "\n".join(lines)))

    def alias(self, name, kind):
        self.claim(name)
        self.out.append("%s: TypeAlias = %s\n" % (name, json.dumps(kind) if '"' not in kind else repr(kind)))

    def schemas(self):
        for name, schema in self.contract.schemas.items():
            if schema.get("type") == "object" and schema.get("properties"):
                self.record(name, schema)
            else:
                self.alias(name, self.type_of(schema, name))

    def errors(self):
        names = {}
        for reason, entry in self.contract.reasons.items():
            name = names[reason] = self.claim(camel(reason) + "Error")
            # What Python has of that name is meant, too: `except TimeoutError` finds it.
            also = ", builtins.%s" % name if hasattr(__import__("builtins"), name) else ""
            self.out.append("\nclass %s(ApiError%s):\n%s    reason: ClassVar[str] = %s\n    code: ClassVar[int] = %d\n" % (
                name, also, docstring([entry["message"] + "."], 4), json.dumps(reason), entry["code"]))
        self.out.append("\nERRORS: dict[str, type[ApiError]] = {\n%s\n}\n" % "\n".join(
            "    %s: %s," % (json.dumps(reason), name) for reason, name in names.items()))
        self.out.append("CLOSE_CODES: dict[int, str] = {\n%s\n}\nSUBPROTOCOL = %s\n" % ("\n".join(
            "    %s: %s," % (code, json.dumps(text, ensure_ascii=False))
            for code, text in self.contract.document["x-close-codes"].items()), json.dumps(self.contract.document["x-subprotocol"])))

    def events(self):
        names = []
        for topic, event in self.contract.topics.items():
            names.append(self.claim(camel(topic) + "Message"))
            self.out.append("\nclass %s(TypedDict):\n%s    topic: Literal[%s]\n    epoch: str\n    seq: int\n    at: Time\n    data: %s\n" % (
                names[-1], docstring([event["description"]] if event.get("description") else [], 4), json.dumps(topic),
                self.type_of(event["schema"], camel(topic) + "Data")))
        self.alias("Event", " | ".join(names))
        self.alias("Topic", "Literal[%s]" % ", ".join(map(json.dumps, self.contract.topics)))
        names = []
        for method, schema in self.contract.notices.items():
            names.append(self.claim(camel(method) + "Notification"))
            self.out.append("\nclass %s(TypedDict):\n    method: Literal[%s]\n    params: %s\n" % (names[-1], json.dumps(method), schema))
        self.alias("Notification", " | ".join(names))

    def methods(self):
        groups, results = {}, {}
        for method in self.contract.methods:
            groups.setdefault(method["name"].split(".")[0], []).append(method)
            results[method["name"]] = self.type_of(method["result"]["schema"], camel(method["name"]) + "Result")
            for param in method["params"]: # the records that only a parameter has, before the classes
                param["x-python"] = self.type_of(param["schema"], camel(method["name"]) + camel(param["name"]), "Sequence")
        for word, prefix in (("Async", "Async"), ("Sync", "")):
            for group, methods in groups.items():
                name = self.claim("%s%sMethods" % (prefix, camel(group)))
                self.out.append("\n\nclass %s(%sGroup):\n%s" % (
                    name, word, docstring(["The methods %s.*" % group], 4)))
                self.out += [self.method(method, results[method["name"]], word == "Async") for method in methods]
            self.out.append("\n\nclass %sApi:\n%s\n    def __init__(self, caller: %sCaller) -> None:\n%s\n" % (
                prefix, docstring(["Every method of the server, by group: api.memory.allocate(...)."], 4), word, "\n".join(
                    "        self.%s = %s%sMethods(caller)" % (name_of(group), prefix, camel(group)) for group in groups)))

    def method(self, method, result, is_async):
        """One function. What is required may be given by place, the rest by name only."""
        sent, optional, signature, said = [], [], ["self"], [method["summary"], ""]
        for param in method["params"]:
            name, kind, place = name_of(param["name"]), param["x-python"], json.dumps(param["name"])
            about = note(param["name"], param["schema"], True)
            if about:
                said.append((name, about + "."))
            if param.get("required"):
                signature.append("%s: %s" % (name, kind))
                sent.append("%s: %s" % (place, name))
            elif self.contract.nullable(param["schema"]): # None is a value of it
                optional.append("%s: %s | Unset = UNSET" % (name, kind))
                sent.append("**given({%s: %s}, UNSET)" % (place, name))
            else:
                optional.append("%s: %s | None = None" % (name, kind))
                sent.append("**given({%s: %s})" % (place, name))
        extra, body = [], self.contract.body(method)
        if body:
            (signature if body == "required" else optional).append("body: Buffer" + ("" if body == "required" else " | None = None"))
            said.append(("body", method["x-body"] + "."))
            extra.append("body=body")
        if "x-result-body" in method:
            optional.append("into: Buffer | None = None")
            said.append(("into", "Writable memory that receives the body, which then is a view of it."))
            extra.append("into=into")
            result = "tuple[%s, memoryview]" % result
        said.append(("timeout", "Seconds to wait for the answer; None: as the client was told."))
        errors = self.contract.errors(method)
        said += ["", "Scope: %s.%s" % (method["x-scope"], " Errors: %s." % ", ".join(errors) if errors else "")]
        optional.append("timeout: float | None = None")
        name = method["name"].split(".", 1)[1].replace(".", "_")
        call = "self._call%s(\n            %s, {%s},\n            %s)" % (
            "_body" if "x-result-body" in method else "", json.dumps(method["name"]), ", ".join(sent),
            ", ".join([*extra, "timeout=timeout"]))
        return "\n    %sdef %s(\n        %s,\n    ) -> %s:\n%s        answer: %s = %s%s\n        return answer\n" % (
            "async " if is_async else "", name_of(name), ",\n        ".join([*signature, "*", *optional]), result,
            docstring(said, 8), result, "await " if is_async else "", call)


def write(contract):
    writer = Writer(contract)
    writer.schemas()
    writer.errors()
    writer.events()
    writer.methods()
    return "".join(writer.out)
