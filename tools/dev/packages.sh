# What has to be installed: told from tools/dev/packages.txt, by looking for the thing itself, so that a library or a
# Node.js that came some other way counts too. apt runs only when something is missing. Sourced by ./dev.

# need_packages WHAT...: everything that these words of packages.txt name is there when this returns.
need_packages() {
	find_node
	local packages=() things=()
	missing_packages "$@"
	[ ${#packages[@]} -gt 0 ] || return 0
	if ! command -v apt-get >/dev/null || ! command -v dpkg >/dev/null; then
		printf 'dev: this system has no apt; please install these yourself, then try again:\n' >&2
		printf '  %s\n' "${things[@]//|/ or }" >&2
		exit 1
	fi
	become_root "${packages[@]}"
	if [ -z "$(find /var/lib/apt/lists -name '*_Packages*' -mmin -1440 -print -quit 2>/dev/null)" ]; then
		step apt-update "reading the package lists" "${use_sudo[@]}" apt-get update || exit 1
	fi
	local text="installing ${packages[*]}"
	if ! step apt-install "$text" apt_install "${packages[@]}"; then
		# A list that has aged names versions which are gone.
		step apt-update "reading the package lists again" "${use_sudo[@]}" apt-get update || exit 1
		step apt-install "$text" apt_install "${packages[@]}" || exit 1
	fi
	hash -r
	find_node
	packages=() things=()
	missing_packages "$@"
	[ ${#things[@]} -eq 0 ] || fail "installed, but still not found: ${things[*]} (see $log_dir/apt-install.log)"
}

# want_package NAME: the program of that name and its package, where apt has it; what wants it does without, too.
want_package() {
	local use_sudo=()
	! command -v "$1" >/dev/null || return 0
	apt-cache show "$1" >/dev/null 2>&1 || return 0
	[ "$(id -u)" -eq 0 ] || use_sudo=(sudo -n)
	step_tail=0 step "apt-$1" "installing $1" apt_install "$1" || true
	hash -r
}

apt_install() {
	"${use_sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
		-o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=120 "$@"
}

# Fills the caller's arrays: packages (to install) and things (the checks that failed).
missing_packages() {
	local what check package
	while read -r what check package; do
		case " $* " in *" $what "*) ;; *) continue ;; esac
		present "$check" && continue
		things+=("$check")
		case " ${packages[*]} " in *" $package "*) ;; *) packages+=("$package") ;; esac
	done < <(sed -e '/^#/d' -e '/^[[:space:]]*$/d' tools/dev/packages.txt)
}

# present CHECK: true if one of the alternatives of a check is there.
present() {
	local alternatives alternative found
	IFS='|' read -r -a alternatives <<<"$1"
	for alternative in "${alternatives[@]}"; do
		case $alternative in
		command:*) command -v "${alternative#*:}" >/dev/null && return 0 ;;
		library:*) pkg-config --exists "${alternative#*:}" 2>/dev/null && return 0 ;;
		node:*) [ "$(node_major node)" -ge "${alternative#*:}" ] && return 0 ;;
		file:*) for found in ${alternative#*:}; do [ -e "$found" ] && return 0; done ;;
		esac
	done
	return 1
}

node_major() { # PROGRAM
	local version
	version=$("$1" --version 2>/dev/null) || version=v0
	version=${version#v}
	printf '%s' "${version%%.*}"
}

# A Node.js that is not on PATH but where its version managers put it is as good.
find_node() {
	[ "$(node_major node)" -ge 18 ] && return 0
	local program
	for program in "${NVM_DIR:-${HOME:-/nonexistent}/.nvm}"/versions/node/*/bin/node /usr/local/bin/node; do
		if [ -x "$program" ] && [ "$(node_major "$program")" -ge 18 ]; then
			PATH=$(dirname "$program"):$PATH
			export PATH
			hash -r
			return 0
		fi
	done
	return 0
}

# Fills use_sudo, or ends with the line that somebody with the rights can type.
become_root() {
	use_sudo=()
	[ "$(id -u)" -eq 0 ] && return 0
	if command -v sudo >/dev/null; then
		use_sudo=(sudo -n)
		sudo -n true 2>/dev/null && return 0
		if [ -t 0 ]; then
			use_sudo=(sudo)
			sudo -v && return 0
		fi
	fi
	printf 'dev: %s packages are missing that this account may not install. As root:\n' $# >&2
	printf '  apt-get update && apt-get install -y --no-install-recommends %s\n' "$*" >&2
	exit 1
}

# clang-format 14 wherever it is: layout differs a little between versions, and 14 is the one that lint enforces.
clang_format() {
	command -v clang-format-14 || command -v clang-format
}
