# The tests, in stages; each leaves JUnit files in build/test, which summary.py adds up to one closing line.
# Sourced by ./dev.

results=build/test
fuzz_seconds=2

usage_test() {
	cat <<'EOF'
usage: ./dev test [--quick] [-R PATTERN] [STAGE...]

Installs what the tests need, builds and runs them. Ends with `N passed, N failed, N skipped`; every failed and every
skipped test is named. Stages, all of them unless some are named:
  lint    ./dev lint, and, without --quick, the tests of the lint itself
  ui      unit tests and type check of the dashboard
  debug   debug build: unit, API and browser tests
  fuzz    each fuzz target (clang's libFuzzer, with the objects of asan): all of its known inputs, then new ones made of
          those until 2 seconds are over; one on each core. That finds what a change broke in what is known. What nobody
          knows yet is for ./dev bench fuzz, which counts what new inputs reach and goes on from where it stood
  asan    address and undefined-behaviour sanitizers: unit and API tests and one browser test
  tsan    thread sanitizer: unit and API tests
  package ./dev package, what is in the packages, and what takes gigabytes and an optimised build
  docker  the container image, built and tried; as root, where buildah and debootstrap are installed (about 3 minutes)
Only when named:
  clients programs that take minutes to install: LangChain, LiteLLM and Instructor of PyPI, the evaluation harness, Open WebUI
          in Chromium; some 9 GB in build/published. And the library for Android by its own kit, where that is
  arm64   ./dev package --arch arm64, and what of its tests qemu-user can run (tests/packaging/arm64.sh)
--quick      lint, ui and debug, without the browser, several machines, and what takes long
When all of them run, a test runs in debug, too, only if the sanitizers' builds look at less: docs/notes/tests.md.
What takes many minutes for little is none of these: ctest --test-dir build/debug -L long, and build/asan, build/tsan.
-R PATTERN   only tests whose ctest name matches; of the stages, debug, asan and tsan unless some are named
Results: build/test/*.xml (JUnit), full output: build/log/.
EOF
}

cmd_test() {
	local quick="" pattern="" stages=() started=$EPOCHREALTIME
	while [ $# -gt 0 ]; do
		case $1 in
		--quick) quick=1 ;;
		-R)
			[ $# -ge 2 ] || fail_usage test "-R needs a pattern"
			pattern=$2
			shift
			;;
		-R*) pattern=${1#-R} ;;
		lint | ui | debug | fuzz | asan | tsan | package | docker | clients | arm64) stages+=("$1") ;;
		*) fail_usage test "not understood: $1" ;;
		esac
		shift
	done
	if [ ${#stages[@]} -eq 0 ]; then
		stages=(lint ui debug fuzz asan tsan package docker)
		[ -z "$pattern" ] || stages=(debug asan tsan)
		[ -z "$quick" ] || stages=(lint ui debug)
	fi
	need_packages up test "${stages[@]}"
	# Half of the processor time of the desktop's Chromium (docs/notes/tests.md).
	[ -n "$quick" ] || case " ${stages[*]} " in *" debug "* | *" asan "*) want_package chromium-headless-shell ;; esac
	[ -n "$quick" ] || case " ${stages[*]} " in *" debug "*) want_package firefox-esr ;; esac
	rm -rf "$results"
	mkdir -p "$results"
	install_node_modules tests
	case " ${stages[*]} " in *" ui "*) install_node_modules ui ;; esac # before a build wants fewer of them
	begin_docker
	begin_builds
	local stage
	for stage in "${stages[@]}"; do
		"stage_$stage"
	done
	printf 'all stages took %s s\n' "$(seconds_since "$started")" >&2
	python3 -B tools/dev/summary.py "$results"
}

stage_lint() {
	if [ -n "$quick" ]; then lint_sources; else side_by_side lint_sources lint_itself; fi
}

lint_sources() {
	single lint "checking the sources" python3 -B tools/lint/lint.py
}

lint_itself() {
	single tools "testing the lint and the summary" python3 -B -m unittest discover -s tests/tools
}

# The dashboard's own tests.
stage_ui() {
	side_by_side ui_types ui_units
}

ui_types() {
	single ui-types "checking the dashboard's types" npm --prefix ui run --silent check
}

ui_units() {
	single ui-unit "testing the dashboard's units" npm --prefix ui test --silent
}

stage_debug() {
	local without="long${quick:+|e2e|cluster|slow}"
	! leaves_again || without+="|again"
	finish_build debug
	run_ctest debug -LE "^($without)\$"
}

# Tests labelled again are left to the address sanitizer's build where that follows (docs/notes/tests.md). So they are not
# built in the plain one either.
leaves_again() {
	[ -z "$pattern" ] && case " ${stages[*]} " in *" asan "*) true ;; *) false ;; esac
}

target_of() { # PRESET
	if [ "$1" = debug ] && leaves_again; then echo not_again; else echo all; fi
}

# One target on every core at a time. What a crash needs to be seen again lies in build/test: the input, as
# crash-CHECKSUM.
stage_fuzz() {
	compgen -G 'tests/fuzz/*/fuzz_*.c' >/dev/null || return 0
	wait_for fuzz || {
		wait_for asan || true # only one at a time builds there
		build_replay
	}
	step fuzz "fuzzing ($fuzz_seconds s each target)" fuzz_all build/replay/tests/fuzz_* || exit 1
}

fuzz_all() { # PROGRAM...
	local program
	for program; do
		[ -f "$program" ] && [ -x "$program" ] || continue
		[ "$(jobs -rp | wc -l)" -lt "$(cores)" ] || wait -n
		fuzz_one "$program" &
	done
	wait
}

fuzz_one() { # PROGRAM
	local name=${1##*/} known status=0 start=$EPOCHREALTIME
	known=tests/fuzz/known/${name#fuzz_}
	mkdir -p "build/fuzz/new/$name"
	# An input that ends the program is a failure: libFuzzer's own 77 would be a skip here.
	"$1" -max_total_time="$fuzz_seconds" -keep_seed=1 -error_exitcode=1 -print_funcs=0 -timeout=60 -rss_limit_mb=1024 -artifact_prefix="$results/" "build/fuzz/new/$name" \
		$([ ! -d "$known" ] || echo "$known") >"$log_dir/$name.log" 2>&1 || status=$?
	record "$name" $status "$start"
}

stage_asan() {
	finish_build asan
	# Less quarantine for freed memory than its 256 MiB: tests look at how far the server grows.
	export ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1:quarantine_size_mb=16
	export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
	run_ctest asan -L '^(unit|api|smoke)$'
}

stage_tsan() {
	finish_build tsan
	# Not a second of sleep at the end of each process: tests start hundreds.
	export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:history_size=4:atexit_sleep_ms=10:suppressions=$root/tools/dev/tsan.txt
	run_ctest tsan -L '^(unit|api)$'
}

stage_package() {
	wait_for package || true
	single package-make "making the Debian packages" ./dev package --images auto
	side_by_side test_packages test_large
}

test_packages() {
	single package "testing the Debian packages" env EXOGPU_PACKAGES=build/package \
		python3 -B -m unittest discover -v -s tests/packaging
}

test_large() {
	single large "copying 4 GiB + 1 in the release build" copy_large
}

copy_large() {
	cmake -DEXOGPU_LARGE=ON -S . -B build/package &&
		cmake --build build/package --target conformance_large -j "$(cores)" && build/package/tests/conformance_large
}

# Built for arm64 by a cross compiler; on arm64 itself the other stages are the tests.
stage_arm64() {
	single arm64-make "making the packages for arm64" ./dev package --arch arm64 --images compute_80
	single arm64 "testing the build for arm64" bash tests/packaging/arm64.sh
}

# Programs that take long to install; what they say is known of a debug build alone.
stage_clients() {
	want_package musl-tools # for bindings/android
	finish_build debug
	local with=(env EXOGPU_BINARY="$root/build/debug/exogpu" EXOGPU_SLOW=4 EXOGPU_TEST_INSTALLS=1 EXOGPU_PICTURES="$root/build/e2e")
	single frameworks "testing frameworks" "${with[@]}" node --test-reporter=tap tests/clients/programs.test.mjs
	single android "building for Android" "${with[@]}" node --test-reporter=tap tests/bindings/android.test.mjs
	single lmeval "evaluating a model by lm-eval" "${with[@]}" node --test-reporter=tap tests/clients/lmeval.mjs
	single openwebui "driving Open WebUI" "${with[@]}" node --test-reporter=tap tests/clients/openwebui.mjs
}

# What runs ahead of its stage, by name: one process group each. It gets the processor time that nobody else wants, which
# is a lot: most tests wait for a clock. If it fails, the stage does the same again, and says why.
# The kernel shares processors among sessions first (autogroups), and a session of its own is what this is: so it is the
# session that has to stand back, too.
declare -A ahead=()

# begin NAME AFTER COMMAND...: once what is named AFTER, if anything, has ended.
begin() {
	local name=$1 before="" idle=(chrt --idle 0)
	[ -z "$2" ] || before=${ahead[$2]:-}
	shift 2
	"${idle[@]}" true 2>/dev/null || idle=(nice -n 19)
	mkdir -p "$log_dir"
	setsid "${idle[@]}" bash -c '{ echo 19 >/proc/self/autogroup; } 2>/dev/null; [ -z "$1" ] || tail -s 0.1 --pid="$1" -f /dev/null; shift; "$@"' - "$before" "$@" \
		>"$log_dir/ahead-$name.log" 2>&1 </dev/null &
	ahead[$name]=$!
	trap 'for group in "${ahead[@]}"; do kill -- "-$group" "$group" 2>/dev/null || true; done' EXIT
}

# wait_for NAME: false if it was not begun or has failed.
wait_for() {
	[ -n "${ahead[$1]:-}" ] || return 1
	step_quiet=1 step "wait-$1" "waiting for what was begun ($1)" tail -s 0.1 --pid="${ahead[$1]}" -f /dev/null
	local status=0
	wait "${ahead[$1]}" || status=$?
	unset "ahead[$1]"
	return $status
}

finish_build() { # PRESET
	wait_for "$1" || target=$(target_of "$1") build "$1"
}

# The builds of later stages, one after the other.
begin_builds() {
	local stage last=""
	for stage in "${stages[@]:1}"; do
		case $stage in
		debug | asan | tsan) begin "$stage" "$last" ./dev build "$stage" "$(target_of "$stage")" ;;
		fuzz) begin fuzz "$last" ./dev build replay ;;
		package) begin package "$last" ./dev package --images auto ;;
		*) continue ;;
		esac
		last=$stage
	done
}

