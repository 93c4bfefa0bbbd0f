#!/bin/sh
# Install clients of others that the suite asks the API with: OpenAI's for JavaScript, from npm, and the command `llm`, in
# an environment of its own. Go on without one that cannot be had.
set -eu
lock=requirements/clients.lock
home=.api-clients
script=openai@6.49.0
stamp=$home/installed.stamp
[ -e "$stamp" ] && [ ! "$lock" -nt "$stamp" ] && [ ! scripts/api-clients.sh -nt "$stamp" ] && exit 0
echo "== clients of the API for the suite: 100 MB, once"
mkdir -p "$home"
if ! command -v npm >/dev/null; then
    echo "No npm here: the test with JavaScript is skipped."
elif ! npm install --silent --no-save --no-package-lock --ignore-scripts --no-audit --no-fund --prefix "$home" "$script"; then
    echo "No client for JavaScript: its test is skipped. It is tried again next time."
    exit 0
fi
if "$1/bin/python" -m venv "$home/llm" &&
    "$home/llm/bin/python" -m pip --disable-pip-version-check --no-input install -q --only-binary :all: --require-hashes -r "$lock"; then
    touch "$stamp"
else
    echo "No llm here: its test is skipped. It is tried again next time."
fi
