#!/bin/sh
# The cache is writable and starts empty. The load engine, compiled when the image was built, is
# linked into it: what a tmpfs holds itself may not be executed.
set -eu
mkdir -p "$INFERSWEEP_CACHE"
ln -sf /opt/infersweep/*.so "$INFERSWEEP_CACHE/"
exec "$@"
