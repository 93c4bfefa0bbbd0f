"""A real XMPP server on loopback, for tests: Prosody with TLS, rooms, archives and a file service.

Rooms are made when the first person enters; they show the addresses of their occupants.
"""

import asyncio
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from talaria.testing.server_process import free_ports, make_certificate, running, wait_for_port

PROSODY = "/usr/bin/prosody"
MISSING = "Prosody is not installed; `make test` installs it as root"
DOMAIN, ROOMS = "localhost", "rooms.localhost"
_CONFIG = """
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

    async def set_password(self, user: str, password: str) -> None:
        """Register a user, or change the password."""
        command = ["prosodyctl", "--root", "--config", f"{self.folder}/prosody.cfg.lua", "register", user, DOMAIN]
        await asyncio.to_thread(subprocess.run, [*command, password], check=True, capture_output=True)


@contextmanager
def prosody() -> Iterator[ProsodyServer]:
    """Run Prosody at free ports."""
    with tempfile.TemporaryDirectory(prefix="talaria-xmpp-") as name:
        folder = Path(name)
        make_certificate(folder / "cert.pem", folder / "key.pem")
        port, tls_port, http_port = free_ports(3)
        config = folder / "prosody.cfg.lua"
        config.write_text(_CONFIG.format(folder=folder, port=port, tls_port=tls_port, http_port=http_port))
        options = ["--root"] if os.getuid() == 0 else []
        with running([PROSODY, "-F", *options, "--config", str(config)], folder):
            for one in (port, tls_port, http_port):
                wait_for_port(one)
            yield ProsodyServer(port, tls_port, http_port, folder)
