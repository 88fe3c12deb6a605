"""JSON Schemas drawn at random, one a line, for tests/bench/grammar.c: schemas.py COUNT [SEED].

Every kind that is kept, up to four levels deep; one of ten is recursive.
"""
import json
import random
import sys

NAMES = ["name", "age", "a", "ab", "abc", "b c", "é", 'quo"te', "items", "address", "x-y", "id", "description", "tags"]
PATTERNS = [r"^[a-c]{2,4}$", r"^(x|yz)\d\d", r"^\+?[0-9 ()-]{5,12}$", r"^[A-Z]{2}-\d{4}$", r"foo|^bar$", r"^\S+@\S+$", r"[\u00e9\"\\]"]
FORMATS = ["date-time", "date", "time", "uuid", "email", "hostname", "ipv4", "ipv6", "uri", "duration"]
VALUES = ["red", "green", "blue", 1, 2.5, None, True, 'a"b', "é", [1, {"x": 2}]]


def whole(low, high):
    return random.randint(low, high)


def plain():
    return random.choice([
        lambda: {"type": "integer", "minimum": whole(-10 ** whole(1, 9), 0), "maximum": whole(1, 10 ** whole(1, 9))},
        lambda: {"type": "integer", "exclusiveMinimum": whole(-100, 100)},
        lambda: {"type": "integer"},
        lambda: {},
        lambda: {"type": "number"},
        lambda: {"type": "number", "minimum": whole(-5, 0), "exclusiveMaximum": whole(1, 50)},
        lambda: {"type": "string"},
        lambda: {"type": "string", "minLength": whole(0, 4), "maxLength": whole(5, 60)},
        lambda: {"type": "string", "pattern": random.choice(PATTERNS)},
        lambda: {"type": "string", "format": random.choice(FORMATS)},
        lambda: {"enum": random.sample(VALUES, whole(1, 6))},
        lambda: {"const": random.choice(["x", -1, False, {"k": "v"}])},
        lambda: {"type": ["string", "null"], "maxLength": 10},
        lambda: {"type": "boolean"},
    ])()


def record(depth):
    names = random.sample(NAMES, whole(1, 6))
    out = {"type": "object", "properties": {name: schema(depth + 1) for name in names}, "required": [name for name in names if random.random() < 0.6]}
    if random.random() < 0.6:
        out["additionalProperties"] = random.choice([False, False, False, True, {"type": "integer"}, {"type": "string", "maxLength": 4}])
    return out


def options(depth):
    first = {"type": "object", "properties": {"kind": {"const": "a"}, "v": schema(depth + 1)}, "required": ["kind"]}
    second = {"type": "object", "properties": {"kind": {"const": "b"}}, "required": ["kind", "z"], "additionalProperties": {"type": "integer"}}
    return {"oneOf": [first, second]}


def schema(depth=0):
    if depth == 0:
        return record(depth)
    if depth > 2 or random.random() < 0.55:
        return plain()
    return random.choice([
        lambda: {"type": "array", "items": schema(depth + 1), "minItems": whole(0, 2), "maxItems": whole(2, 4)},
        lambda: {"type": "array", "items": schema(depth + 1)},
        lambda: {"type": "array", "prefixItems": [schema(depth + 1), schema(depth + 1)], "minItems": whole(0, 3)},
        lambda: {"anyOf": [schema(depth + 1), schema(depth + 1), {"type": "null"}]},
        lambda: options(depth),
        lambda: {"allOf": [{"type": "object", "properties": {"a": schema(depth + 1)}, "required": ["a"]}, {"properties": {"b": schema(depth + 1)}}]},
        lambda: record(depth),
    ])()


def recursive():
    node = {"type": "object", "properties": {"value": schema(2), "children": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2}}, "required": ["value"]}
    return {"$defs": {"node": node}, "$ref": "#/$defs/node"}


random.seed(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
for i in range(int(sys.argv[1])):
    print(json.dumps(schema() if i % 10 else recursive(), ensure_ascii=bool(i % 2)))
