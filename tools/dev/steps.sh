# Steps with one line each, and how they fail. Sourced by ./dev.

log_dir=build/log
use_sudo=()

fail() {
	printf 'dev: %s\n' "$*" >&2
	exit 1
}

fail_usage() { # COMMAND MESSAGE
	printf 'dev %s: %s\n\n' "$1" "$2" >&2
	"usage_$1" >&2
	exit 2
}

# step NAME TEXT COMMAND...: run it, its output in build/log/NAME.log; one line with its seconds. Returns its status, of
# which 77 says that it was skipped; on failure the end of the log is shown (step_tail=0: the caller shows it). With
# step_quiet=1 a step that succeeds within a second leaves no line, so that a start with nothing to do shows the server
# and nothing else.
step() {
	local name=$1 text=$2 status=0 start=$EPOCHREALTIME log pid
	shift 2
	mkdir -p "$log_dir"
	log=$log_dir/$name.log
	"$@" >"$log" 2>&1 </dev/null &
	pid=$!
	# What runs in the background does not hear Ctrl-C by itself.
	trap 'kill -TERM "$pid" 2>/dev/null; wait "$pid"; exit 130' INT
	if [ "${step_quiet:-}" = 1 ] && finished_within_a_second "$pid"; then
		if wait "$pid"; then
			trap - INT
			return 0
		fi
	fi
	printf '%s ... ' "$text" >&2
	wait "$pid" || status=$?
	trap - INT
	if [ $status -eq 0 ]; then
		printf '%s s\n' "$(seconds_since "$start")" >&2
		return 0
	fi
	if [ $status -eq 77 ]; then
		printf 'skipped\n' >&2
		return $status
	fi
	printf 'failed after %s s\n' "$(seconds_since "$start")" >&2
	if [ "${step_tail:-40}" -gt 0 ]; then
		tail -n "${step_tail:-40}" "$log" | sed 's/^/  | /' >&2
		printf 'dev: the full output is in %s\n' "$log" >&2
	fi
	return $status
}

finished_within_a_second() { # PID
	local round
	for round in {1..50}; do
		kill -0 "$1" 2>/dev/null || return 0
		sleep 0.02
	done
	return 1
}

# Seconds since an $EPOCHREALTIME, with one decimal below ten.
seconds_since() {
	local from=${1/[.,]/} now=${EPOCHREALTIME/[.,]/}
	local tenths=$(((now - from + 50000) / 100000))
	if [ $tenths -lt 100 ]; then
		printf '%d.%d' $((tenths / 10)) $((tenths % 10))
	else
		printf '%d' $(((tenths + 5) / 10))
	fi
}

cores() {
	nproc 2>/dev/null || echo 2
}
