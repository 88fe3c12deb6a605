#!/usr/bin/env python3
"""Compares catalog/models.json with the hub: ./dev check-catalog.

usage: check_catalog.py [--hub-url URL] [--timeout SECONDS] [FILE]

Of each entry the hub is asked for the size, the SHA-256 and the licence of the file at the entry's revision, and for the
beginning of the file itself, whose header says the geometry. Prints what differs, and what the hub says where the file
has null. Ends with 0 if nothing differs, with 1 if something does, and with 77 and the reason where the hub cannot be
reached: then nothing was compared.
"""
import argparse
import http.client
import json
import pathlib
import struct
import sys
import urllib.error
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77
FIRST_BYTES, MOST_BYTES = 1 << 20, 1 << 26  # of a file's beginning
JSON_BYTES = 1 << 24
POOLINGS = {1: "mean", 2: "first", 3: "last", 4: "rank"}
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9


class Unreachable(Exception):
    pass


class Short(Exception):
    """The header goes on behind the bytes that are there."""


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        if count > len(self.data) - self.at:
            raise Short
        self.at += count
        return self.data[self.at - count:self.at]

    def number(self, kind):
        return struct.unpack("<" + kind, self.take(struct.calcsize("<" + kind)))[0]

    def text(self):
        return self.take(self.number("Q")).decode("utf-8", "replace")

    def value(self, kind):
        """A value; of an array its length alone."""
        if kind == STRING:
            return self.text()
        if kind in SCALARS:
            return self.number(SCALARS[kind])
        if kind != ARRAY:
            raise ValueError(f"a value of the unknown type {kind}")
        element, count = self.number("I"), self.number("Q")
        if element in SCALARS:
            self.take(count * struct.calcsize("<" + SCALARS[element]))
        else:
            for _ in range(count):
                self.value(element)
        return count


def read_header(data):
    """The metadata of a GGUF file and the names of its tensors. Raises Short, ValueError."""
    reader = Reader(data)
    if reader.take(4) != b"GGUF":
        raise ValueError("it is no GGUF file")
    reader.number("I")
    tensors, keys = reader.number("Q"), reader.number("Q")
    if tensors > 1 << 16 or keys > 1 << 16:
        raise ValueError("its header cannot be so")
    values = {}
    for _ in range(keys):
        name = reader.text()
        values[name] = reader.value(reader.number("I"))
    names = set()
    for _ in range(tensors):
        names.add(reader.text())
        reader.take(8 * reader.number("I") + 4 + 8)
    return values, names


