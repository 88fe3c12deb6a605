#!/usr/bin/env bash
# Twenty and more faults of the past, planted again one by one: the test that found each must fail. See --help.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
root=$PWD

usage() {
	cat <<'TEXT'
usage: ./dev bench faults [--list] [--keep] [NAME...]

Each tests/faults/NAME.patch brings back a fault that was mended, and says which commit mended it and which test finds
it. In a clone of the last commit each test first has to pass; then each fault is applied, its test is built and run, and has to
fail, in the case that the patch names, if it names one. A fault that does not apply, does not compile or is not found
makes this fail. What is not committed is not tried.

  --list   what there is, and nothing else
  --keep   keep the clone (build/faults) for the next time; the first time compiles the engine and the server
TEXT
}

field() { # FILE WORD
	sed -n "s/^$2: //p;/^--- /q" "$1"
}

say() {
	printf '%-32s %s\n' "$@"
}

keep="" list="" names=()
for argument; do
	case $argument in
	--keep) keep=1 ;;
	--list) list=1 ;;
	-h | --help)
		usage
		exit 0
		;;
	-*)
		usage >&2
		exit 2
		;;
	*) names+=("$argument") ;;
	esac
done
[ ${#names[@]} -gt 0 ] || for file in tests/faults/*.patch; do
	names+=("$(basename "$file" .patch)")
done
for name in "${names[@]}"; do
	[ -f "tests/faults/$name.patch" ] || {
		printf 'faults: there is no tests/faults/%s.patch\n' "$name" >&2
		exit 2
	}
	[ -z "$list" ] || say "$name" "$(field "tests/faults/$name.patch" test): $(field "tests/faults/$name.patch" fault)"
done
[ -z "$list" ] || exit 0

clone=$root/build/faults log=$root/build/faults.log
[ -n "$keep" ] || trap 'rm -rf "$clone"' EXIT
mkdir -p build
if [ -d "$clone/.git" ]; then
	git -C "$clone" checkout -q --force --detach
	git -C "$clone" fetch -q "$root" HEAD
	git -C "$clone" reset -q --hard FETCH_HEAD
else
	rm -rf "$clone"
	git clone -q --no-checkout "$root" "$clone"
	git -C "$clone" checkout -q --detach "$(git rev-parse HEAD)"
fi
cd "$clone"
export EXOGPU_KERNEL_CACHE=$root/build/kernel-cache EXOGPU_NVRTC=$root/build/nvrtc
[ -f build/debug/build.ninja ] || CMAKE_GENERATOR=Ninja cmake --preset debug >"$log" 2>&1 || {
	tail -n 20 "$log" >&2
	exit 1
}

# The test's output is in $log. 0: it passed; 1: it failed; 2: there is none that ran.
try() { # TEST
	local target=unit_${1%/*}/test_${1##*/} status=0
	cmake --build build/debug --target "${target//\//_}" >"$log" 2>&1 || return 2
	ctest --test-dir build/debug --output-on-failure --no-tests=error --timeout 600 -R "^$1\$" >"$log" 2>&1 || status=1
	! grep -qE 'Not Run|\*\*\*Skipped|No tests were found' "$log" || return 2
	return $status
}

declare -A good
found=0 bad=0
for name in "${names[@]}"; do
	patch=$root/tests/faults/$name.patch test=$(field "$patch" test) case=$(field "$patch" case) status=0 said="" cases=""
	if [ -z "${good[$test]:-}" ]; then
		try "$test" || status=$?
		good[$test]=$status
	fi
	if [ "${good[$test]}" != 0 ]; then
		said="not tried: $test does not pass (or is skipped) without it"
	elif ! git apply --check "$patch" 2>"$log"; then
		said="not tried: it does not apply any more"
	else
		git apply "$patch"
		status=0
		try "$test" || status=$?
		cases=$(sed -nE 's/^\[  FAILED  \] ([a-z_0-9]+)$/\1/p' "$log" | sort -u | paste -sd ' ')
		git checkout -q --force
		case $status in
		0) said="NOT FOUND by $test" ;;
		2) said="not tried: it does not compile" ;;
		1) [[ -z $case || " $cases " == *" $case "* ]] ||
			said="NOT FOUND by $case of $test, but by another case" ;;
		esac
	fi
	if [ -z "$said" ]; then
		found=$((found + 1))
		say "$name" "found by $test${cases:+: $cases}"
	else
		bad=$((bad + 1))
		say "$name" "$said"
		tail -n 12 "$log" | sed 's/^/  | /'
	fi
done
printf '%d found, %d not\n' "$found" "$bad"
[ "$bad" -eq 0 ]
