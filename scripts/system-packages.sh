#!/bin/sh
# Install the programs that the test suite needs if root and apt are available; otherwise print what is missing.
set -eu
missing=""
ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || command -v postgres >/dev/null 2>&1 || missing=" postgresql"
command -v chromium >/dev/null 2>&1 || command -v google-chrome >/dev/null 2>&1 || missing="$missing chromium"
if grep -qs "^ID=debian" /etc/os-release; then # half the CPU time of the whole browser, and not in other distributions
    command -v chromium-headless-shell >/dev/null 2>&1 || missing="$missing chromium-headless-shell"
fi
command -v bwrap >/dev/null 2>&1 || missing="$missing bubblewrap"
command -v podman >/dev/null 2>&1 || missing="$missing podman runc"
if command -v dpkg-query >/dev/null 2>&1; then # the container tests make their base image from these
    dpkg-query -W python3-venv tzdata >/dev/null 2>&1 || missing="$missing python3-venv tzdata"
fi
# with systemd, the package would start docker's daemon, which isn't wanted; tests start their own
command -v dockerd >/dev/null 2>&1 || [ -d /run/systemd/system ] || missing="$missing docker.io"
command -v sshd >/dev/null 2>&1 || [ -x /usr/sbin/sshd ] || missing="$missing openssh-server"
for shell in fish zsh; do # completion is tested in real shells
    command -v "$shell" >/dev/null 2>&1 || missing="$missing $shell"
done
command -v rg >/dev/null 2>&1 || missing="$missing ripgrep"
command -v espeak-ng >/dev/null 2>&1 || missing="$missing espeak-ng" # speech is tested with a real program
[ -x /usr/sbin/ngircd ] || missing="$missing ngircd"
[ -x /usr/sbin/inspircd ] || missing="$missing inspircd atheme-services"
command -v prosody >/dev/null 2>&1 || missing="$missing prosody"
command -v Xvfb >/dev/null 2>&1 || missing="$missing xvfb" # the browser's window
[ -x /usr/sbin/exim4 ] || missing="$missing exim4-daemon-light"
[ -x /usr/sbin/dovecot ] || missing="$missing dovecot-imapd dovecot-lmtpd"
[ -n "$missing" ] || exit 0
if [ -z "${TALARIA_NO_APT:-}" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "== system packages: installing$missing with apt-get, as root (TALARIA_NO_APT=1 skips this, and their tests)"
    # shellcheck disable=SC2086 # a list of package names
    apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing && exit 0
fi
echo "Not installed here:$missing. The tests that need these packages are skipped."
