"""TypeScript: no `any`, no switched-off checks, no import cycles."""
import os
import re

from tree import error, line_of

ANY = re.compile(r"(?:[:<|&,(\[=]|\bas|=>|\bextends|\bsatisfies)\s*any\b(?!\s*[:(.])")
SWITCHED_OFF = re.compile(r"@ts-(?:ignore|nocheck|expect-error)")
IMPORT = re.compile(r"^\s*(?:import|export)\b(?!\s+type\b)[^;'\"]*?['\"]", re.M)
SOURCE = re.compile(r"['\"](\.[^'\"\n]*)['\"]")


def check(tree):
    files = [path for path in tree.ending(".ts", ".tsx") if not path.endswith(".d.ts")]
    for path in files:
        text, code = tree.text(path), tree.code(path)
        for match in ANY.finditer(code):
            yield error(path, line_of(code, match.start()), "any", "`any` switches the checks off; name the type")
        for match in SWITCHED_OFF.finditer(text):
            yield error(path, line_of(text, match.start()), "any", "%s switches the checks off" % match.group(0))
    yield from cycles({path: imports_of(tree, path) for path in files + tree.ending(".mjs")})


def imports_of(tree, path):
    """The files that a module loads when it runs (types only are not loaded)."""
    text, code = tree.text(path), tree.code(path)
    found = []
    for match in IMPORT.finditer(code):
        source = SOURCE.match(text, match.end() - 1)
        if not source:
            continue
        base = os.path.normpath(os.path.join(os.path.dirname(path), source.group(1)))
        stem = re.sub(r"\.m?js$", "", base)
        for candidate in (base, stem + ".ts", stem + ".tsx", stem + "/index.ts", stem + "/index.tsx"):
            if candidate in tree.files:
                found.append(candidate)
                break
    return found


def cycles(graph):
    done, reported = set(), set()
    for start in sorted(graph):
        trail, stack = [], [(start, iter(graph.get(start, ())))]
        trail.append(start)
        while stack:
            node, rest = stack[-1]
            target = next(rest, None)
            if target is None:
                stack.pop()
                trail.pop()
                done.add(node)
            elif target in trail:
                loop = trail[trail.index(target):]
                if frozenset(loop) not in reported:
                    reported.add(frozenset(loop))
                    yield error(node, 1, "cycle", "modules import each other: %s" % " -> ".join(loop + [target]))
            elif target not in done:
                trail.append(target)
                stack.append((target, iter(graph.get(target, ()))))
