#!/usr/bin/env bash
# What ./dev package --arch arm64 has built, tried on another architecture by qemu-user: unit tests, a server with its command
# line, and what the packages say. Exit status 77: what that takes is not here.
#
# usage: tests/packaging/arm64.sh [FOLDER]      (build/package-arm64)
#
# Programs of arm64 start others of theirs by themselves, which takes the kernel's binfmt_misc and their libraries in /usr/lib: both
# are mounted in namespaces of their own (Linux 6.7 and newer), so that this system learns of no new format. Not run here, since qemu-user
# cannot do what they are about:
#   engine/worker, engine/node        the sandbox of workers: qemu knows neither seccomp nor Landlock, and namespaces in part
#   engine/cuda, engine/vulkan        drivers; the sysroot has none
#   engine/conformance, engine/telemetry  these drivers, and the hardware's files, which are this machine's
#   common/base/longer                it is about debug builds, and this is none
#   common/files, common/journal, common/net, common/work   they start processes, or wait for clocks
#   engine/cpu, engine/dialogue, engine/generation, engine/model   minutes each at a twentieth of the speed
#   server                            a process for each fault, or many servers, at a twentieth of the speed
#   the API's other tests, the browser's and several machines'   for the same two reasons
# On arm64 itself all of them run: .github/workflows/ci.yml.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
[ "${1:-}" != --inside ] || { # by the last line, in the namespace
	inside=1
	shift
}
folder=$(realpath "${1:-build/package-arm64}")
sysroot=$PWD/build/sysroot-arm64
tests='^(common/(base|json|text|wire)|engine/(device|grammar|jinja|text))/'
binfmt=/usr/lib/binfmt.d/qemu-aarch64.conf

run_tests() {
	mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
	printf '%s' "$(grep -v '^#' $binfmt)" >/proc/sys/fs/binfmt_misc/register
	# Workers have an environment of their own, so their libraries have to lie where any program finds them.
	mount -t overlay overlay -o "lowerdir=/usr/lib:$sysroot/lib:$sysroot/usr/lib" /usr/lib
	ctest --test-dir "$folder" -R "$tests" -E '^common/base/longer$' -LE '^(long|slow)$' -j "$(nproc)" --timeout 900 --output-on-failure
	EXOGPU_PACKAGES=$folder python3 -B -m unittest -v tests/packaging/arm64.py
}

if [ -n "${inside:-}" ]; then
	run_tests
	exit
fi
if ! unshare --user --map-root-user --mount mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc 2>/dev/null || [ ! -f $binfmt ]; then
	echo "skipped: binfmt_misc cannot be had in a user namespace here, or qemu-user-static is not installed"
	exit 77
fi
CMAKE_GENERATOR=Ninja cmake --preset package-arm64 -DEXOGPU_TESTS=ON
mapfile -t targets < <(ctest --test-dir "$folder" -R "$tests" -LE '^(long|slow)$' --show-only=json-v1 |
	python3 -c 'import json, os, sys; print(*sorted({os.path.basename(word) for one in json.load(sys.stdin)["tests"] for word in one.get("command", []) if "/unit_" in word}), sep="\n")')
cmake --build "$folder" --target "${targets[@]}" -j "$(nproc)"
exec unshare --user --map-root-user --mount bash tests/packaging/arm64.sh --inside "$folder"
