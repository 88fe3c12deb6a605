# The Debian packages. Sourced by ./dev.

usage_package() {
	cat <<'EOT'
usage: ./dev package

Builds exogpu_VERSION_ARCH.deb and libexogpu-dev_VERSION_ARCH.deb into build/package/, for the system it runs on. The
time in them is that of the last commit, or SOURCE_DATE_EPOCH, so that the same sources make the same packages.
EOT
}

cmd_package() {
	[ $# -eq 0 ] || fail_usage package "it takes no arguments"
	need_packages up package
	SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
	export SOURCE_DATE_EPOCH
	build package "-DCMAKE_INSTALL_PREFIX=/usr" # configured anew: the time is read then
	rm -f build/package/*.deb
	step package "packing" sh -c 'cd build/package && umask 022 && cpack' || exit 1
	ls build/package/*.deb
}
