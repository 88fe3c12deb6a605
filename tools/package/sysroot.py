"""A folder with the libraries and headers of another architecture, to compile and link against, without that architecture
being added to this system: apt, with a state of its own in that folder and the sources of this system, says what is needed
and fetches it; nothing is installed and no script of a package is run.

usage: sysroot.py ARCHITECTURE FOLDER PACKAGE...

FOLDER is complete when FOLDER/complete names the packages, and is not made again then. Its var/lib/dpkg tells dpkg-query and
dpkg-shlibdeps (--admindir) what lies there."""

import pathlib
import shutil
import subprocess
import sys


def apt(folder, architecture, *words):
    state = folder / "apt"
    settings = {"Dir::State": state, "Dir::State::status": state / "status", "Dir::Cache": state / "cache", "APT::Architecture": architecture,
                "APT::Architectures": architecture, "Debug::NoLocking": 1, "APT::Sandbox::User": "", "Dpkg::Use-Pty": 0}
    options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    subprocess.run(["apt-get", "-q", *options, *words], check=True, stdin=subprocess.DEVNULL)


def told(package, *fields):
    return subprocess.run(["dpkg-deb", "-f", package, *fields], check=True, stdout=subprocess.PIPE, text=True).stdout


def unpack(package, folder, architecture, status):
    """A package into the folder, with what dpkg would remember of it."""
    admin = folder / "var/lib/dpkg"
    name = told(package, "Package").strip()
    shared = "same" in told(package, "Multi-Arch")
    member = f"{name}:{architecture}" if shared else name
    subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
    subprocess.run(["dpkg-deb", "-e", package, folder / "control"], check=True)
    for kind in ("symbols", "shlibs", "triggers", "md5sums"):
        if (folder / "control" / kind).exists():
            shutil.copyfile(folder / "control" / kind, admin / "info" / f"{member}.{kind}")
    shutil.rmtree(folder / "control")
    listing = subprocess.run(f"dpkg-deb --fsys-tarfile '{package}' | tar -t", shell=True, check=True, stdout=subprocess.PIPE, text=True).stdout
    names = [line.removeprefix(".").rstrip("/") or "/." for line in listing.splitlines()]
    (admin / "info" / f"{member}.list").write_text("\n".join(names) + "\n", encoding="utf-8")
    status.write(told(package).rstrip().replace(f"Package: {name}\n", f"Package: {name}\nStatus: install ok installed\n", 1) + "\n\n")


def main():
    architecture, folder, packages = sys.argv[1], pathlib.Path(sys.argv[2]).absolute(), sorted(sys.argv[3:])
    complete = folder / "complete"
    if complete.exists() and complete.read_text(encoding="utf-8").split() == [architecture, *packages]:
        return
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("apt/lists/partial", "apt/cache/archives/partial", "var/lib/dpkg/info", "etc"):
        (folder / name).mkdir(parents=True)
    (folder / "apt/status").touch()
    shutil.copyfile("/etc/os-release", folder / "etc/os-release")
    apt(folder, architecture, "update")
    apt(folder, architecture, "install", "-y", "--no-install-recommends", "--download-only", *packages)
    (folder / "var/lib/dpkg/info/format").write_text("1\n", encoding="utf-8")
    (folder / "var/lib/dpkg/arch").write_text(f"{architecture}\n", encoding="utf-8")
    with open(folder / "var/lib/dpkg/status", "w", encoding="utf-8") as status:
        for package in sorted((folder / "apt/cache/archives").glob("*.deb")):
            unpack(package, folder, architecture, status)
    shutil.rmtree(folder / "apt")
    complete.write_text(" ".join([architecture, *packages]), encoding="utf-8")


if __name__ == "__main__":
    main()
