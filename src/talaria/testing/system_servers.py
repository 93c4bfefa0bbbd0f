"""Real servers of the system on loopback, for tests: ngIRCd, InspIRCd with Atheme, and Prosody for XMPP.

Rooms of Prosody are made when the first person enters; they show the addresses of their occupants.
"""

import hashlib
import hmac
import os
import secrets
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

from msgspec import Struct

START_SECONDS = 60
_STOP_SECONDS = 20
_PORTS = range(15_000, 32_000)  # the system gives these to nobody who asks for any port, so they stay free
NGIRCD = "/usr/sbin/ngircd"
INSPIRCD, ATHEME = "/usr/sbin/inspircd", "/usr/bin/atheme-services"
_NGIRCD = """[Global]
  Name = irc.localhost
  Info = test
  Listen = 127.0.0.1
  Ports = {port}
  ServerUID = {user}
  ServerGID = {group}
  PidFile = {folder}/ngircd.pid
[Limits]
  MaxConnectionsIP = 0
  MaxJoins = 0
  MaxPenaltyTime = 0
  MaxNickLength = 20
[Options]
  Ident = no
  DNS = no
  PAM = no
"""
_INSPIRCD = """<server name="irc.localhost" description="test" id="1AA" network="test">
<bind address="127.0.0.1" port="{port}" type="clients">
<bind address="127.0.0.1" port="{tls_port}" type="clients" sslprofile="tls">
<bind address="127.0.0.1" port="{link_port}" type="servers">
<sslprofile name="tls" provider="gnutls" certfile="{folder}/cert.pem" keyfile="{folder}/key.pem" hash="sha256">
<connect allow="*" maxchans="50" timeout="60" pingfreq="120" hardsendq="1M" softsendq="1M" recvq="64K" localmax="500"
  globalmax="500" fakelag="no" commandrate="100000" threshold="1000" useident="no" resolvehostnames="no">
<link name="services.localhost" ipaddr="127.0.0.1" port="{link_port}" allowmask="*" sendpass="link" recvpass="link">
<uline server="services.localhost" silent="yes">
<pid file="{folder}/inspircd.pid">
<log method="file" type="* -USERINPUT -USEROUTPUT" level="default" target="{folder}/inspircd.log">
<path configdir="{folder}" datadir="{folder}" logdir="{folder}" runtimedir="{folder}">
<options allowzerolimit="no" casemapping="rfc1459">
<performance nouserdns="yes" softlimit="1024">
<sasl target="services.localhost" requiressl="no">
{modules}
"""
_INSPIRCD_MODULES = (
    "cap", "ircv3", "ircv3_accounttag", "ircv3_servertime", "ircv3_msgid", "ircv3_ctctags", "services_account", "sasl",
    "spanningtree", "ssl_gnutls", "sslinfo",
)  # fmt: skip
_ATHEME = """loadmodule "modules/protocol/inspircd";
loadmodule "modules/backend/opensex";
loadmodule "modules/crypto/rawsha1";
loadmodule "modules/nickserv/main";
loadmodule "modules/nickserv/register";
loadmodule "modules/nickserv/identify";
loadmodule "modules/nickserv/set_core";
loadmodule "modules/nickserv/set_password";
loadmodule "modules/nickserv/cert";
loadmodule "modules/saslserv/main";
loadmodule "modules/saslserv/plain";
loadmodule "modules/saslserv/external";
serverinfo {{ name = "services.localhost"; desc = "services"; numeric = "00A"; recontime = 1; netname = "test";
  hidehostsuffix = "users.test"; adminname = "test"; adminemail = "test@localhost"; registeremail = "test@localhost";
  mta = "/bin/true"; loglevel = {{ error; info; }}; maxlogins = 50; maxusers = 500; mdlimit = 30; auth = none;
  casemapping = rfc1459; }};
uplink "irc.localhost" {{ host = "127.0.0.1"; password = "link"; port = {link_port}; }};
nickserv {{ nick = "NickServ"; user = "NickServ"; host = "services.localhost"; real = "Nicks"; no_nick_ownership; }};
saslserv {{ nick = "SaslServ"; user = "SaslServ"; host = "services.localhost"; real = "SASL"; }};
logfile "{folder}/atheme.log" {{ error; info; register; set; network; }};
general {{ flood_msgs = 0; commit_interval = 60; default_clone_limit = 1000; }};
"""
PROSODY = "/usr/bin/prosody"
PROSODY_MISSING = "Prosody is not installed; `make test` installs it as root"
DOMAIN, ROOMS = "localhost", "rooms.localhost"
_PROSODY = """
run_as_root = true
daemonize = false
pidfile = "{folder}/prosody.pid"
data_path = "{folder}"
log = {{ info = "{folder}/prosody.log" }}
interfaces = {{ "127.0.0.1" }}
c2s_ports = {{ {port} }}
c2s_direct_tls_ports = {{ {tls_port} }}
http_ports = {{ {http_port} }}
https_ports = {{}}
http_interfaces = {{ "127.0.0.1" }}
http_external_url = "http://localhost:{http_port}/"
modules_enabled = {{ "roster"; "saslauth"; "tls"; "disco"; "ping"; "carbons"; "register_ibr"; "mam"; "smacks";
  "offline"; "posix"; "http" }}
modules_disabled = {{ "s2s" }}
allow_registration = true
authentication = "internal_hashed"
c2s_require_encryption = true
storage = "internal"
ssl = {{ key = "{folder}/key.pem"; certificate = "{folder}/cert.pem" }}
VirtualHost "localhost"
Component "rooms.localhost" "muc"
  modules_enabled = {{ "muc_mam" }}
  restrict_room_creation = false
  muc_room_locking = false
  muc_room_default_public_jids = true
Component "upload.localhost" "http_file_share"
  http_host = "localhost"
  http_file_share_size_limit = 1048576
  http_file_share_access = {{ "localhost" }}
"""


