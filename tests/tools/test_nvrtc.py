"""cmake/nvrtc.py and cmake/cuda.cmake: what is fetched is what is pinned, and nothing else is used; without a network the
kernels are clang's, and the configure step says what that costs; the same sources make the same bytes in any folder.

The first two need no network: pip is pointed at a folder. The last two take the compiler from EXOGPU_NVRTC or
build/nvrtc, or fetch it, and are skipped where there is no network."""
import hashlib
import importlib.util
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "cmake" / "nvrtc.py"
KERNELS = ROOT / "engine" / "cuda" / "kernels"

spec = importlib.util.spec_from_file_location("nvrtc", SCRIPT)
nvrtc = importlib.util.module_from_spec(spec)
spec.loader.exec_module(nvrtc)

# pip, and where it looks: this folder alone.
PIP = subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True).returncode == 0


def run(*words, index=None, **environment):
    values = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    if index:
        values |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index), "PIP_CONFIG_FILE": os.devnull}
    else:
        values |= {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, env=values | environment,
                          timeout=600)


def fetch(folder, **more):
    return run(sys.executable, "-B", SCRIPT, "fetch", folder, **more)


class Folder(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.scratch.name)
        self.addCleanup(self.scratch.cleanup)


@unittest.skipUnless(PIP and platform.machine() in nvrtc.PINNED, "pip is needed, and a processor that has NVRTC")
class Fetching(Folder):
    def wheel(self, text):
        index = self.folder / "index"
        index.mkdir()
        name = nvrtc.PACKAGE.replace("-", "_").replace("==", "-")
        with zipfile.ZipFile(index / f"{name}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"nvidia/cuda_nvrtc/lib/{nvrtc.LIBRARY}", text)
            about = f"{name}.dist-info"
            wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name.split('-')[0]}\n"
                           f"Version: {nvrtc.VERSION}\n")
            wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{about}/RECORD", "")
        return index

    def test_another_wheel_is_refused(self):
        index, made = self.wheel("not NVIDIA's"), self.folder / "made"
        ended = fetch(made, index=index)
        self.assertEqual(ended.returncode, 1, ended.stderr)
        self.assertIn("is not the one that cmake/nvrtc.py pins, and is not used", ended.stderr)
        self.assertIn(nvrtc.PINNED[platform.machine()]["wheel"][0], ended.stderr)
        self.assertIn(hashlib.sha256(next(index.glob("*.whl")).read_bytes()).hexdigest(), ended.stderr)
        self.assertRegex(ended.stdout, r"^fetching NVRTC \S+, .*\(\d+ MB, once\) into ")
        self.assertEqual(list(made.iterdir()), [], "nothing of it is left")

    def test_a_library_that_was_changed_is_not_used(self):
        made = self.folder / "made"
        made.mkdir()
        for name in nvrtc.PINNED[platform.machine()]:
            (made / name).write_text("changed")
        ended = fetch(made, index=self.folder)
        self.assertEqual(ended.returncode, nvrtc.UNAVAILABLE, "it is fetched again, here from nowhere")

    def test_a_folder_that_cannot_be_written_is_named(self):
        (self.folder / "file").write_text("")
        ended = fetch(self.folder / "file" / "made", index=self.wheel("not NVIDIA's"))
        self.assertEqual(ended.returncode, nvrtc.UNAVAILABLE, ended.stderr)
        self.assertRegex(ended.stderr, r"^NVRTC \S+ cannot be had: .*/file/made: Not a directory\n$")

    def test_a_fetch_that_is_ended_leaves_nothing(self):
        made, pip = self.folder / "made", self.folder / "pip"
        pip.mkdir()
        (pip / "__init__.py").write_text("")
        (pip / "__main__.py").write_text(
            "import pathlib, sys, time\n"
            "to = pathlib.Path(sys.argv[sys.argv.index('--dest') + 1])\n"
            "(to / 'a.whl').write_text('a part')\n"
            "(to.parent.parent / 'began').write_text('')\n"
            "time.sleep(60)\n")
        fetching = subprocess.Popen([sys.executable, "-B", SCRIPT, "fetch", made], stdout=subprocess.DEVNULL,
                                    env=os.environ | {"PYTHONPATH": str(self.folder)})
        until = time.monotonic() + 30
        while not (self.folder / "began").exists() and time.monotonic() < until:
            time.sleep(0.05)
        fetching.terminate()
        self.assertEqual(fetching.wait(timeout=30), 143)
        self.assertTrue((self.folder / "began").exists())
        self.assertEqual(list(made.iterdir()), [])

    def test_without_a_network_it_says_why(self):
        ended = fetch(self.folder / "made", index=self.folder)
        self.assertEqual(ended.returncode, nvrtc.UNAVAILABLE)
        self.assertRegex(ended.stderr, r"^NVRTC \S+ cannot be had: .*nvidia-cuda-nvrtc-cu12")


