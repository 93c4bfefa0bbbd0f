#!/bin/sh
# Install the Matrix homeserver that the test suite starts on loopback, in its own environment, once per version of its lock
# file; continue without it on failure.
set -eu
lock=requirements/homeserver.lock
home=.homeserver
stamp=$home/installed.stamp
[ -e "$stamp" ] && [ ! "$lock" -nt "$stamp" ] && exit 0
echo "== Matrix homeserver for the test suite: 240 MB, once"
if "$1/bin/python" -m venv "$home" &&
    "$home/bin/python" -m pip --disable-pip-version-check --no-input install -q --only-binary :all: --no-deps --require-hashes -r "$lock"; then
    touch "$stamp"
else
    echo "The Matrix homeserver couldn't be installed: its tests are skipped. The next run tries again."
fi