def geometry_of(values, tensors):
    """As catalog/schema.json has it."""
    architecture = values.get("general.architecture")

    def of(name, otherwise=None):
        return values.get(f"{architecture}.{name}", otherwise)

    heads = of("attention.head_count")
    experts = of("expert_count", 0)
    inner = of("feed_forward_length", 0)
    geometry = {"architecture": architecture, "layers": of("block_count", 0) - of("nextn_predict_layers", 0),
                "embedding": of("embedding_length"), "heads": heads, "kv_heads": of("attention.head_count_kv", heads),
                "head_size": of("attention.key_length", of("embedding_length", 0) // max(1, heads or 1)),
                "vocabulary": values.get("tokenizer.ggml.tokens"), "context": of("context_length"),
                "tied": "output.weight" not in tensors,
                "feed_forward": 0 if experts and not any(".ffn_up.weight" in one for one in tensors) else inner}
    if experts:
        geometry |= {"experts": experts, "experts_used": of("expert_used_count"),
                     "expert_width": of("expert_feed_forward_length", inner)}
    if of("ssm.time_step_rank"):
        geometry["delta"] = {"key_heads": of("ssm.group_count"), "heads": of("ssm.time_step_rank"),
                             "key_size": of("ssm.state_size"),
                             "value_size": of("ssm.inner_size", 0) // of("ssm.time_step_rank"),
                             "kernel": of("ssm.conv_kernel")}
    if of("pooling_type"):
        geometry["pooling"] = POOLINGS.get(of("pooling_type"), "unknown")
    return geometry


class Hub:
    def __init__(self, url, timeout):
        self.url, self.timeout = url.rstrip("/"), timeout

    def ask(self, path, most, span=None):
        """The answer's bytes, `most` at most; None if the hub does not have it. Raises Unreachable."""
        request = urllib.request.Request(self.url + path, headers={"Range": f"bytes={span}"} if span else {})
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as answer:
                return answer.read(most)
        except urllib.error.HTTPError as error:
            if error.code in (401, 403, 404, 410):
                return None
            raise Unreachable(f"{self.url} answers with HTTP {error.code}") from error
        except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
            raise Unreachable(f"{self.url}: {getattr(error, 'reason', error)}") from error

    def about(self, repository, revision):
        path = f"/api/models/{urllib.parse.quote(repository)}" + (f"/revision/{revision}" if revision else "") + "?blobs=true"
        answer = self.ask(path, JSON_BYTES)
        return None if answer is None else json.loads(answer)

    def header(self, repository, revision, file):
        path = f"/{urllib.parse.quote(repository)}/resolve/{revision or 'main'}/{urllib.parse.quote(file)}"
        size = FIRST_BYTES
        while size <= MOST_BYTES:
            data = self.ask(path, size, span=f"0-{size - 1}")
            if data is None:
                raise ValueError("the hub does not give the file")
            try:
                return read_header(data)
            except Short:
                size *= 4
        raise ValueError(f"its header is longer than {MOST_BYTES} bytes")


def differences(entry, hub):
    """What the hub says otherwise, and what it says where the entry has null: (name, here, there)."""
    about = hub.about(entry["repository"], entry["revision"])
    if about is None:
        return [("repository", f"{entry['repository']} at {entry['revision'] or 'main'}", "not there, or not open to everybody")]
    file = next((one for one in about.get("siblings", []) if one.get("rfilename") == entry["file"]), None)
    if file is None:
        return [("file", entry["file"], "not there")]
    lfs = file.get("lfs") or {}
    there = {"revision": about.get("sha"), "bytes": lfs.get("size", file.get("size")), "sha256": lfs.get("sha256"),
             "licence": (about.get("cardData") or {}).get("license")}
    if entry["revision"] and not there["revision"]:
        there["revision"] = entry["revision"]
    found = [(name, entry[name], value) for name, value in there.items() if value is not None and value != entry[name]]
    try:
        geometry = geometry_of(*hub.header(entry["repository"], entry["revision"], entry["file"]))
    except ValueError as error:
        return found + [("geometry", "", str(error))]
    here = entry["geometry"] or {}
    return found + [(f"geometry.{name}", here.get(name), value) for name, value in geometry.items() if here.get(name) != value]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hub-url", default="https://huggingface.co")
    parser.add_argument("--timeout", type=float, default=20)
    parser.add_argument("file", nargs="?", default=ROOT / "catalog/models.json")
    arguments = parser.parse_args()
    models = json.loads(pathlib.Path(arguments.file).read_text(encoding="utf-8"))["models"]
    hub, wrong, unknown = Hub(arguments.hub_url, arguments.timeout), 0, 0
    for entry in models:
        try:
            found = differences(entry, hub)
        except Unreachable as error:
            print(f"skipped: the hub cannot be reached: {error}. {'No entry' if entry is models[0] else 'Not every entry'} was compared.",
                  file=sys.stderr)
            return SKIPPED
        print(f"{'as at the hub' if not found else 'otherwise':14} {entry['id']}")
        for name, here, there in found:
            wrong += here is not None
            unknown += here is None
            print(f"  {name}: {'not known here' if here is None else f'{here} here'}, {there} at the hub")
    print(f"{len(models)} entries, {wrong} values are otherwise, {unknown} that are null here are known there")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
