#!/usr/bin/env bash
# Makes an image that stands in for python:3.13-slim where no registry of images can be reached, and prints its name:
# Debian by debootstrap, with the Python 3.13 of this machine in /usr/local.
#
#   tests/container/stand_in_base.sh FOLDER
#
# FOLDER is where the file system is made, and stays for the next time. What it is not: Docker's own build of Python,
# and its choice of Debian's packages. It must be run as root, and needs buildah and debootstrap.
set -euo pipefail

folder=$1
image=localhost/paceproxy-stand-in-base
python=$(
    for candidate in python3.13 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.13.*/bin/python3.13; do
        command -v "$candidate" >/dev/null && "$candidate" -c 'import ensurepip, sys; print(sys.base_prefix)' 2>/dev/null && break
    done
)
[[ -n $python ]] || { echo "there is no Python 3.13 to copy: install one with pyenv" >&2; exit 1; }

if [[ ! -e $folder/made ]]; then
    rm -rf "$folder"
    # The release of this machine, since that Python was linked here. The libraries are those of its modules.
    . /etc/os-release
    debootstrap --variant=minbase --include=ca-certificates,libbz2-1.0,libexpat1,libffi8,liblzma5,libncursesw6,libreadline8,libsqlite3-0,libssl3,libuuid1,zlib1g \
        "$VERSION_CODENAME" "$folder" http://deb.debian.org/debian >&2
    cp -a "$python/bin" "$python/lib" "$folder/usr/local/"
    ln -sf python3.13 "$folder/usr/local/bin/python"
    rm -rf "$folder"/usr/local/lib/python3.13/{test,site-packages/*}
    chroot "$folder" ldconfig
    chroot "$folder" /usr/local/bin/python -m ensurepip --default-pip >&2
    # Where the way to the package registry has an authority of its own.
    cp /etc/ssl/certs/ca-certificates.crt "$folder/etc/ssl/certs/"
    touch "$folder/made"
fi

container=$(buildah from scratch)
trap 'buildah rm "$container" >/dev/null' EXIT
buildah add --quiet "$container" "$folder" / >/dev/null
buildah config --env PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin "$container"
buildah commit --quiet "$container" "$image" >/dev/null
echo "$image"
