# The Debian packages. Sourced by ./dev.

usage_package() {
	cat <<'EOT'
usage: ./dev package [--images LIST]

Builds exogpu_VERSION_ARCH.deb and libexogpu-dev_VERSION_ARCH.deb into build/package/, for the system it runs on. The
time in them is that of the last commit, or SOURCE_DATE_EPOCH, so that the same sources make the same packages.
--images LIST  for which NVIDIA GPUs kernels are compiled (all): auto is this machine's; docs/engine.md has the others.
               All of them take two cores about two minutes, once
EOT
}

cmd_package() {
	local images=all
	if [ $# -eq 2 ] && [ "$1" = --images ]; then
		images=$2
	elif [ $# -gt 0 ]; then
		fail_usage package "not understood: $*"
	fi
	need_packages up package
	SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
	export SOURCE_DATE_EPOCH
	# Configured anew: the time is read then.
	build package "-DCMAKE_INSTALL_PREFIX=/usr" "-DEXOGPU_CUDA_IMAGES=$images"
	rm -f build/package/*.deb
	step package "packing" sh -c 'cd build/package && umask 022 && cpack' || exit 1
	ls build/package/*.deb
}
