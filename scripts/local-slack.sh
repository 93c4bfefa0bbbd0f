#!/bin/sh
# Install an independent Slack server for additional tests: one program of 95 MB, from npm. It isn't part of `make test`,
# because it listens on all interfaces while it runs.
set -eu
home=.local-slack
package=local-slack-linux-x64
program=$home/node_modules/$package/bin/local-slack
sum=3332007b797969d835f694b463ac526f7ef1fc66afac93f950f585105fe4815f
if [ ! -e "$program" ]; then
    command -v npm >/dev/null || { echo "npm isn't installed: the tests with this server are skipped."; exit 0; }
    mkdir -p "$home"
    npm install --silent --no-save --no-package-lock --ignore-scripts --prefix "$home" "$package@0.1.8" ||
        { echo "The download failed: the tests with this server are skipped."; exit 0; }
fi
if ! echo "$sum  $program" | sha256sum --check --quiet -; then
    rm -rf "$home"
    echo "The checksum of the download doesn't match: it was removed."
    exit 1
fi
