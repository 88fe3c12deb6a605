# What a release consists of. Sourced by ./dev.

usage_package() {
	cat <<'EOT'
usage: ./dev package [--images LIST] [--clients] [--sign KEYFILE] [--arch arm64]

Builds into build/package/, for the system it runs on:
  exogpu_VERSION_ARCH.deb, libexogpu-dev_VERSION_ARCH.deb
  exogpu-VERSION-linux-ARCH.tar.gz   runs from any folder, with its own libraries; for systems as new as this one
  exogpu-VERSION-linux-ARCH.cdx.json its bill of materials (CycloneDX); the packages have theirs inside
  SHA256SUMS                         of all these
The time in them is that of the last commit, or SOURCE_DATE_EPOCH, so that the same sources make the same files.
--images LIST   for which NVIDIA GPUs kernels are compiled (all): auto is this machine's; docs/engine.md has the others.
                All of them take two cores about two minutes, once
--clients       with what ./dev clients makes
--arch arm64    for the same system on arm64, into build/package-arm64: by Debian's cross compiler, with libraries that apt
                fetches into build/sysroot-arm64. Nothing of that architecture is installed here
--sign KEYFILE  SHA256SUMS.sig too, by ssh-keygen with this key of OpenSSH, which must not lie in the repository
EOT
}

cmd_package() {
	local images=all clients="" key=() preset=package sysroot=/ dir needs=()
	while [ $# -gt 0 ]; do
		case $1 in
		--clients) clients=1 ;;
		--images | --sign | --arch)
			[ $# -ge 2 ] || fail_usage package "$1 needs a value"
			case $1 in
			--images) images=$2 ;;
			--sign) key=(--sign "$2") ;;
			*)
				[ "$2" = arm64 ] || fail_usage package "only arm64 is built on another architecture, not $2"
				preset=package-arm64 sysroot=$root/build/sysroot-arm64
				;;
			esac
			shift
			;;
		*) fail_usage package "not understood: $1" ;;
		esac
		shift
	done
	dir=build/$preset
	need_packages up package
	if [ $preset = package-arm64 ]; then
		need_packages arm64
		make_sysroot
	fi
	SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
	export SOURCE_DATE_EPOCH
	# Configured anew: the time is read then.
	build $preset "-DCMAKE_INSTALL_PREFIX=/usr" "-DEXOGPU_CUDA_IMAGES=$images" -DEXOGPU_TESTS=OFF
	if [ $preset = package-arm64 ]; then # passwd: as in cmake/package.cmake
		needs=(-D CPACK_DEBIAN_PROGRAM_PACKAGE_DEPENDS="passwd, $(python3 -B tools/package/depends.py "$sysroot" $dir/exogpu)"
			-D CPACK_DEBIAN_LIBRARY_PACKAGE_DEPENDS="$(python3 -B tools/package/depends.py "$sysroot" $dir/libexogpu{,_client}.so)")
	fi
	rm -f $dir/*.{deb,tar.gz,tgz,cdx.json,whl,jar} $dir/SHA256SUMS*
	step package "packing" sh -c 'cd "$1" && umask 022 && shift && cpack "$@"' - $dir "${needs[@]}" || exit 1
	step tarball "packing the tarball" python3 -B tools/package/tarball.py --build $dir --version "$(version)" --sysroot "$sysroot" || exit 1
	if [ -n "$clients" ]; then
		rm -rf build/clients
		cmd_clients
		cp build/clients/* $dir/
	fi
	python3 -B tools/package/sums.py $dir "${key[@]}" || exit 1
	sed "s|^[^ ]* *|$dir/|" $dir/SHA256SUMS
	ls $dir/SHA256SUMS*
}

# The libraries that packages.txt names for a build, for arm64.
make_sysroot() {
	local libraries
	mapfile -t libraries < <(sed -n 's/^up  *\(library\|file:[^ ]*stdlib\.h\)[^ ]*  *//p; s/^test  *library:cmocka  *//p' tools/dev/packages.txt)
	step_quiet=1 step sysroot "fetching libraries for arm64" \
		python3 -B tools/package/sysroot.py arm64 build/sysroot-arm64 "${libraries[@]}" || exit 1
}

version() {
	sed -n 's/^project(exogpu VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt
}
