#!/bin/sh
# Install the Matrix homeserver that the suite starts on loopback, in an environment of its own, once for each version of
# its lock; go on without it if that fails.
set -eu
lock=requirements/homeserver.lock
home=.homeserver
stamp=$home/installed.stamp
[ -e "$stamp" ] && [ ! "$lock" -nt "$stamp" ] && exit 0
echo "== Matrix homeserver for the suite: 240 MB, once"
if "$1/bin/python" -m venv "$home" &&
    "$home/bin/python" -m pip --disable-pip-version-check --no-input install -q --only-binary :all: --require-hashes -r "$lock"; then
    touch "$stamp"
else
    echo "No Matrix homeserver here: its tests are skipped. It is tried again next time."
fi