@contextmanager
def running(command: Sequence[str], folder: Path) -> Iterator[None]:
    """Run a server, which ends with this process too."""
    with (folder / "output").open("ab") as output:
        # setpriv: the server ends even if the test run is killed
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "TERM", *command], stdout=output, stderr=output, cwd=folder
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port() -> int:
    """Return a port that nobody listens at, and that stays free until it is used."""
    return free_ports(1)[0]


def free_ports(number: int) -> list[int]:
    """Return different ports like that."""
    sockets: list[socket.socket] = []
    while len(sockets) < number:
        try:
            sockets.append(socket.create_server(("127.0.0.1", secrets.choice(_PORTS))))
        except OSError:
            continue
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def wait_for_port(port: int) -> None:
    """Wait until a server listens."""
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)
        else:
            return


def make_certificate(certificate: Path, key: Path) -> None:
    """Write a self-signed certificate for localhost."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-keyout", str(key), "-out", str(certificate), "-days", "30", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip


class IrcServer(Struct, frozen=True):
    """A running server; ``tls_port`` and ``certificate``, a self-signed one, are there if it has services."""

    port: int
    tls_port: int = 0
    certificate: str = ""


@contextmanager
def ngircd() -> Iterator[IrcServer]:
    """Run ngIRCd, which has no accounts, at a free port."""
    with ExitStack() as stack:
        folder = _make_folder(stack)
        port = free_port()
        config = folder / "ngircd.conf"
        config.write_text(_NGIRCD.format(port=port, folder=folder, user=os.getuid(), group=os.getgid()))
        stack.enter_context(running([NGIRCD, "-n", "-f", str(config)], folder))
        wait_for_port(port)
        yield IrcServer(port)


@contextmanager
def network_with_services() -> Iterator[IrcServer]:
    """Run InspIRCd and Atheme: NickServ registers accounts, which log in with SASL PLAIN and EXTERNAL."""
    with ExitStack() as stack:
        folder = _make_folder(stack)
        make_certificate(folder / "cert.pem", folder / "key.pem")
        port, tls_port, link_port = free_ports(3)
        modules = "\n".join(f'<module name="{name}">' for name in _INSPIRCD_MODULES)
        ports = {"port": port, "tls_port": tls_port, "link_port": link_port, "folder": folder}
        (folder / "inspircd.conf").write_text(_INSPIRCD.format(modules=modules, **ports))
        (folder / "atheme.conf").write_text(_ATHEME.format(**ports))
        inspircd = [INSPIRCD, "--nofork", "--runasroot", f"--config={folder}/inspircd.conf"]
        stack.enter_context(running(inspircd, folder))
        wait_for_port(tls_port)
        atheme = [ATHEME, "-n", "-c", f"{folder}/atheme.conf", "-D", str(folder), "-p", f"{folder}/atheme.pid"]
        stack.enter_context(running(atheme, folder))
        _wait_for_services(port)
        yield IrcServer(port, tls_port, str(folder / "cert.pem"))


def _make_folder(stack: ExitStack) -> Path:
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="talaria-irc-")))


def _wait_for_services(port: int) -> None:
    """Wait until accounts can log in."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        with socket.create_connection(("127.0.0.1", port), START_SECONDS) as probe, probe.makefile("rb") as lines:
            probe.sendall(b"CAP LS 302\r\n")
            if b" sasl=PLAIN" in next(line for line in lines if b" LS " in line):
                return
        time.sleep(0.02)
    raise TimeoutError("the IRC services didn't start")


