"""A real mail server on loopback, for tests: Exim takes mail, Dovecot stores it and serves it over IMAP.

Both drop their privileges to users of their own, so they need root. Every name that starts with ``user-`` has a
mailbox; mail for others is refused. What people send while logged in is reported as such, like RFC 8601 describes.
"""

import email.policy
import imaplib
import re
import shutil
import signal
import smtplib
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.message import EmailMessage
from email.parser import BytesParser
from os import getuid
from pathlib import Path
from types import TracebackType
from typing import Self

from talaria.testing.system_servers import free_ports

MISSING = "No mail server is installed, or this isn't root; `make test` installs it where apt can"
DOMAIN = "test.local"
PASSWORD = "correct-horse"  # noqa: S105 -- of a server that lives as long as a test run
_EXIM, _DOVECOT = Path("/usr/sbin/exim4"), Path("/usr/sbin/dovecot")
_ADDRESS = "127.0.0.1"
_START_SECONDS = 60
_STOP_SECONDS = 20
_CALL_SECONDS = 60
# Its input ends when this process does, in whatever way; then it ends the servers and clears up.
_GUARD = 'read -r _; kill -TERM "$1" "$2"; while kill -0 "$1" || kill -0 "$2"; do sleep 0.1; done; rm -rf "$3"'

_DOVECOT_CONFIG = """
base_dir = {folder}/run
state_dir = {folder}/run
log_path = {folder}/dovecot.log
protocols = imap lmtp
listen = 127.0.0.1
ssl = yes
ssl_cert = <{folder}/cert.pem
ssl_key = <{folder}/key.pem
disable_plaintext_auth = no
auth_mechanisms = plain login xoauth2
auth_failure_delay = 0
imap_idle_notify_interval = 10 s
mailbox_idle_check_interval = 1 s
mail_location = maildir:{folder}/mail/%u
mail_fsync = never
first_valid_uid = 1
passdb {{
  driver = passwd-file
  deny = yes
  args = username_format=%u {folder}/revoked
}}
passdb {{
  driver = oauth2
  mechanisms = xoauth2
  args = {folder}/oauth2.conf
}}
passdb {{
  driver = static
  mechanisms = plain login
  args = password={password}
}}
userdb {{
  driver = static
  args = uid=mail gid=mail home={folder}/mail/%u allow_all_users=yes
}}
namespace inbox {{
  inbox = yes
  mailbox Sent {{
    auto = create
    special_use = \\Sent
  }}
}}
service imap-login {{
  chroot =
  process_min_avail = 1
  service_count = 0
  inet_listener imap {{
    address = 127.0.0.1
    port = {imap}
  }}
  inet_listener imaps {{
    address = 127.0.0.1
    port = {imaps}
  }}
}}
service imap {{
  process_limit = 200
}}
service lmtp {{
  inet_listener lmtp {{
    address = 127.0.0.1
    port = {lmtp}
  }}
}}
service anvil {{
  chroot =
}}
"""

_OAUTH2_CONFIG = """
introspection_mode = post
introspection_url = {introspection}
username_attribute = username
active_attribute = active
active_value = true
"""

