#!/bin/sh
# Runs a compiler of device code, or copies what it made before of the same: kernels are the same in every preset and
# checkout, and a sixth of a build. They are kept in the folder EXOGPU_KERNEL_CACHE for 30 days; where that is not set, as in any build
# but ./dev's, this is the command and nothing else.
#
# usage: once.sh OUTPUT FILE... -- COMMAND...
# OUTPUT is what COMMAND writes, the FILEs are all that it reads.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
output=$1
shift
contents=$(for file; do
	[ "$file" != -- ] || break
	sha256sum <"$file"
done)
while [ "$1" != -- ]; do shift; done
shift
[ -n "${EXOGPU_KERNEL_CACHE:-}" ] || exec "$@"
key=$({
	echo "$contents"
	"$1" --version
	printf '%s\n' "$@" | grep -vxF -e "$output" | sed "s|$root|.|g" # another checkout's are the same
} | sha256sum)
kept=$EXOGPU_KERNEL_CACHE/${key%% *}
if [ ! -f "$kept" ]; then
	"$@"
	mkdir -p "$EXOGPU_KERNEL_CACHE"
	# What another build moves or deletes meanwhile is no error.
	find "$EXOGPU_KERNEL_CACHE" -type f -mtime +30 -delete 2>/dev/null || true
	cp "$output" "$kept.$$" # another build may want it now: it is there whole, or not at all
	mv "$kept.$$" "$kept"
else
	cp "$kept" "$output"
fi