class ProsodyServer(Struct, frozen=True):
    """A running server: ``port`` is for STARTTLS, ``tls_port`` for TLS from the start."""

    port: int
    tls_port: int
    http_port: int
    folder: Path

    @property
    def certificate(self) -> str:
        """Return the file with the certificate of the server."""
        return str(self.folder / "cert.pem")

    def set_password(self, user: str, password: str) -> None:
        """Register a user, or change the password: Prosody reads an account's file at each login.

        ``prosodyctl`` would load all of Prosody to write the same file.
        """
        folder = self.folder / DOMAIN / "accounts"
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / f"{user}.draft"
        draft.write_text(_make_account_file(password))
        draft.rename(folder / f"{user}.dat")


@cache
def _make_account_file(password: str) -> str:
    """Return the account of a user in Prosody's format, with a key for SCRAM-SHA-1."""
    salt, iterations = "test salt", 4096
    salted = hashlib.pbkdf2_hmac("sha1", password.encode(), salt.encode(), iterations)
    client_key, server_key = (hmac.digest(salted, name, "sha1") for name in (b"Client Key", b"Server Key"))
    stored_key = hashlib.sha1(client_key).hexdigest()  # noqa: S324 (the mechanism's hash)
    return (
        f'return {{ ["salt"] = "{salt}"; ["iteration_count"] = {iterations}; '
        f'["stored_key"] = "{stored_key}"; ["server_key"] = "{server_key.hex()}"; }};\n'
    )


@contextmanager
def prosody() -> Iterator[ProsodyServer]:
    """Run Prosody at free ports."""
    with tempfile.TemporaryDirectory(prefix="talaria-xmpp-") as name:
        folder = Path(name)
        make_certificate(folder / "cert.pem", folder / "key.pem")
        port, tls_port, http_port = free_ports(3)
        config = folder / "prosody.cfg.lua"
        config.write_text(_PROSODY.format(folder=folder, port=port, tls_port=tls_port, http_port=http_port))
        options = ["--root"] if os.getuid() == 0 else []
        with running([PROSODY, "-F", *options, "--config", str(config)], folder):
            for one in (port, tls_port, http_port):
                wait_for_port(one)
            yield ProsodyServer(port, tls_port, http_port, folder)
