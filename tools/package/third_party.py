"""What others have made of that which is shipped: which libraries the programs are linked with, all the way down, which
packages of npm the dashboard holds, and what is compiled in. packaging/third-party/components.json says under which
licence; what is not in it, or under a licence that it does not allow, is an error here. Written from that are
LICENSES-THIRD-PARTY, for people, and exogpu.cdx.json, a bill of materials in CycloneDX 1.6. The same files, versions and
SOURCE_DATE_EPOCH make the same bytes.

usage: third_party.py --ui FOLDER --version VERSION --out FOLDER [--sysroot FOLDER] [--carried FOLDER] PROGRAM...

PROGRAM is a program or library as it is shipped, FOLDER of --ui what ui/build.mjs has made. Libraries are looked for in
--sysroot (/), where dpkg says which package and version they are; with --carried, those that lie in that folder are
shipped too, and the bill has their SHA-256."""

import argparse
import datetime
import fnmatch
import glob
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import uuid

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = ROOT / "packaging/third-party"
ARCHITECTURES = {"Advanced Micro Devices X86-64": ("amd64", "x86_64-linux-gnu"), "AArch64": ("arm64", "aarch64-linux-gnu")}


class Unlisted(Exception):
    """Something is linked or shipped of which components.json does not say that it may be."""


def table():
    return json.loads((TABLE / "components.json").read_text(encoding="utf-8"))


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, "LC_ALL": "C"}).stdout


def architecture(program):
    """(Debian's name, the folder of its libraries)."""
    machine, = re.findall(r"^\s*Machine:\s*(.*)$", output("readelf", "-hW", str(program)), re.M)
    return ARCHITECTURES[machine]


def needed(path):
    return re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-dW", str(path)))


def closure(programs, sysroot="/"):
    """{soname: (path, sonames that it needs)} of every library that these programs load when they start."""
    _, triplet = architecture(programs[0])
    folders = [os.path.join(sysroot, folder) for folder in (f"lib/{triplet}", f"usr/lib/{triplet}", "lib64", "lib", "usr/lib")]
    found, waiting = {}, [name for program in programs for name in needed(program)]
    while waiting:
        soname = waiting.pop()
        if soname in found or soname.startswith("libexogpu"):
            continue
        path = next((path for path in (os.path.join(folder, soname) for folder in folders) if os.path.exists(path)), None)
        if path is None:
            raise Unlisted(f"{soname} is needed and not in {sysroot}")
        found[soname] = (path, needed(path))
        waiting += found[soname][1]
    return dict(sorted(found.items()))


def permitted(expression, allowed):
    """Whether one of the licences that an expression leaves to choose from is allowed."""
    return any(one in allowed for one in expression.split(" OR "))


def check(name, expression, dynamic, known):
    allowed = known["permissive"] + (known["dynamic_only"] if dynamic else [])
    if not permitted(expression, allowed):
        raise Unlisted(f"{name} is under {expression}, which components.json does not allow for what is "
                       f"{'linked dynamically' if dynamic else 'compiled in or bundled'}")


def library(soname, known):
    for one in known["libraries"]:
        if any(fnmatch.fnmatchcase(soname, pattern) for pattern in one["sonames"]):
            check(soname, one["licence"], True, known)
            return one
    raise Unlisted(f"{soname} is linked and not in components.json")


