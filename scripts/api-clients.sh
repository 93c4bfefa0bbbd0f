#!/bin/sh
# Install clients of others that the suite asks the API with: OpenAI's for JavaScript, from npm, and the command `llm`, in
# an environment of its own. Go on without one that cannot be had.
set -eu
lock=requirements/clients.lock
home=.api-clients
script=openai
version=6.49.0
sum=e48de0f4c5dbecebdeb864233f5ea49be07cd3e0ff3bd3e1e6745dc5e168cced # of its archive; it has no dependencies
stamp=$home/installed.stamp
[ -e "$stamp" ] && [ ! "$lock" -nt "$stamp" ] && [ ! scripts/api-clients.sh -nt "$stamp" ] && exit 0
echo "== clients of the API for the suite: 100 MB, once"
mkdir -p "$home"
if ! command -v npm >/dev/null; then
    echo "No npm here: the test with JavaScript is skipped."
elif ! npm pack --silent --pack-destination "$home" "$script@$version" >/dev/null ||
    ! echo "$sum  $home/$script-$version.tgz" | sha256sum --check --quiet - ||
    ! npm install --silent --no-save --no-package-lock --ignore-scripts --legacy-peer-deps --no-audit --no-fund \
        --prefix "$home" "$home/$script-$version.tgz"; then
    echo "No client for JavaScript: its test is skipped. It is tried again next time."
    exit 0
fi
if "$1/bin/python" -m venv "$home/llm" &&
    "$home/llm/bin/python" -m pip --disable-pip-version-check --no-input install -q --only-binary :all: --require-hashes -r "$lock"; then
    touch "$stamp"
else
    echo "No llm here: its test is skipped. It is tried again next time."
fi