begin_docker() {
	[ ${#stages[@]} -gt 1 ] || return 0
	case " ${stages[*]} " in *" docker "*) begin docker "" bash tests/docker/test.sh --make build/docker ;; esac
}

stage_docker() {
	local try=""
	! wait_for docker || try=--try
	single docker "building and testing the container image" bash tests/docker/test.sh $try build/docker
}

# run_ctest PRESET [CTEST ARGUMENT...]: results in PRESET.xml; a failing test is counted and shown by the summary, not
# here. Three tests more than cores, since most wait for an event of another process; a test takes two places, one that
# mostly waits takes one (tests/CMakeLists.txt). Output is kept whole: ctest would cut what a passing test said about what
# it skipped.
run_ctest() {
	local preset=$1 arguments=()
	shift
	arguments=("$@")
	[ -z "$pattern" ] || arguments+=(-R "$pattern")
	rm -f "$results/$preset.xml"
	step_tail=0 step "test-$preset" "testing ($preset)" fixed_layout ctest --test-dir "$(build_dir "$preset")" \
		-j "${CTEST_PARALLEL_LEVEL:-$((2 * ($(cores) + 3)))}" --timeout 1200 --output-on-failure --no-tests=ignore \
		--test-output-size-passed 1000000 --test-output-size-failed 1000000 \
		--output-junit "$root/$results/$preset.xml" "${arguments[@]}" || true
	[ -f "$results/$preset.xml" ] || fail "ctest ended without results; see $log_dir/test-$preset.log"
}

# The sanitizers of older compilers do not know the address space layout of newer kernels, so it is not randomised
# where that may be asked for (a container may forbid it).
fixed_layout() {
	if setarch "$(uname -m)" -R true 2>/dev/null; then
		setarch "$(uname -m)" -R "$@"
	else
		"$@"
	fi
}

# side_by_side FUNCTION...: all at once, on their own cores; each function calls single. Their lines come when all have ended.
# One that ended before it could record a result ends the run: the summary would not miss it.
side_by_side() {
	local function at=0 pids=() broken=()
	mkdir -p "$log_dir"
	for function; do
		(
			trap - EXIT
			"$function"
		) 2>"$log_dir/beside-$function.log" &
		pids+=($!)
	done
	trap 'kill "${pids[@]}" 2>/dev/null; exit 130' INT
	for function; do wait "${pids[at++]}" || broken+=("$function"); done
	trap - INT
	for function; do cat "$log_dir/beside-$function.log" >&2; done
	[ ${#broken[@]} -eq 0 ] || fail "ended without a result: ${broken[*]}"
}

# single NAME TEXT COMMAND...: a command that counts as one test, or as those that its own closing lines count.
single() {
	local name=$1 text=$2 status=0 start=$EPOCHREALTIME
	shift 2
	step_tail=0 step "$name" "$text" "$@" || status=$?
	record "$name" $status "$start"
}

record() { # NAME STATUS START: its output lies in the log of that name
	python3 -B tools/dev/summary.py --record "$results/$1.xml" "$1" "$2" "$(seconds_since "$3")" "$log_dir/$1.log"
}

usage_coverage() {
	cat <<'EOF'
usage: ./dev coverage

Line coverage of the unit and API tests (gcovr), in build/coverage/index.html; fails where a floor of
tools/dev/coverage-floors.txt is not reached.
EOF
}

cmd_coverage() {
	local pattern=""
	need_packages up test coverage
	install_node_modules tests
	mkdir -p build/coverage
	gcc -O1 -c tools/dev/coverage_exit.c -o build/coverage/coverage_exit.o
	if [ ! -f build/coverage/build.ninja ]; then
		CC=gcc CMAKE_GENERATOR=Ninja step configure-coverage "configuring (coverage)" cmake --preset debug \
			-B build/coverage -DCMAKE_C_FLAGS=--coverage \
			-DCMAKE_EXE_LINKER_FLAGS="-Wl,--wrap=_exit $root/build/coverage/coverage_exit.o" || exit 1
	fi
	step build-coverage "building (coverage)" cmake --build build/coverage -j "$(cores)" || exit 1
	find build/coverage -name '*.gcda' -delete
	rm -rf "$results"
	mkdir -p "$results"
	run_ctest coverage -L '^(unit|api)$'
	python3 -B tools/dev/summary.py "$results" || fail "the tests have to pass first"
	step gcovr "adding up" gcovr --root . --object-directory build/coverage --exclude 'tests/' --exclude 'build/' \
		--gcov-ignore-parse-errors --html-details build/coverage/index.html \
		--json-summary build/coverage/summary.json || exit 1
	python3 -B tools/dev/coverage.py build/coverage/summary.json tools/dev/coverage-floors.txt
}
