# What a release consists of. Sourced by ./dev.

usage_package() {
	cat <<'EOT'
usage: ./dev package [--images LIST] [--clients] [--sign KEYFILE]

Builds into build/package/, for the system it runs on:
  exogpu_VERSION_ARCH.deb, libexogpu-dev_VERSION_ARCH.deb
  exogpu-VERSION-linux-ARCH.tar.gz   runs from any folder, with its own libraries; for systems as new as this one
  exogpu-VERSION-linux-ARCH.cdx.json its bill of materials (CycloneDX); the packages have theirs inside
  SHA256SUMS                         of all these
The time in them is that of the last commit, or SOURCE_DATE_EPOCH, so that the same sources make the same files.
--images LIST   for which NVIDIA GPUs kernels are compiled (all): auto is this machine's; docs/engine.md has the others.
                All of them take two cores about two minutes, once
--clients       with what ./dev clients makes
--sign KEYFILE  SHA256SUMS.sig too, by ssh-keygen with this key of OpenSSH, which must not lie in the repository
EOT
}

cmd_package() {
	local images=all clients="" key=() dir=build/package
	while [ $# -gt 0 ]; do
		case $1 in
		--clients) clients=1 ;;
		--images | --sign)
			[ $# -ge 2 ] || fail_usage package "$1 needs a value"
			if [ "$1" = --images ]; then images=$2; else key=(--sign "$2"); fi
			shift
			;;
		*) fail_usage package "not understood: $1" ;;
		esac
		shift
	done
	need_packages up package
	SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
	export SOURCE_DATE_EPOCH
	# Configured anew: the time is read then.
	build package "-DCMAKE_INSTALL_PREFIX=/usr" "-DEXOGPU_CUDA_IMAGES=$images"
	rm -f $dir/*.{deb,tar.gz,tgz,cdx.json,whl,jar} $dir/SHA256SUMS*
	step package "packing" sh -c 'cd "$1" && umask 022 && cpack' - $dir || exit 1
	step tarball "packing the tarball" python3 -B tools/package/tarball.py --build $dir --version "$(version)" || exit 1
	if [ -n "$clients" ]; then
		rm -rf build/clients
		cmd_clients
		cp build/clients/* $dir/
	fi
	python3 -B tools/package/sums.py $dir "${key[@]}" || exit 1
	sed "s|^[^ ]* *|$dir/|" $dir/SHA256SUMS
	ls $dir/SHA256SUMS*
}

version() {
	sed -n 's/^project(exogpu VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt
}