def configure(folder, *options, **more):
    """cmake/cuda.cmake alone, in a project of its own."""
    (folder / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.22)\nproject(kernels LANGUAGES NONE)\n"
        f"set(once sh {ROOT}/cmake/once.sh)\nset(kernel_dir ${{CMAKE_BINARY_DIR}}/kernels)\n"
        f"include({ROOT}/cmake/cuda.cmake)\nadd_custom_target(all_kernels ALL DEPENDS ${{kernel_outputs}})\n")
    return run("cmake", "-S", folder, "-B", folder / "build", *options, **more)


def built(folder):
    return (folder / "build" / "kernels" / "cuda" / "built.txt").read_text()


@unittest.skipUnless(shutil.which("clang"), "clang is not installed")
class WithoutNetwork(Folder):
    def test_the_kernels_are_those_of_clang(self):
        ended = configure(self.folder, "-DNVCC=", "-DEXOGPU_CUDA_IMAGES=all", index=self.folder, EXOGPU_NVRTC="")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertIn("NVRTC", ended.stdout)
        self.assertRegex(ended.stdout, r"CUDA kernels: by clang \S+: language models run .* at 22 to 50 % of the speed")
        self.assertIn("configure again with python3, pip and a network", ended.stdout)
        self.assertRegex(built(self.folder), r"compiler clang \S+\nimages compute_80:11\.5 compute_90:12\.0\nnote lang")

    def test_nvrtc_and_nothing_else_can_be_asked_for(self):
        ended = configure(self.folder, "-DEXOGPU_CUDA_COMPILER=nvrtc", "-DEXOGPU_CUDA_IMAGES=sm_80", index=self.folder,
                          EXOGPU_NVRTC="")
        self.assertNotEqual(ended.returncode, 0)
        self.assertIn("cannot be had", ended.stderr)

    def test_a_compiler_that_is_not_there_is_named(self):
        for compiler in ("nvcc", "clang"):
            ended = configure(self.folder, "-DNVCC=", "-DCLANG=", f"-DEXOGPU_CUDA_COMPILER={compiler}",
                              "-DEXOGPU_CUDA_IMAGES=sm_80", index=self.folder, EXOGPU_NVRTC="")
            self.assertNotEqual(ended.returncode, 0)
            self.assertIn(f"EXOGPU_CUDA_COMPILER is {compiler}, which was not found", ended.stderr)

    def test_without_any_compiler_it_says_why(self):
        ended = configure(self.folder, "-DNVCC=", "-DCLANG=", "-DEXOGPU_CUDA_IMAGES=sm_80", index=self.folder,
                          EXOGPU_NVRTC="")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertRegex(ended.stdout, r"CUDA kernels: NVRTC \S+ cannot be had: ")
        self.assertIn("no compiler for CUDA kernels", ended.stderr)

    def test_an_image_that_is_not_there_is_named(self):
        ended = configure(self.folder, "-DEXOGPU_CUDA_IMAGES=sm_75", index=self.folder)
        self.assertNotEqual(ended.returncode, 0)
        self.assertIn("there is no image sm_75", ended.stderr)


