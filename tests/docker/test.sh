#!/usr/bin/env bash
# Builds the container image as docker/Dockerfile says and tries it, where no container engine runs: buildah with chroot
# isolation, on a base that debootstrap makes. Exit status 77: what that takes is not here.
#
# usage: tests/docker/test.sh [--make | --try] [FOLDER]
# FOLDER (build/docker) keeps the base and the image: about 2 GB. The first time takes two to four minutes, most of it
# packages of Debian. --make makes the image and does not try it, beside other work; --try tries what that has made. The
# base trusts the authorities that this machine's administrator has added, so that a build behind a proxy of TLS gets
# its packages.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
only=""
case ${1:-} in
--make | --try)
	only=$1
	shift
	;;
esac
folder=${1:-build/docker}
base=localhost/exogpu-base:trixie image=localhost/exogpu:test

for program in buildah debootstrap node; do
	if ! command -v $program >/dev/null; then
		echo "skipped: $program is not installed (apt-get install buildah debootstrap)"
		exit 77
	fi
done
if [ "$(id -u)" -ne 0 ]; then
	echo "skipped: debootstrap and chroot take root's rights"
	exit 77
fi

mkdir -p "$folder"
folder=$(realpath "$folder")
export EXOGPU_BUILDAH="buildah --root $folder/storage --runroot $folder/run" EXOGPU_IMAGE=$image

make_base() {
	local tree container
	tree=$(mktemp -d "$folder/base-XXXXXX")
	debootstrap --variant=minbase trixie "$tree"
	if compgen -G '/usr/local/share/ca-certificates/*.crt' >/dev/null; then
		mkdir -p "$tree/usr/local/share/ca-certificates"
		cp /usr/local/share/ca-certificates/*.crt "$tree/usr/local/share/ca-certificates/"
	fi
	container=$($EXOGPU_BUILDAH from scratch)
	$EXOGPU_BUILDAH add -q "$container" "$tree" /
	$EXOGPU_BUILDAH commit -q --rm "$container" $base
	rm -rf "$tree"
}

# The package once, then the images that hold it; that of the target all is the one which is tried most.
make_images() {
	local build=("$@" build --isolation chroot --format docker --build-arg BASE=$base -f docker/Dockerfile) target
	"${build[@]}" --build-arg CUDA_IMAGES=auto --target build -t localhost/exogpu:made . || return
	for target in all cpu nvidia; do
		"${build[@]}" --build-context build=container-image://localhost/exogpu:made --target $target -t localhost/exogpu:$target . || return
	done
	"$@" tag localhost/exogpu:all $image
}
if [ "$only" != --try ]; then
	$EXOGPU_BUILDAH inspect --type image $base >/dev/null 2>&1 || make_base
	make_images $EXOGPU_BUILDAH || make_images $EXOGPU_BUILDAH # a package that could not be fetched may come the second time
	$EXOGPU_BUILDAH rmi --prune >/dev/null 2>&1 || true # those that an earlier run left without a name
fi
[ "$only" != --make ] || exit 0
exec node --test --test-reporter=tap tests/docker/image.test.mjs
