"""README.md and docs/: a source file, folder or page that they name exists; so does a name in brackets after a file.

Checked are links to files of the repository and their headings, and code spans that are a path below one of the
repository's folders, with * or {a,b} as in a shell, or in docs/ the bare name of a source file. A span in brackets that
follows a file must be in its text. Not checked are notes (docs/notes/) and the changelog, which describe the past,
placeholders such as NAME, and names of tests: a folder below tests/ and a name without an ending. In docs/architecture.md
every name with an underscore must be somewhere in the sources.
"""
import fnmatch
import os
import posixpath
import re

from tree import error, line_of

LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
HEADING = re.compile(r"^#+ +(.+?) *$", re.M)
SPAN = re.compile(r"`([^`\n]+)`(?: \(`([A-Za-z_]\w+)`\))?")
PATH = re.compile(r"[\w./*{},-]+")
SOURCE = re.compile(r"[a-z][\w*.-]*\.(?:c|h|cu|cuh|comp|glsl|ts|tsx|mjs|py)")
PLACEHOLDER = re.compile(r"(?:^|[/_.-])(?:NAME|FILE|DIR|N|X)(?:$|[/_.-])")
NAMED = "docs/architecture.md"
NAME = re.compile(r"`([a-z]\w*_\w+)`")
BRACES = re.compile(r"\{([^{}]*)\}")


def documents(tree):
    return [path for path in tree.ending(".md")
            if path == "README.md" or (path.startswith("docs/") and not path.startswith("docs/notes/"))]


def spread(path):
    found = BRACES.search(path)
    if not found:
        return [path]
    return [one for part in found.group(1).split(",")
            for one in spread(path[:found.start()] + part + path[found.end():])]


class Names:
    def __init__(self, tree):
        self.tree = tree
        self.files = set(tree.all)
        self.generated = set(self._generated())
        self.folders = {folder for path in tree.all for folder in self._above(path)}
        self.tops = {folder for folder in self.folders if "/" not in folder}
        self.bases = {os.path.basename(path) for path in tree.files}

    def _generated(self):
        """What the .gitignore files name with a folder: built later, and not there in a new clone."""
        for path in self.tree.files:
            if os.path.basename(path) == ".gitignore":
                for line in self.tree.text(path).split():
                    if "/" in line.strip("/"):
                        yield posixpath.join(os.path.dirname(path), line.strip("/"))

    @staticmethod
    def _above(path):
        while "/" in path:
            path = path.rsplit("/", 1)[0]
            yield path

    def has(self, path):
        """A file, a folder, a pattern that fits one, or a group of files named without their endings."""
        path = path.rstrip("/")
        if path in self.files or path in self.folders or path in self.generated:
            return True
        return any(fnmatch.fnmatchcase(one, path) or fnmatch.fnmatchcase(one, path + ".*") for one in self.files) \
            or any(fnmatch.fnmatchcase(one, path) for one in self.folders)

    def is_test(self, span):
        folder, name = posixpath.split(span)
        return "." not in name and "tests/" + folder in self.folders

    def missing(self, span, bare):
        if not PATH.fullmatch(span) or PLACEHOLDER.search(span):
            return False
        if "/" in span:
            return span.split("/")[0] in self.tops and not self.is_test(span) \
                and not all(self.has(one) for one in spread(span))
        return bare and bool(SOURCE.fullmatch(span)) and not fnmatch.filter(self.bases, span)


def unknown_names(tree):
    """The names in NAMED that no source and no schema has, with their places."""
    text = tree.text(NAMED) if NAMED in tree.files else ""
    places = {match.group(1): match.start() for match in NAME.finditer(text)}
    left = set(places)
    for path in tree.ending(".h", ".c", ".ts", ".tsx", ".json", ".sql"):
        left = {name for name in left if name not in tree.text(path)}
    return sorted((places[name], name) for name in left)


def headings(text):
    """The fragments of a page's headings, as GitHub makes them."""
    words = (re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", r"\1", found.group(1)).lower() for found in HEADING.finditer(text))
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in words}


def check(tree):
    names = Names(tree)
    for place, name in unknown_names(tree):
        yield error(NAMED, line_of(tree.text(NAMED), place), "documents", "%s is nowhere in the sources" % name)
    for path in documents(tree):
        text = tree.text(path)
        for match in LINK.finditer(text):
            target, fragment = match.groups()
            if "://" in target or target.startswith(("mailto:", "/")) or not (target or fragment):
                continue
            page = posixpath.normpath(posixpath.join(posixpath.dirname(path), target)) if target else path
            if fragment and page.endswith(".md") and page in names.files and fragment not in headings(tree.text(page)):
                yield error(path, line_of(text, match.start()), "documents",
                            "%s has no heading for #%s" % (page, fragment))
            elif not names.has(page):
                yield error(path, line_of(text, match.start()), "documents",
                            "a link to a file that is not there: %s" % target)
        for match in SPAN.finditer(text):
            span, word = match.groups()
            if names.missing(span, path.startswith("docs/")):
                yield error(path, line_of(text, match.start()), "documents", "no such file or folder: %s" % span)
            elif word and span in names.files and word not in tree.text(span):
                yield error(path, line_of(text, match.start()), "documents", "%s is not in %s" % (word, span))
