"""The files of the repository as the rules see them, and the two languages without comments and strings."""
import os
import re
import subprocess

SKIPPED_FOLDERS = {".git", "build", "node_modules", "__pycache__"}
BYTES = ("tests/fuzz/known/",)  # inputs for programs, not text
BINARY = {".png", ".jpg", ".webp", ".ico", ".gz", ".spv", ".bin", ".woff2", ".gguf", ".safetensors", ".db", ".pdf"}


class Finding:
    def __init__(self, severity, path, line, rule, message):
        self.severity, self.path, self.line, self.rule, self.message = severity, path, line, rule, message

    def __str__(self):
        return "%s:%d: %s: %s (%s)" % (self.path, self.line, self.severity, self.message, self.rule)


def error(path, line, rule, message):
    return Finding("error", path, line, rule, message)


def warning(path, line, rule, message):
    return Finding("warning", path, line, rule, message)


class Tree:
    """`all`: every file that git would take, as a path from the root; `files`: the text files of them, sorted."""

    def __init__(self, root):
        self.root = root
        self.texts, self.codes = {}, {}
        self.all = self._list()
        self.files = sorted(path for path in self.all
                            if os.path.splitext(path)[1] not in BINARY and not path.startswith(BYTES))

    def _list(self):
        try:
            out = subprocess.run(["git", "-C", self.root, "ls-files", "-coz", "--exclude-standard"],
                                 check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
            names = [os.fsdecode(name) for name in out.split(b"\0") if name]
        except (OSError, subprocess.CalledProcessError):
            names = self._walk()  # a source archive, or no git
        return [name for name in set(names) if os.path.isfile(os.path.join(self.root, name))
                and not os.path.islink(os.path.join(self.root, name))]

    def _walk(self):
        for folder, folders, names in os.walk(self.root):
            folders[:] = [name for name in folders if name not in SKIPPED_FOLDERS]
            for name in names:
                yield os.path.relpath(os.path.join(folder, name), self.root)

    def ending(self, *endings):
        return [path for path in self.files if path.endswith(endings)]

    def text(self, path):
        if path not in self.texts:
            with open(os.path.join(self.root, path), encoding="utf-8", errors="surrogateescape", newline="") as file:
                self.texts[path] = file.read()
        return self.texts[path]

    def code(self, path):
        """The text with comments and the insides of strings blanked, every character in its place."""
        if path not in self.codes:
            script = path.endswith((".ts", ".tsx", ".mjs", ".js"))
            self.codes[path] = blank(self.text(path), SCRIPT_TOKENS if script else C_TOKENS)
        return self.codes[path]


C_TOKENS = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)
SCRIPT_TOKENS = re.compile(
    r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`"
    r"|(?<=[=(,:!&|?\[])\s*/(?![*/])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n\[])+/", re.S)


def blank(text, tokens):
    def replace(match):
        token = match.group(0)
        body = re.sub(r"[^\n]", " ", token)
        if token[0] in "\"'`" and len(token) >= 2:
            return token[0] + body[1:-1] + token[-1]
        return body
    return tokens.sub(replace, text)


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1
