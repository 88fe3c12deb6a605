# Configuring and compiling. Ninja finds out what is unchanged, so there is no stamp of our own for the build.
# Sourced by ./dev.

export EXOGPU_KERNEL_CACHE=$root/build/kernel-cache # cmake/once.sh
export EXOGPU_NVRTC=${EXOGPU_NVRTC:-$root/build/nvrtc}             # cmake/nvrtc.py

# What compiles CUDA kernels of programs that are run or shipped. cmake fetches it, too; here it has a line of its own,
# since it takes as long as the network does. Without a network cmake is not to wait for it again.
fetch_nvrtc() {
	local status=0
	step_quiet=1 step_tail=0 step nvrtc "fetching $(python3 -B cmake/nvrtc.py describe)" \
		python3 -B cmake/nvrtc.py fetch "$EXOGPU_NVRTC" || status=$?
	case $status in
	0) ;;
	77)
		tail -n 1 "$log_dir/nvrtc.log" | sed 's/^/  | /' >&2
		echo "  | the CUDA kernels are compiled by nvcc or clang instead; docs/engine.md says what that costs" >&2
		export PIP_NO_INDEX=1
		;;
	*) fail "$(cat "$log_dir/nvrtc.log")" ;;
	esac
}

build_dir() { # PRESET
	[ "$1" = release ] && echo build || echo "build/$1"
}

# build PRESET [CMAKE ARGUMENT...]: configured and compiled, or the script ends with the reason. `target`, if it is set,
# names what is compiled, in words, instead of all.
build() {
	local preset=$1 dir
	shift
	dir=$(build_dir "$preset")
	if [ ! -f "$dir/build.ninja" ] || [ $# -gt 0 ]; then
		case $preset in release | package*) fetch_nvrtc ;; esac
		CMAKE_GENERATOR=Ninja step "configure-$preset" "configuring ($preset)" \
			cmake --preset "$preset" "$@" || exit 1
	fi
	step_quiet=1 step_tail=60 step "build-$preset" "building ($preset)" \
		cmake --build "$dir" --target ${target:-all} -j "${CMAKE_BUILD_PARALLEL_LEVEL:-$(cores)}" || exit 1
}

# The fuzz targets with the objects of asan, which is another compiler's: what they have in common is built first.
build_replay() { # [TARGET]
	target="common engine server" build asan
	target=${1:-all} build replay
}

# install_node_modules FOLDER: all its packages, those for development too, as its lock file says; skipped while the
# lock is unchanged. cmake/npm.cmake, which wants fewer, goes by the first of the two files.
install_node_modules() {
	local folder=$1 lock
	[ -f "$folder/package-lock.json" ] || return 0
	lock=$(sha256sum "$folder/package-lock.json")
	lock=${lock%% *}
	[ "$(cat "$folder/node_modules/.lock-all.sha256" 2>/dev/null)" != "$lock" ] || return 0
	step "npm-${folder//\//-}" "installing the packages of $folder/" npm_ci "$folder" || exit 1
	echo "$lock" | tee "$folder/node_modules/.lock.sha256" >"$folder/node_modules/.lock-all.sha256"
}

npm_ci() { # FOLDER
	(cd "$1" && npm ci --no-audit --no-fund --loglevel=warn)
}
