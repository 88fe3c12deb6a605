#!/usr/bin/env bash
# How long `./dev up` takes until the server answers: the first time from nothing, and once more.
#
# usage: tests/first-start.sh FIRST_LIMIT_S AGAIN_LIMIT_MS
# Meant for a bare system (a container, a chroot): it installs packages. Not part of ./dev test.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
first_limit_s=${1:?FIRST_LIMIT_S}
again_limit_ms=${2:?AGAIN_LIMIT_MS}
data=$(mktemp -d)
server=
finish() {
	[ -z "$server" ] || kill "$server" 2>/dev/null || true
	rm -rf "$data"
}
trap finish EXIT

milliseconds() {
	echo $((${EPOCHREALTIME/[.,]/} / 1000))
}

# The server says when it is ready; prints the milliseconds until then.
start() { # LIMIT_MS
	local begin now
	: >"$data/out"
	begin=$(milliseconds)
	./dev up --listen 127.0.0.1:0 --data "$data" >"$data/out" 2>"$data/err" </dev/null &
	server=$!
	until grep -q '^dashboard: ' "$data/out"; do
		now=$(milliseconds)
		if [ $((now - begin)) -gt "$1" ] || ! kill -0 "$server" 2>/dev/null; then
			echo "not ready after $((now - begin)) ms" >&2
			cat "$data/err" "$data/out" >&2
			return 1
		fi
		sleep 0.01
	done
	now=$(milliseconds)
	echo "ready after $((now - begin)) ms (limit $1 ms)"
	cat "$data/err"
	kill -TERM "$server"
	begin=$(milliseconds)
	wait "$server"
	echo "stopped after $(($(milliseconds) - begin)) ms"
	server=
}

start $((first_limit_s * 1000))
start "$again_limit_ms"