_EXIM_CONFIG = r"""
primary_hostname = mx.{domain}
keep_environment =
spool_directory = {folder}/spool
log_file_path = {folder}/exim-%slog
exim_user = Debian-exim
exim_group = Debian-exim
local_interfaces = <; [127.0.0.1]:{smtp} ; [127.0.0.1]:{smtps}
tls_on_connect_ports = {smtps}
tls_advertise_hosts = *
tls_certificate = {folder}/cert.pem
tls_privatekey = {folder}/key.pem
domainlist local_domains = {domain}
acl_smtp_mail = acl_mail
acl_smtp_rcpt = acl_rcpt
acl_smtp_data = acl_data
host_lookup =
rfc1413_hosts =
smtp_accept_max = 200
message_size_limit = 60M
queue_run_max = 2
never_users =
smtp_enforce_sync = false
begin acl
acl_mail:
  defer condition = ${{if exists{{{folder}/failing}}}}
  accept
acl_rcpt:
  defer condition = ${{if exists{{{folder}/slow}}}}
  deny !domains = +local_domains
  deny !local_parts = ^user-
  accept
acl_data:
  warn condition = ${{if !exists{{{folder}/silent}}}}
    add_header = :at_start:${{authresults {{$primary_hostname}}}}
  accept
begin routers
local:
  driver = accept
  domains = +local_domains
  transport = lmtp_out
begin transports
lmtp_out:
  driver = smtp
  protocol = lmtp
  hosts = 127.0.0.1
  port = {lmtp}
  allow_localhost
  hosts_try_fastopen =
begin retry
* * F,1h,5s
begin authenticators
plain:
  driver = plaintext
  public_name = PLAIN
  server_condition = ${{if and{{{{eq{{$auth3}}{{{password}}}}}{{!exists{{{folder}/revoked-$auth2}}}}}}}}
  server_set_id = $auth2
xoauth2:
  driver = plaintext
  public_name = XOAUTH2
  server_condition = ${{if match{{$auth1}}{{\N^user=[^\x01]+\x01auth=Bearer access-\N}}}}
  server_set_id = ${{sg{{$auth1}}{{\N^user=([^\x01]+)\x01.*$\N}}{{\$1}}}}
"""


def find_mail_server() -> bool:
    """Return whether a mail server can be started here."""
    return getuid() == 0 and _EXIM.exists() and _DOVECOT.exists()


