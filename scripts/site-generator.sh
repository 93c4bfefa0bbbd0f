#!/bin/sh
# Install the generator of the documentation site in its own environment, once per version of its lock file; continue
# without it on failure.
set -eu
lock=requirements/site.lock
home=.site-generator
stamp=$home/installed.stamp
[ -e "$stamp" ] && [ ! "$lock" -nt "$stamp" ] && exit 0
echo "== generator of the documentation site: 25 MB, once"
if "$1/bin/python" -m venv "$home" &&
    "$home/bin/python" -m pip --disable-pip-version-check --no-input install -q --only-binary :all: --no-deps --require-hashes -r "$lock"; then
    touch "$stamp"
else
    echo "The generator of the site couldn't be installed: its tests are skipped. The next run tries again."
fi
