#!/usr/bin/env bash
# What a machine with a GPU, and without a compiler or a network, needs to compare the compilers of CUDA kernels: builds
# by NVRTC, nvcc and clang, the tests of CUDA, what makes a model file, and libraries of this system that are not there.
#
#   tests/bench/builds.sh make FOLDER [COMPILER...]   here: FOLDER.tar.gz (nvrtc, clang, and nvcc where it is installed)
#   tests/bench/builds.sh run [ROUNDS]                there, in the unpacked folder, as root: tests, then figures
#
# docs/notes/performance-gpu.md has the procedure. The images are those of Hopper, or what EXOGPU_CUDA_IMAGES names.
set -euo pipefail
tests=(conformance_test_cuda cuda_test_images cuda_test_module cuda_test_lost cuda_test_stage cuda_test_peer cuda_test_slices)

make_builds() { # FOLDER COMPILER...
	local folder=$1 images=${EXOGPU_CUDA_IMAGES:-sm_90a} compiler program
	shift
	export CMAKE_GENERATOR=Ninja EXOGPU_KERNEL_CACHE=$PWD/build/kernel-cache EXOGPU_NVRTC=${EXOGPU_NVRTC:-$PWD/build/nvrtc}
	rm -rf "$folder"
	mkdir -p "$folder/lib"
	for compiler; do # in one folder: but for the kernels they are the same
		cmake --preset release "-DEXOGPU_CUDA_COMPILER=$compiler" "-DEXOGPU_CUDA_IMAGES=$images" >/dev/null
		cmake --build build --target exogpu
		strip -o "$folder/exogpu-$compiler" build/exogpu
	done
	cmake --preset release -DEXOGPU_CUDA_COMPILER=auto -DEXOGPU_CUDA_IMAGES=auto >/dev/null
	cmake --preset debug "-DEXOGPU_CUDA_IMAGES=$images;compute_80" >/dev/null
	cmake --build build/debug --target generate_model "${tests[@]/#/unit_engine_}"
	for program in generate_model "${tests[@]/#/unit_engine_}"; do
		strip -o "$folder/$program" "build/debug/tests/$program"
	done
	cmake --preset debug -DEXOGPU_CUDA_IMAGES=auto >/dev/null
	ldd "$folder"/exogpu-* "$folder"/unit_* | awk '$2 == "=>" { print $3 }' | sort -u |
		grep -vE '/(libc|libm|libdl|libpthread|librt|ld-linux[^/]*)\.so' | xargs -I{} cp -L {} "$folder/lib"
	cp tests/bench/builds.py tests/bench/builds.sh "$folder"
	cp -r tests/models "$folder"
	tar -czf "$folder.tar.gz" -C "$folder" .
	ls -l "$folder.tar.gz"
}

# Only what is missing, and what that needs in turn: others may be newer here than those carried.
add_libraries() {
	local missing round
	for round in 1 2 3 4 5; do
		missing=$(ldd ./exogpu-* ./unit_* | awk '/not found/ { print $1 }' | sort -u)
		[ -n "$missing" ] || return 0
		(cd lib && cp $missing /usr/local/lib/)
		ldconfig
	done
	echo "still missing after $round rounds: $missing" >&2
	return 1
}

run_builds() { # ROUNDS
	local test builds=() program status
	cd "$(dirname "$0")"
	add_libraries
	export EXOGPU_TEST_MODELS=$PWD/models
	nvidia-smi --query-gpu=name,driver_version,compute_cap --format=csv
	for program in ./exogpu-*; do
		"$program" version
		builds+=("${program#./exogpu-}=$program")
	done
	for test in "${tests[@]/#/unit_engine_}"; do
		status=0
		"./$test" >"$test.log" 2>&1 || status=$?
		echo "$test: $status (77: skipped)"
		grep -E 'FAILED|skipped|failed|PASSED' "$test.log" || true
	done
	./generate_model model.gguf llama-3-8b Q4_K_M >/dev/null
	python3 -B builds.py model.gguf "${builds[@]}" --rounds "$1"
}

case ${1:-} in
make)
	cd "$(dirname "$0")/../.."
	folder=${2:?FOLDER}
	compilers=("${@:3}")
	[ ${#compilers[@]} -gt 0 ] || compilers=(nvrtc clang)
	[ $# -gt 2 ] || ! command -v nvcc >/dev/null || compilers+=(nvcc)
	make_builds "$folder" "${compilers[@]}"
	;;
run) run_builds "${2:-3}" ;;
*)
	sed -n '2,/^set/s/^# \{0,1\}//p' "$0"
	exit 2
	;;
esac