class MailServer:
    """A server in a temporary folder, with free ports; ``with`` starts and ends it.

    ``introspection`` is a URL that Dovecot asks about OAuth tokens (RFC 7662). Exim takes all that start with
    ``access-``.
    """

    def __init__(self, introspection: str = "") -> None:
        self.folder = Path()
        self.smtp = self.smtps = self.imap = self.imaps = 0
        self._introspection = introspection
        self._lmtp = 0
        self._processes: list[subprocess.Popen[bytes]] = []
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def ca_file(self) -> Path:
        """The certificate of the server, which signs itself."""
        return self.folder / "cert.pem"

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="talaria-mail-"))
        try:
            self._configure()
            self._launch()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    @contextmanager
    def disturbed(self, name: str) -> Iterator[None]:
        """Let Exim refuse mail: ``failing``, ``slow``, or with ``silent`` report no checks of the sender."""
        flag = self.folder / name
        flag.touch()
        try:
            yield
        finally:
            flag.unlink()

    def revoke(self, address: str) -> None:
        """Refuse further logins to a mailbox."""
        with (self.folder / "revoked").open("a") as file:
            file.write(f"{address}\n")
        (self.folder / f"revoked-{address}").touch()
        deadline = time.monotonic() + _CALL_SECONDS
        while self._can_log_in(address):  # Dovecot reads the file once a second at most
            if time.monotonic() > deadline:
                raise RuntimeError(f"{address} can still log in")
            time.sleep(0.1)

    def _can_log_in(self, address: str) -> bool:
        try:
            with self._log_in(address):
                return True
        except imaplib.IMAP4.error:
            return False

    def submit(self, mail: bytes, sender: str, recipient: str, *, login: str = "") -> None:
        """Send a mail, logged in or, like a stranger, not; raises what `smtplib` raises."""
        with smtplib.SMTP(_ADDRESS, self.smtp, local_hostname="client.test", timeout=_CALL_SECONDS) as server:
            if login:
                server.login(login, PASSWORD)
            server.sendmail(sender, [recipient], mail)

    def is_settled(self) -> bool:
        """Return whether all mail that was taken on is in its mailbox."""
        return not any((self.folder / "spool" / "input").glob("*"))

    def read(self, address: str, folder: str = "INBOX") -> list[EmailMessage]:
        """Return the mails of a mailbox, oldest first."""
        parser = BytesParser(policy=email.policy.default)
        return [parser.parsebytes(path.read_bytes()) for path in self._list_mails(address, folder)]

    def flags(self, address: str) -> Mapping[str, bool]:
        """Return the subjects of a mailbox, and whether each mail was read."""
        parser = BytesParser(policy=email.policy.default)
        return {
            str(parser.parsebytes(path.read_bytes())["Subject"]): "S" in path.name.rpartition(",")[2]
            for path in self._list_mails(address, "INBOX")
        }

    def _list_mails(self, address: str, folder: str) -> list[Path]:
        """Return the files of a mailbox in the order of arrival, which their names start with."""
        folder_path = self.folder / "mail" / address / ("" if folder == "INBOX" else f".{folder}")
        found = [path for name in ("cur", "new") for path in (folder_path / name).glob("*")]
        return sorted(found, key=lambda path: [int(one) for one in re.findall(r"\d+", path.name)[:2]])

    def renumber(self, address: str) -> None:
        """Let the mailbox have new UIDs, as after a repair."""
        for name in ("dovecot-uidlist", "dovecot.index", "dovecot.index.log", "dovecot.index.cache"):
            (self.folder / "mail" / address / name).unlink(missing_ok=True)
        with self._log_in(address) as mailbox:
            mailbox.select()

    @contextmanager
    def _log_in(self, address: str) -> Iterator[imaplib.IMAP4]:
        mailbox = imaplib.IMAP4(_ADDRESS, self.imap, timeout=_CALL_SECONDS)
        try:
            mailbox.login(address, PASSWORD)
            yield mailbox
        finally:
            mailbox.shutdown()

    def _configure(self) -> None:
        self.smtp, self.smtps, self.imap, self.imaps, self._lmtp = free_ports(5)
        for name in ("mail", "run", "spool"):
            (self.folder / name).mkdir()
        (self.folder / "revoked").touch()
        _make_certificate(self.folder)
        texts = {
            "folder": self.folder,
            "domain": DOMAIN,
            "password": PASSWORD,
            "introspection": self._introspection or "http://127.0.0.1:9/",
            "smtp": self.smtp,
            "smtps": self.smtps,
            "imap": self.imap,
            "imaps": self.imaps,
            "lmtp": self._lmtp,
        }
        for name, text in (
            ("dovecot.conf", _DOVECOT_CONFIG),
            ("exim.conf", _EXIM_CONFIG),
            ("oauth2.conf", _OAUTH2_CONFIG),
        ):
            (self.folder / name).write_text(text.format(**texts))
        shutil.chown(self.folder / "mail", "mail", "mail")
        shutil.chown(self.folder / "spool", "Debian-exim", "Debian-exim")
        shutil.chown(self.folder / "key.pem", group="Debian-exim")
        shutil.chown(self.folder, group="Debian-exim")
        (self.folder / "key.pem").chmod(0o640)
        self.folder.chmod(0o775)

    def _launch(self) -> None:
        folder = self.folder
        self._run(_DOVECOT, "-F", "-c", str(folder / "dovecot.conf"))
        self._run(_EXIM, "-C", str(folder / "exim.conf"), "-bdf", "-odi", "-q1m")
        pids = [str(process.pid) for process in self._processes]
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "guard", *pids, str(folder)],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = time.monotonic() + _START_SECONDS
        for port in (self.imap, self.smtp):
            while not _is_open(port):
                if time.monotonic() > deadline or any(process.poll() is not None for process in self._processes):
                    raise RuntimeError(f"the mail server did not start: {(folder / 'out').read_text()[-2000:]}")
                time.sleep(0.02)

    def _run(self, *command: str | Path) -> None:
        with (self.folder / "out").open("ab") as out:
            self._processes.append(
                subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
            )

    def _stop(self) -> None:
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def _make_certificate(folder: Path) -> None:
    key, certificate = str(folder / "key.pem"), str(folder / "cert.pem")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run(
        [*command, "-days", "30", "-keyout", key, "-out", certificate, *names],
        check=True,
        capture_output=True,
        timeout=_START_SECONDS,
    )


def _is_open(port: int) -> bool:
    try:
        with socket.create_connection((_ADDRESS, port), timeout=1):
            return True
    except OSError:
        return False
