# The dashboard in the browser of whoever called ./dev up, once the server answers. Sourced by ./dev.

# opens_page: there is a person at a terminal, with a desktop and something that opens a page on it.
opens_page() {
	[ -t 0 ] && [ -n "${DISPLAY:-}${WAYLAND_DISPLAY:-}" ] && command -v xdg-open >/dev/null
}

# data_words SERVE FLAGS: the words of them that name the data directory, one a line; the last one counts.
data_words() {
	local words=()
	while [ $# -gt 0 ]; do
		case $1 in
		--data) words=(--data "${2:-}") ;;
		--data=*) words=("$1") ;;
		esac
		shift
	done
	[ ${#words[@]} -eq 0 ] || printf '%s\n' "${words[@]}"
}

# open_page PROGRAM SERVE FLAGS: waits until the server that this shell becomes answers, then opens its page; gives up
# when it is gone. For the background. Without EXOGPU_URL, which could name another server.
open_page() {
	local program=$1 data
	shift
	mapfile -t data < <(data_words "$@")
	unset EXOGPU_URL
	until "$program" nodes "${data[@]}" >/dev/null 2>&1; do
		kill -0 $$ 2>/dev/null || return 0
		sleep 0.2
	done
	"$program" open "${data[@]}"
}