class Compiling(Folder):
    def setUp(self):
        super().setUp()
        self.compiler = pathlib.Path(os.environ.get("EXOGPU_NVRTC") or ROOT / "build" / "nvrtc")
        ended = fetch(self.compiler)
        if ended.returncode == nvrtc.UNAVAILABLE:
            self.skipTest(ended.stderr.strip())
        self.assertEqual(ended.returncode, 0, ended.stderr)

    def test_equal_sources_make_equal_bytes(self):
        """Twice, in two folders of which each has its own copy of the sources."""
        made = {}
        for which in ("one", "another/one"):
            tree = self.folder / which
            shutil.copytree(KERNELS, tree / "engine" / "cuda" / "kernels")
            for image, name in (("sm_90a", "verify"), ("sm_80", "vector"), ("sm_120a", "stage_reduce")):
                output = tree / f"{name}.cubin"
                ended = run(sys.executable, "-B", SCRIPT, "compile", self.compiler, f"--gpu-architecture={image}",
                            f"-I{tree}", tree / "engine" / "cuda" / "kernels" / f"{name}.cu", output)
                self.assertEqual(ended.returncode, 0, ended.stderr)
                data = output.read_bytes()
                self.assertEqual(data[:4], b"\x7fELF")
                self.assertEqual(made.setdefault(name, data), data, f"{name} in {which}")
                self.assertNotIn(str(self.folder).encode(), data, "it does not say where it was made")

    def test_auto_is_for_the_gpus_of_this_machine(self):
        smi = self.folder / "nvidia-smi"
        mismatch = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.65\n"
        for said, status, images in (("9.0\n9.0\n", 0, "sm_90a"), ("8.9\n8.7\n", 0, "sm_89 sm_86"),
                                     ("12.0\n", 0, "sm_120a"), ("12.1\n10.0\n", 0, "compute_90 sm_100a"),
                                     ("7.5\n", 0, "sm_90a compute_80"),
                                     ("No devices were found\n", 6, "sm_90a compute_80"),
                                     (mismatch, 18, "sm_90a compute_80")):
            smi.write_text(f"#!/bin/sh\nprintf '{said}'\nexit {status}\n")
            smi.chmod(0o755)
            ended = configure(self.folder, f"-DNVIDIA_SMI={smi}", EXOGPU_NVRTC=str(self.compiler))
            self.assertIn(f"CUDA kernels: {images}, by NVRTC", ended.stdout, said)

    def test_two_builds_have_equal_files(self):
        """By the build's own commands, in two folders, without what an earlier one kept: as they are embedded."""
        made = {}
        for which in ("one", "another"):
            folder = self.folder / which
            folder.mkdir()
            ended = configure(folder, "-GNinja", "-DNVCC=", "-DEXOGPU_CUDA_IMAGES=sm_80;compute_80",
                              EXOGPU_NVRTC=str(self.compiler))
            self.assertEqual(ended.returncode, 0, ended.stderr)
            self.assertIn("CUDA kernels: sm_80 compute_80, by NVRTC", ended.stdout)
            files = [f"kernels/cuda/sm_80/{name}.cubin.gz" for name in ("verify", "stage_reduce")]
            files += ["kernels/cuda/compute_80/verify.ptx.gz"] if shutil.which("clang") else []
            ended = run("cmake", "--build", folder / "build", "--target", *files, EXOGPU_KERNEL_CACHE="")
            self.assertEqual(ended.returncode, 0, ended.stdout)
            for file in files:
                data = (folder / "build" / file).read_bytes()
                self.assertEqual(made.setdefault(file, data), data, f"{file} in {which}")

    def test_what_the_compiler_says_is_told(self):
        source = self.folder / "wrong.cu"
        source.write_text('extern "C" __global__ void wrong() { missing(); }\n')
        ended = run(sys.executable, "-B", SCRIPT, "compile", self.compiler, "--gpu-architecture=sm_80", source,
                    self.folder / "wrong.cubin")
        self.assertEqual(ended.returncode, 1)
        self.assertIn('wrong.cu(1): error: identifier "missing" is undefined', ended.stderr)
        self.assertFalse((self.folder / "wrong.cubin").exists())


if __name__ == "__main__":
    unittest.main()