def owners(paths, sysroot="/"):
    """{path: (package, version, source package, its version)} as dpkg has it."""
    names = {}
    for path in paths:
        inside = "/" + os.path.relpath(os.path.realpath(path), os.path.realpath(sysroot))
        names[inside] = names[inside.removeprefix("/usr")] = names["/usr" + inside] = path
    admin = f"--admindir={os.path.join(sysroot, 'var/lib/dpkg')}"
    said = subprocess.run(["dpkg-query", admin, "-S", *names], check=False, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    packages = {}
    for line in said.splitlines():
        package, _, name = line.partition(": ")
        packages[names[name]] = package.split(",")[0]
    missing = [path for path in paths if path not in packages]
    if missing:
        raise Unlisted(f"no package of dpkg has {missing}")
    form = "${Package}\t${Version}\t${source:Package}\t${source:Version}\n"
    told = {line.split("\t")[0]: tuple(line.split("\t")) for line in
            output("dpkg-query", admin, "-W", f"-f={form}", *sorted(set(packages.values()))).splitlines()}
    return {path: told[package.split(":")[0]] for path, package in packages.items()}


def distribution(sysroot):
    """As /etc/os-release names it: debian or ubuntu."""
    found = re.findall(r'^ID="?([a-z]+)"?$', pathlib.Path(sysroot, "etc/os-release").read_text(encoding="utf-8"), re.M)
    return found[0] if found else "debian"


def bundled(ui, known):
    """[(name, version, licence, its text)] of the packages in the dashboard's files, as its build has found them."""
    text, = glob.glob(os.path.join(ui, "licenses-*.txt"))
    lock = json.loads((ROOT / "ui/package-lock.json").read_text(encoding="utf-8"))["packages"]
    found = []
    for part in pathlib.Path(text).read_text(encoding="utf-8").split("\n----\n\n"):
        head, _, rest = part.partition("\n")
        name, version = head.split()
        entry = lock[f"node_modules/{name}"]
        if entry["version"] != version:
            raise Unlisted(f"{name} {version} is in the dashboard, and {entry['version']} in its lock file")
        check(name, entry["license"], False, known)
        found.append((name, version, entry["license"], rest.strip()))
    return found


def compiled_in(known):
    for one in known["compiled_in"] + known["generated"]:
        check(one.get("name", one.get("folder")), one["licence"], False, known)
    return known["compiled_in"]


def collect(programs, ui, sysroot="/", carried=None):
    """Everything that both files tell, in a fixed order."""
    known = table()
    libraries = closure(programs, sysroot)
    packages = owners([path for path, _ in libraries.values()], sysroot)
    rows = []
    for soname, (path, below) in libraries.items():
        one = library(soname, known)
        copy = os.path.join(carried, soname) if carried else ""
        rows.append({"soname": soname, "name": one["name"], "licence": one["licence"], "below": below, "package": packages[path],
                     "carried": copy if copy and os.path.exists(copy) else None})
    return {"known": known, "libraries": rows, "bundled": bundled(ui, known), "compiled_in": compiled_in(known),
            "programs": [str(program) for program in programs], "architecture": architecture(programs[0])[0],
            "distribution": distribution(sysroot)}


def licences(parts, version):
    """The text of LICENSES-THIRD-PARTY."""
    known = parts["known"]
    permissive = [row for row in parts["libraries"] if permitted(row["licence"], known["permissive"])]
    rest = [row for row in parts["libraries"] if row not in permissive]
    lines = [f"exogpu {version} is under the Apache License 2.0; the file LICENSE has it. What others have made of that which is",
             "linked with its programs or shipped in them is listed here. Licences are named by their SPDX expressions.", ""]

    def libraries(title, rows):
        lines.extend([title, ""])
        for row in rows:
            package, found, source, _ = row["package"]
            lines.append(f"  {row['soname']:<24} {row['licence']:<44} {row['name']}; {package} {found}"
                         + (f", source {source}" if source != package else "") + ("; carried" if row["carried"] else ""))
        lines.append("")

    where = "Debian keeps the text of each in /usr/share/doc/PACKAGE/copyright."
    if any(row["carried"] for row in parts["libraries"]):
        where = "Those that are carried lie in lib/ as Debian built them; share/doc/exogpu/copyright/PACKAGE has the text of each."
    libraries(f"LINKED DYNAMICALLY, PERMISSIVE LICENCES. {where}", permissive)
    libraries("LINKED DYNAMICALLY, LGPL: libraries of the system, which anyone may replace by their own build of the same soname.\n"
              "The sources of a carried one are Debian's source package of the version named here.", rest)
    lines += ["IN THE DASHBOARD, texts below.", ""]
    lines += [f"  {name + ' ' + found:<32} {licence}" for name, found, licence, _ in parts["bundled"]]
    lines += ["", "COMPILED IN.", ""]
    lines += [f"  {one['name'] + ' ' + one.get('version', ''):<32} {one['licence']}; {one['about']}" for one in parts["compiled_in"]]
    lines += ["", "KERNELS, made at build time.", ""]
    lines += [f"  {one['folder']:<32} {one['licence']}; {one['about']}" for one in known["generated"]]
    for one in parts["compiled_in"]:
        if "text" in one:
            lines += ["", "-" * 78, one["name"], "", (TABLE / one["text"]).read_text(encoding="utf-8").strip()]
    for name, found, _, text in parts["bundled"]:
        lines += ["", "-" * 78, f"{name} {found}", "", text]
    return "\n".join(line.rstrip() for line in "\n".join(lines).split("\n")) + "\n"


def sha256(path):
    return {"alg": "SHA-256", "content": hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()}


def bill(parts, version):
    """The bill of materials, a CycloneDX document."""
    stamp = datetime.datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", 0)), datetime.timezone.utc)
    components, edges, packages, of_soname = [], {}, {}, {}
    for row in parts["libraries"]:
        package, found, source, source_version = row["package"]
        reference = f"deb:{package}"
        of_soname[row["soname"]] = reference
        if reference not in packages:
            packages[reference] = {
                "type": "library", "bom-ref": reference, "name": package, "version": found, "scope": "required",
                "licenses": [{"expression": row["licence"]}],
                "purl": f"pkg:deb/{parts['distribution']}/{package}@{found.replace('+', '%2B').replace(':', '%3A')}?arch={parts['architecture']}",
                "properties": [{"name": "debian:source", "value": f"{source} {source_version}"}]}
        packages[reference]["properties"].append({"name": "linked", "value": row["soname"]})
        if row["carried"]:
            packages[reference].setdefault("components", []).append({
                "type": "file", "bom-ref": f"file:lib/{row['soname']}", "name": f"lib/{row['soname']}", "hashes": [sha256(row["carried"])]})
    for row in parts["libraries"]:
        edges.setdefault(of_soname[row["soname"]], set()).update(of_soname[name] for name in row["below"])
    components += packages.values()
    for name, found, licence, _ in parts["bundled"]:
        components.append({"type": "library", "bom-ref": f"npm:{name}", "name": name, "version": found, "scope": "required",
                           "licenses": [{"expression": licence}], "purl": f"pkg:npm/{name.replace('@', '%40')}@{found}"})
    for one in parts["compiled_in"]:
        components.append({"type": "data" if "text" in one else "library", "bom-ref": f"in:{one['name']}", "name": one["name"],
                           **({"version": one["version"]} if "version" in one else {}), "scope": "required",
                           "licenses": [{"expression": one["licence"]}], "description": one["about"]})
    inside = [one["bom-ref"] for one in components if not one["bom-ref"].startswith("deb:")]
    own = []
    for program in parts["programs"]:
        name = os.path.basename(program)
        own.append(f"own:{name}")
        components.append({"type": "application" if name == "exogpu" else "library", "bom-ref": own[-1], "name": name, "version": version,
                           "licenses": [{"expression": "Apache-2.0"}]})
        edges[own[-1]] = {of_soname[soname] for soname in needed(program) if soname in of_soname} | set(inside if name == "exogpu" else [])
    edges["exogpu"] = set(own)
    subject = {"type": "application", "bom-ref": "exogpu", "name": "exogpu", "version": version,
               "licenses": [{"expression": "Apache-2.0"}], "properties": [{"name": "architecture", "value": parts["architecture"]}]}
    document = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
                "metadata": {"timestamp": stamp.strftime("%Y-%m-%dT%H:%M:%SZ"), "component": subject},
                "components": components,
                "dependencies": [{"ref": one, "dependsOn": sorted(below - {one})} for one, below in sorted(edges.items())]}
    document["serialNumber"] = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(document, sort_keys=True)).urn
    return document


def write(parts, version, out):
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    (out / "LICENSES-THIRD-PARTY").write_text(licences(parts, version), encoding="utf-8")
    (out / "exogpu.cdx.json").write_text(json.dumps(bill(parts, version), indent="\t") + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", nargs="+")
    for name in ("--ui", "--version", "--out"):
        parser.add_argument(name, required=True)
    parser.add_argument("--sysroot", default="/")
    parser.add_argument("--carried")
    said = parser.parse_args()
    try:
        write(collect(said.programs, said.ui, said.sysroot, said.carried), said.version, said.out)
    except Unlisted as fault:
        sys.exit(f"third_party.py: {fault}")


if __name__ == "__main__":
    main()
