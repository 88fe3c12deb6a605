#!/usr/bin/env bash
# The figures of docs/performance.md and docs/reliability.md: tests/bench/run.sh [fanout] [start] [node] [device]
# [transfer] [tls] [remote] [audit] [clients] [abuse], all without arguments; [reliability] takes hours and runs only when it is asked for.
# [abuse --busy N] has N processes beside it that only compute, [--rounds N] more or fewer than three, [--only TEXT[|TEXT]] attacks of that name;
# under `taskset -c LIST` server, client and abusers keep to those processors, so that a large machine takes several at once.
# [decode BACKEND SHAPE FORMAT ...] measures models (tests/bench/decode.c) and nothing else; alone, the 1.1B shape on the CPU.
# [perplexity BACKEND[,BACKEND] FILE.gguf ...] what number formats, or a chain of devices, cost a model (tests/bench/perplexity.c), alone as well; without
# arguments of four layers of the 1.1B shape on the CPU.
# [serving [BACKEND] [SHAPE:FORMAT ...]] what the server makes of models (tests/bench/serving.mjs), alone as well; ten minutes.
# [ring [FORMAT[:LAYERS] ...]] a model in two parts beside one worker (tests/bench/ring.c), alone as well; of the 1.1B shape.
# [cluster [PART ...]] a model on several machines (tests/bench/cluster.mjs), alone as well; as root.
# [grammar [FILE.gguf|TOKENS ...]] what answers in a form cost (tests/bench/grammar.c), alone as well; of 49,152 and 128,000 tokens that are made up.
# [solver [SECONDS]] how long placements take to be found (tests/bench/solver.c), alone as well.
# [solver cpsat [CLUSTERS]] the same placements by OR-Tools' CP-SAT (tests/bench/cpsat.py), which EXOGPU_ORTOOLS_PYTHON has.
# [store [SECONDS [ROUNDS]]] a store in a PostgreSQL of its own, which keeps its changes as it does by itself, beside one in SQLite (tests/bench/store.c), alone as well.
# [soak [--hours N] [--minutes N] [--sample N]] a cluster under everything for so long (tests/bench/soak.mjs), alone as well; a verdict.
# [simulation [FIRST_SEED [SEEDS]]] a whole server under random faults, on a virtual clock, ten thousand seeds (debug build); no figures, but a verdict.
# Wants the release build in build/ and, for the peer, nginx with nchan (apt-get install nginx-light libnginx-mod-nchan).
set -euo pipefail
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ "${1:-}" = decode ]; then
	shift
	cc -std=gnu11 -O2 -D_GNU_SOURCE -I. -Iengine/include -o "$work/decode" tests/bench/decode.c build/libengine.a \
		build/libcommon.a build/CMakeFiles/embedded.dir/embedded.c.o $(pkg-config --libs libcrypto libcjson zlib) -ldl -lm -pthread
	if [ $# -gt 0 ]; then
		"$work/decode" "$@"
	else
		for format in F16 Q8_0 Q4_0 Q4_K; do "$work/decode" cpu 1b $format; done
	fi
	exit
fi
if [ "${1:-}" = perplexity ]; then
	shift
	cc -std=gnu11 -O2 -D_GNU_SOURCE -I. -Iengine/include -o "$work/perplexity" tests/bench/perplexity.c build/libengine.a \
		build/libcommon.a build/CMakeFiles/embedded.dir/embedded.c.o $(pkg-config --libs libcrypto libcjson zlib) -ldl -lm -pthread
	if [ $# -eq 0 ]; then
		build/debug/tests/generate_model "$work/model.gguf" tinyllama-1.1b F16 --layers 4 >/dev/null
		set -- cpu "$work/model.gguf"
	fi
	"$work/perplexity" "$@"
	exit
fi
if [ "${1:-}" = serving ]; then
	shift
	EXOGPU_BINARY=build/exogpu EXOGPU_GENERATE_MODEL=build/debug/tests/generate_model node tests/bench/serving.mjs "$work" "$@"
	exit
fi
if [ "${1:-}" = speculate ]; then
	shift
	EXOGPU_BINARY=$PWD/build/exogpu EXOGPU_WIRE=$PWD/build/debug/tests/wire node tests/bench/speculate.mjs "$@"
	exit
fi
if [ "${1:-}" = grammar ]; then
	shift
	cc -std=gnu11 -O2 -D_GNU_SOURCE -I. -Iengine/include -o "$work/grammar" tests/bench/grammar.c build/libengine.a \
		build/libcommon.a build/CMakeFiles/embedded.dir/embedded.c.o $(pkg-config --libs libcrypto libcjson zlib) -ldl -lm -pthread
	python3 tests/bench/schemas.py 400 1 >"$work/schemas"
	[ $# -gt 0 ] || set -- 49152 128000
	for one in "$@"; do "$work/grammar" "$one" "$work/schemas" 2; done
	exit
fi
if [ "${1:-}" = ring ]; then
	shift
	cc -std=gnu11 -O2 -D_GNU_SOURCE -I. -Iengine/include -o "$work/ring" tests/bench/ring.c build/libcommon.a \
		build/CMakeFiles/embedded.dir/embedded.c.o $(pkg-config --libs libcrypto libcjson zlib) -pthread
	[ $# -gt 0 ] || set -- Q4_0 Q8_0 F16
	for one in "$@"; do
		layers=${one#*:}
		[ "$layers" != "$one" ] || layers=22
		build/debug/tests/generate_model "$work/model.gguf" tinyllama-1.1b "${one%%:*}" --layers "$layers" >/dev/null
		printf '\n### A ring of two on one machine: the 1.1B shape, %s layers, %s, medians of 5\n\n' "$layers" "${one%%:*}"
		"$work/ring" build/exogpu "$work/model.gguf" "$layers"
		rm "$work/model.gguf"
	done
	exit
fi
if [ "${1:-}" = cluster ]; then
	shift
	if [ "${1:-}" = pair ]; then # 10 Gbit/s, which a wire of single frames does not carry
		export EXOGPU_RELAY=$work/relay EXOGPU_DETOUR=$work/detour.so
		cc -std=gnu11 -O2 -D_GNU_SOURCE -o "$EXOGPU_RELAY" tests/cluster/relay.c -pthread
		cc -std=gnu11 -O2 -D_GNU_SOURCE -shared -fPIC -o "$EXOGPU_DETOUR" tests/cluster/detour.c -ldl
	fi
	EXOGPU_BINARY=$PWD/build/exogpu EXOGPU_PACED_BINARY=$PWD/build/debug/exogpu EXOGPU_WIRE=$PWD/build/debug/tests/wire \
		EXOGPU_GENERATE_MODEL=$PWD/build/debug/tests/generate_model node tests/bench/cluster.mjs "$work" "$@"
	exit
fi
if [ "${1:-}" = solver ]; then
	shift
	cc -std=gnu11 -O2 -D_GNU_SOURCE -I. -Iengine/include -o "$work/solver" tests/bench/solver.c server/placement/placement*.c \
		build/libengine.a build/libcommon.a build/CMakeFiles/embedded.dir/embedded.c.o $(pkg-config --libs libcrypto libcjson zlib) \
		-ldl -lm -pthread
	if [ "${1:-}" = cpsat ]; then
		"${EXOGPU_ORTOOLS_PYTHON:-python3}" -B tests/bench/cpsat.py "$work/solver" "${2:-1000}" 10 build/cpsat-answers
	else
		"$work/solver" "$@"
	fi
	exit
fi
if [ "${1:-}" = store ]; then
	shift
	program=build/tests/bench_store
	[ -x "$program" ] || program=build/debug/tests/bench_store
	mkdir "$work/files" "$work/database"
	EXOGPU_TEST_POSTGRES_DURABLE=1 python3 -B tests/postgres.py bash -euc '
		"$EXOGPU_TEST_POSTGRES_BIN/createdb" -h "$EXOGPU_TEST_POSTGRES" -U exogpu bench
		(umask 077 && echo "postgres://exogpu@/bench?host=$EXOGPU_TEST_POSTGRES" >"$1/database/store")
		"$0" "$1/files" "$1/database" "${@:2}"' "$program" "$work" "$@"
	exit
fi
if [ "${1:-}" = soak ]; then
	shift
	EXOGPU_BINARY=$PWD/build/exogpu node tests/bench/soak.mjs "$@"
	exit
fi
if [ "${1:-}" = simulation ]; then # with assertions, and results checked against the contract
	shift
	cmake --preset debug >/dev/null
	cmake --build build/debug --target unit_server_instances_whole_test_whole >/dev/null
	build/debug/tests/unit_server_instances_whole_test_whole "${1:-1}" "${2:-10000}"
	exit
fi
cc -std=gnu11 -O2 -D_GNU_SOURCE -o "$work/fanout" tests/bench/fanout.c
cc -std=gnu11 -O2 -D_GNU_SOURCE -I. -Iengine/include -o "$work/device" tests/bench/device.c engine/device/datasheet.c \
	-Lbuild -lexogpu -Wl,-rpath,"$PWD/build" -pthread
cc -std=gnu11 -O2 -D_GNU_SOURCE -I. -o "$work/transfer" tests/bench/transfer.c \
	$(pkg-config --cflags --libs libwebsockets libssl libcrypto)
cc -std=gnu11 -O2 -D_GNU_SOURCE -I. -o "$work/tls" tests/bench/tls.c build/libcommon.a \
	$(pkg-config --cflags --libs libwebsockets libssl libcrypto libcjson zlib) -pthread
cc -std=gnu11 -O2 -D_GNU_SOURCE -shared -fPIC -o "$work/turns.so" tests/bench/turns.c -ldl
node tests/bench/run.mjs "$work" "$@"
