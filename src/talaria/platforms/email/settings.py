"""Settings of the e-mail adapter, and the servers of large providers."""

import ipaddress
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from talaria.core.errors import Refused

Security = Literal["tls", "starttls", "none"]
NO_AUTHSERV_ID = "none"  # Microsoft's servers write their results without an id, and rename those of others
_ADDRESS = re.compile(r"[^\s@<>(),;:\"\\\[\]]{1,64}@[^\s@<>(),;:\"\\\[\]]{1,255}")
_GOOGLE_TOKENS = "https://oauth2.googleapis.com/token"
_MICROSOFT_TOKENS = "https://login.microsoftonline.com/common/oauth2/v2.0/token"
SECRETS = {
    "password": "EMAIL_PASSWORD",
    "refresh_token": "EMAIL_REFRESH_TOKEN",
    "client_secret": "EMAIL_CLIENT_SECRET",
}


class MailProvider(Struct, frozen=True, kw_only=True):
    """The servers of a provider; ``authserv_id`` is under which name it reports checks of the sender."""

    imap_host: str
    smtp_host: str
    authserv_id: str
    smtp_port: int = 465
    smtp_security: Security = "tls"
    token_url: str = ""
    saves_sent: bool = False


_GOOGLE = MailProvider(
    imap_host="imap.gmail.com",
    smtp_host="smtp.gmail.com",
    authserv_id="mx.google.com",
    token_url=_GOOGLE_TOKENS,
    saves_sent=True,
)
_MICROSOFT = MailProvider(
    imap_host="outlook.office365.com",
    smtp_host="smtp.office365.com",
    authserv_id=NO_AUTHSERV_ID,
    smtp_port=587,
    smtp_security="starttls",
    token_url=_MICROSOFT_TOKENS,
    saves_sent=True,
)
_ICLOUD = MailProvider(
    imap_host="imap.mail.me.com",
    smtp_host="smtp.mail.me.com",
    authserv_id="dmarc.icloud.com, dkim-verifier.icloud.com, spf.icloud.com, bimi.icloud.com",
    smtp_port=587,
    smtp_security="starttls",
)
_FASTMAIL = MailProvider(
    imap_host="imap.fastmail.com", smtp_host="smtp.fastmail.com", authserv_id="*.messagingengine.com"
)
PROVIDERS: Mapping[str, MailProvider] = {
    "gmail.com": _GOOGLE,
    "googlemail.com": _GOOGLE,
    "outlook.com": _MICROSOFT,
    "hotmail.com": _MICROSOFT,
    "live.com": _MICROSOFT,
    "icloud.com": _ICLOUD,
    "me.com": _ICLOUD,
    "fastmail.com": _FASTMAIL,
}


class EmailSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Address, servers and credentials of one account.

    ``user`` is the login name if it isn't the address. ``authserv_id`` are the names, separated by commas, under which
    the receiving server reports its checks of the sender (RFC 8601); ``*.`` at the start stands for any host there.
    ``received_above`` is the most ``Received`` lines above that report, for servers that don't remove forged ones.
    ``saves_sent`` means that the server stores sent mail by itself. ``password`` or ``refresh_token`` logs in.
    ``provider`` fills in the servers of a provider for another domain.

    A command takes ``patience`` at most, a mail ``mail_patience``. IDLE is renewed after ``idle``; a server without it
    is asked every ``poll``. Larger mails than ``mail_limit`` bytes are not read; ``file_limit`` is that of our files.
    """

    address: str
    password: str = ""
    refresh_token: str = ""
    client_secret: str = ""
    name: str = "email"
    user: str = ""
    provider: str = ""
    display_name: Annotated[str, Meta(min_length=1)] = "Talaria"
    imap_host: str = ""
    imap_port: Annotated[int, Meta(ge=1, le=65535)] = 993
    imap_security: Security = "tls"
    smtp_host: str = ""
    smtp_port: Annotated[int, Meta(ge=1, le=65535)] = 465
    smtp_security: Security = "tls"
    ca_file: str = ""
    authserv_id: str = ""
    received_above: Annotated[int, Meta(ge=0)] | None = None
    client_id: str = ""
    token_url: str = ""
    inbox: str = "INBOX"
    sent_folder: str = ""
    saves_sent: bool = False
    mail_limit: Annotated[int, Meta(ge=1024)] = 40 * 1024 * 1024
    file_limit: Annotated[int, Meta(ge=0)] = 15 * 1024 * 1024
    patience: timedelta = timedelta(seconds=20)
    mail_patience: timedelta = timedelta(seconds=120)
    idle: timedelta = timedelta(minutes=9)
    poll: timedelta = timedelta(minutes=1)

    @property
    def login(self) -> str:
        """The name that logs in."""
        return self.user or self.address

    @property
    def domain(self) -> str:
        """The domain of the address."""
        return self.address.rpartition("@")[2]

    @property
    def authserv_ids(self) -> tuple[str, ...]:
        """The trusted names, in lower case."""
        return tuple(one.strip().lower() for one in self.authserv_id.split(",") if one.strip())


def read_settings(name: str, options: Mapping[str, str], secret: Callable[[str], str]) -> EmailSettings:
    """Return the settings for these options and secrets; raises `Refused` for invalid or missing ones."""
    address = options.get("address", "").strip().lower()
    if not is_address(address):
        raise Refused(f"Set address in platforms.{name}.options to that of the agent's own mailbox; it is `{address}`.")
    provider = _find_provider(name, options.get("provider", ""), address)
    secrets = {field: secret(variable) for field, variable in SECRETS.items()}
    given: dict[str, object] = {**provider, **options, **secrets, "address": address, "name": name}
    try:
        settings = msgspec.convert(given, EmailSettings, strict=False)
    except msgspec.ValidationError as error:
        raise Refused(f"Invalid option in platforms.{name}: {error}.") from error
    _check(settings)
    return settings


def is_address(text: str) -> bool:
    """Return whether this is the plain form of an address, without a name or comments."""
    return bool(_ADDRESS.fullmatch(text)) and text.isprintable()


def _find_provider(name: str, chosen: str, address: str) -> dict[str, object]:
    domain = chosen or address.rpartition("@")[2]
    found = PROVIDERS.get(domain)
    if chosen and found is None:
        raise Refused(f"The option provider of platforms.{name} must be one of {', '.join(PROVIDERS)}.")
    return msgspec.structs.asdict(found) if found else {}


def _check(settings: EmailSettings) -> None:
    key = f"platforms.{settings.name}"
    if not (settings.imap_host and settings.smtp_host):
        raise Refused(f"The servers of {settings.domain} aren't known: set imap_host and smtp_host in {key}.options.")
    if not settings.authserv_ids:
        raise Refused(
            f"Set authserv_id in {key}.options: the name at the start of the Authentication-Results header that your"
            " server writes into received mail. Without it, senders can't be verified."
        )
    if not (settings.password or settings.refresh_token):
        raise Refused("E-mail needs EMAIL_PASSWORD or EMAIL_REFRESH_TOKEN.")
    if settings.refresh_token and not (settings.client_id and settings.token_url):
        raise Refused(f"A refresh token needs client_id and token_url in {key}.options.")
    for host, security in (
        (settings.imap_host, settings.imap_security),
        (settings.smtp_host, settings.smtp_security),
    ):
        if security == "none" and not _is_loopback(host):
            raise Refused(f"{host} is not on this computer: the password is sent only with `tls` or `starttls`.")
    if not timedelta(0) < settings.idle < timedelta(minutes=29):
        raise Refused(f"The option idle of {key} must be shorter than 29 minutes: servers hang up after 30.")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
