#!/bin/sh
# Install the servers that the suite starts on loopback, where root and apt are at hand; say so where they are not.
set -eu
ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 && exit 0
command -v postgres >/dev/null 2>&1 && exit 0
if [ -z "${TALARIA_NO_APT:-}" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "== system packages: installing postgresql with apt-get, as root (TALARIA_NO_APT=1 skips this, and its tests)"
    apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends postgresql && exit 0
fi
echo "No PostgreSQL server here: its tests are skipped. Install the package 'postgresql' to run them."
