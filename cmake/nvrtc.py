#!/usr/bin/env python3
"""NVIDIA's run-time compiler of CUDA C (NVRTC) as a build tool: fetched by pip from whichever index it is set up for,
into a folder of the build's own, and called through its C interface. It needs no toolkit and no GPU.

usage: nvrtc.py fetch FOLDER                               puts the library into FOLDER, unless it is there
       nvrtc.py compile FOLDER OPTION... SOURCE OUTPUT     SOURCE to OUTPUT: a cubin, or PTX where OUTPUT ends with .ptx
       nvrtc.py version | describe                         prints the version; and how much there is to fetch

The wheel and the two files that are taken out of it are pinned below by SHA-256; a file that differs is not used. Ends
with 77, and says why, where the compiler cannot be had here: no network, no pip, a FOLDER that cannot be written, or
another processor. OPTIONs are those of NVRTC, as --gpu-architecture=sm_90a, -IFOLDER and -DNAME.
"""
import ctypes
import hashlib
import os
import pathlib
import platform
import signal
import subprocess
import sys
import tempfile
import zipfile

VERSION = "12.8.93"
PACKAGE = f"nvidia-cuda-nvrtc-cu12=={VERSION}"
INSIDE = "nvidia/cuda_nvrtc/lib"
LIBRARY = "libnvrtc.so.12"
# By machine: the SHA-256 and the size of the wheel, and the SHA-256 of what is used of it.
PINNED = {
    "x86_64": {
        "wheel": ("a7756528852ef889772a84c6cd89d41dfa74667e24cca16bb31f8f061e3e9994", 88040029),
        LIBRARY: "43731e24cd89e3749826304f304e8aa11fbecf1188715271b1f5018d6212b5e6",
        "libnvrtc-builtins.so.12.8": "eccaa824230ee7858a94a3055cb01f1cb634df05d313880d0bdcf195161fcb4e",
    },
    "aarch64": {
        "wheel": ("fc1fec1e1637854b4c0a65fb9a8346b51dd9ee69e61ebaccc82058441f15bce8", 43106076),
        LIBRARY: "0b703c99c16057bc8131458acb2880f4eafad273ce0a9e58679e3db667b0b5bf",
        "libnvrtc-builtins.so.12.8": "ed835e23d384a62986f30ca02b67e2e776da62f51302740a67ed3482e36632b2",
    },
}
UNAVAILABLE = 77
PATIENCE_S = 600  # for the whole download; a connection that says nothing for 15 s is given up before


def unavailable(why):
    print(f"NVRTC {VERSION} cannot be had: {why}", file=sys.stderr)
    sys.exit(UNAVAILABLE)


def refuse(what, wanted, found):
    sys.exit(f"{what} is not the one that cmake/nvrtc.py pins, and is not used:\n  SHA-256 wanted {wanted}\n"
             f"  SHA-256 found  {found}\nWhere your package index has another file on purpose, build without it: "
             "cmake -DEXOGPU_CUDA_COMPILER=clang, or PIP_NO_INDEX=1 ./dev build")


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def download(folder, wanted):
    """The wheel's path, in `folder`. pip goes by the environment's own index, certificates and proxy."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
               "--only-binary", ":all:", "--no-cache-dir", "--retries", "1", "--timeout", "15", "--dest", str(folder),
               PACKAGE]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        unavailable(f"pip took more than {PATIENCE_S} s")
    except OSError as error:
        unavailable(f"{sys.executable}: {error.strerror}")
    wheel = next(folder.glob("*.whl"), None)
    if ended.returncode or not wheel:
        said = ended.stderr.strip().splitlines()
        unavailable(said[-1] if said else f"pip ended with {ended.returncode}")
    found = sha256(wheel)
    if found != wanted:
        refuse(wheel.name, wanted, found)
    return wheel


def pinned():
    if platform.machine() not in PINNED or sys.platform != "linux":
        unavailable(f"there is none for {platform.system()} on {platform.machine()}")
    return dict(PINNED[platform.machine()])


def description(wheel_bytes):
    return f"NVRTC {VERSION}, the compiler of the CUDA kernels ({wheel_bytes / 1e6:.0f} MB, once)"


def fetch(folder):
    files = pinned()
    wheel_sha256, wheel_bytes = files.pop("wheel")
    if all((folder / name).exists() and sha256(folder / name) == digest for name, digest in files.items()):
        return
    print(f"fetching {description(wheel_bytes)} into {folder}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that nothing is left in the folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            scratch = pathlib.Path(scratch)
            with zipfile.ZipFile(download(scratch, wheel_sha256)) as wheel:
                for name, digest in files.items():
                    made = pathlib.Path(wheel.extract(f"{INSIDE}/{name}", scratch))
                    found = sha256(made)
                    if found != digest:
                        refuse(name, digest, found)
                    os.replace(made, folder / name)  # another build may do the same now
    except OSError as error:
        unavailable(f"{error.filename or folder}: {error.strerror}")


class Compiler:
    """A program of NVRTC's: names and results are those of its documentation. Thread: one."""

    def __init__(self, folder):
        try:
            self.library = ctypes.CDLL(str(folder / LIBRARY))  # which finds the other beside itself
        except OSError as error:
            sys.exit(f"NVRTC cannot be loaded: {error}\nConfigure the build again, which fetches it.")

    def check(self, result, call):
        if result:
            self.library.nvrtcGetErrorString.restype = ctypes.c_char_p
            sys.exit(f"{call}: {self.library.nvrtcGetErrorString(result).decode()}")

    def read(self, program, what):
        size = ctypes.c_size_t()
        self.check(getattr(self.library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)), f"nvrtcGet{what}Size")
        data = ctypes.create_string_buffer(size.value)
        self.check(getattr(self.library, f"nvrtcGet{what}")(program, data), f"nvrtcGet{what}")
        return data.raw

    def compile(self, options, source, kind):
        """The bytes of `kind`, "CUBIN" or "PTX"; what the compiler says goes to the error output."""
        program = ctypes.c_void_p()
        # By its name alone: what is made does not depend on where the sources lie.
        self.check(self.library.nvrtcCreateProgram(ctypes.byref(program), source.read_bytes(), source.name.encode(), 0,
                                                   None, None), "nvrtcCreateProgram")
        given = [option.encode() for option in [*options, f"-I{source.parent}"]]
        result = self.library.nvrtcCompileProgram(program, len(given), (ctypes.c_char_p * len(given))(*given))
        said = self.read(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
        if said.strip():
            print(said, file=sys.stderr)
        self.check(result, f"{source}: nvrtcCompileProgram")
        return self.read(program, kind)


def main(words):
    if words == ["version"]:
        print(VERSION)
    elif words == ["describe"]:
        print(description(pinned()["wheel"][1]))
    elif len(words) == 2 and words[0] == "fetch":
        fetch(pathlib.Path(words[1]).absolute())
    elif len(words) >= 4 and words[0] == "compile":
        source, output = map(pathlib.Path, words[-2:])
        kind = "PTX" if output.suffix == ".ptx" else "CUBIN"
        made = Compiler(pathlib.Path(words[1]).absolute()).compile(words[2:-2], source, kind)
        output.write_bytes(made.rstrip(b"\0") if kind == "PTX" else made)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
