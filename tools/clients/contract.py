"""schema/api.json as the writers of clients see it: names, units and the words that stand beside a value.

Knows the part of JSON Schema that the contract uses and raises Unknown at anything else, so that a new keyword is
noticed by whoever adds it and never left out of a client silently.
"""
import json
import re

# What a name says about its value: the longest ending that fits counts.
UNITS = (
    ("_bytes_per_s", "bytes per second"), ("_tokens_per_s", "tokens per second"), ("_per_s", "per second"),
    ("_tokens", "tokens"), ("_bytes", "bytes"), ("_ms", "milliseconds"), ("_us", "microseconds"), ("_s", "seconds"),
    ("_percent", "percent"), ("_watts", "watts"), ("_joules", "joules"), ("_celsius", "degrees Celsius"),
    ("_mhz", "megahertz"), ("_at", "RFC 3339, UTC"),
)
NOTES = {"description", "title", "format"}
BOUNDS = {"minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "pattern"}
SHAPES = {"type", "$ref", "enum", "const", "anyOf", "items", "properties", "required", "additionalProperties"}


class Unknown(Exception):
    """The contract holds something that the writers do not know."""


def camel(words):
    """"memory.allocate", "device_lost" -> "MemoryAllocate", "DeviceLost"."""
    return "".join(word[:1].upper() + word[1:] for word in re.split(r"[^A-Za-z0-9]+", words))


def unit(name):
    if name == "bytes":
        return "bytes"
    return next((words for ending, words in UNITS if name.endswith(ending)), "")


def bounds(schema):
    """"0 to 255", "at most 64 items": what a value that is sent must keep to."""
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        return "%s to %s" % (low, high)
    if low is not None or high is not None:
        return "at least %s" % low if high is None else "at most %s" % high
    for key, text in (("maxLength", "at most %s characters"), ("maxItems", "at most %s items")):
        if key in schema:
            return text % schema[key]
    return ""


def note(name, schema, sent=False):
    """A line about the value of that name: its unit, for one that is sent also its bounds, and what the contract says."""
    parts = [unit(name), bounds(schema) if sent else "", schema.get("description", "")]
    return ". ".join(part[:1].upper() + part[1:].rstrip(".") for part in parts if part)


def reference(schema):
    found = re.match(r"^#/components/schemas/(\w+)$", schema["$ref"])
    if not found:
        raise Unknown("a reference to %s; only #/components/schemas/NAME is known" % schema["$ref"])
    return found.group(1)


class Contract:
    """The document, with `reasons` {word: {code, message}}, `methods`, `topics`, `notices` {method: schema name}."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            self.document = document = json.load(file)
        self.schemas = document["components"]["schemas"]
        self.reasons = document["components"]["errors"]
        self.methods = document["methods"]
        self.topics = document["x-events"]["topics"]
        self.notices = {name: reference(schema) for name, schema in document["x-notifications"].items()
                        if name != "description"}
        for name, schema in self.schemas.items():
            self.check(name, schema)
        for method in self.methods:
            for param in method["params"]:
                self.check(method["name"], param["schema"])
            self.check(method["name"], method["result"]["schema"])

    def check(self, where, schema):
        for key in schema:
            if key not in NOTES | BOUNDS | SHAPES and not key.startswith("x-"):
                raise Unknown("%s: the keyword %s is unknown to tools/clients" % (where, key))
        if "$ref" in schema and reference(schema) not in self.schemas:
            raise Unknown("%s: no schema %s" % (where, reference(schema)))
        inner = [*schema.get("anyOf", []), *schema.get("properties", {}).values(), schema.get("items"),
                 schema.get("additionalProperties")]
        for part in inner:
            if isinstance(part, dict):
                self.check(where, part)

    def nullable(self, schema):
        if "$ref" in schema:
            return self.nullable(self.schemas[reference(schema)])
        kinds = schema.get("type", [])
        return "null" in ([kinds] if isinstance(kinds, str) else kinds) or None in schema.get("enum", []) \
            or any(self.nullable(part) for part in schema.get("anyOf", []))

    @staticmethod
    def errors(method):
        return [each["$ref"].rsplit("/", 1)[-1] for each in method.get("errors", [])]

    @staticmethod
    def body(method):
        """Of a call: None, "optional" or "required", as the first word of x-body says (common/wire/contract.c)."""
        text = method.get("x-body", "")
        return None if not text else "required" if text.startswith("required") else "optional"
