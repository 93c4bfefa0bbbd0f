#!/bin/sh
# Install third-party programs for the test suite: an authorization server, MCP programs and OpenAI's JavaScript client from
# npm, Hermes Agent, and the command `llm` in its own environment. Continue without one that can't be installed.
set -eu
mcp=.mcp-peers
mcp_lock=requirements/mcp-peers
if [ ! -e "$mcp/installed.stamp" ] || [ "$mcp_lock/package-lock.json" -nt "$mcp/installed.stamp" ]; then
    echo "== MCP server and client for the test suite: 45 MB, once"
    mkdir -p "$mcp"
    cp "$mcp_lock/package.json" "$mcp_lock/package-lock.json" "$mcp/"
    if command -v npm >/dev/null && npm ci --silent --ignore-scripts --no-audit --no-fund --prefix "$mcp"; then
        # the inspector's command looks for its version one folder too high
        echo '{"name": "mcp-peers", "version": "1.0.0"}' >"$mcp/node_modules/@modelcontextprotocol/package.json"
        touch "$mcp/installed.stamp"
    else
        echo "The MCP programs couldn't be installed: their tests are skipped. The next run tries again."
    fi
fi
oidc=.oidc-provider
oidc_lock=requirements/oidc-provider
if [ ! -e "$oidc/installed.stamp" ] || [ "$oidc_lock/package-lock.json" -nt "$oidc/installed.stamp" ]; then
    echo "== authorization server for the test suite: 10 MB, once"
    mkdir -p "$oidc"
    cp "$oidc_lock/package.json" "$oidc_lock/package-lock.json" "$oidc/"
    if command -v npm >/dev/null && npm ci --silent --ignore-scripts --no-audit --no-fund --prefix "$oidc"; then
        touch "$oidc/installed.stamp"
    else
        echo "oidc-provider couldn't be installed: the sign-in tests are skipped. The next run tries again."
    fi
fi
lock=requirements/clients.lock
home=.api-clients
# one wheel without what it requires, as its store needs the standard library only
if [ ! -e "$home/hermes.stamp" ] || [ requirements/hermes.lock -nt "$home/hermes.stamp" ]; then
    echo "== Hermes Agent, whose homes the tests import: 10 MB, once"
    rm -rf "$home"/hermes_agent-*.whl
    if "$1/bin/python" -m pip --disable-pip-version-check --no-input download -q --only-binary :all: --no-deps --require-hashes \
        -d "$home" -r requirements/hermes.lock; then
        touch "$home/hermes.stamp"
    else
        echo "Hermes Agent couldn't be downloaded: its test is skipped. The next run tries again."
    fi
fi
script=openai
version=6.49.0
sum=e48de0f4c5dbecebdeb864233f5ea49be07cd3e0ff3bd3e1e6745dc5e168cced # SHA-256 of its archive; it has no dependencies
stamp=$home/installed.stamp
[ -e "$stamp" ] && [ ! "$lock" -nt "$stamp" ] && [ ! scripts/api-clients.sh -nt "$stamp" ] && exit 0
echo "== API clients for the test suite: 100 MB, once"
mkdir -p "$home"
if ! command -v npm >/dev/null; then
    echo "npm isn't installed: the JavaScript test is skipped."
elif ! npm pack --silent --pack-destination "$home" "$script@$version" >/dev/null ||
    ! echo "$sum  $home/$script-$version.tgz" | sha256sum --check --quiet - ||
    ! npm install --silent --no-save --no-package-lock --ignore-scripts --legacy-peer-deps --no-audit --no-fund \
        --prefix "$home" "$home/$script-$version.tgz"; then
    echo "The JavaScript client couldn't be installed: its test is skipped. The next run tries again."
    exit 0
fi
if "$1/bin/python" -m venv "$home/llm" &&
    "$home/llm/bin/python" -m pip --disable-pip-version-check --no-input install -q --only-binary :all: --no-deps --require-hashes -r "$lock"; then
    touch "$stamp"
else
    echo "llm couldn't be installed: its test is skipped. The next run tries again."
fi
