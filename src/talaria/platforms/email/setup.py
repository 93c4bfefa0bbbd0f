"""Setup of e-mail: the agent's mailbox, its servers, and a password or an OAuth sign-in."""

from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from talaria.contracts.setup import NetworkSetup, NetworkTrial, ProbeResult, SetupQuestion
from talaria.core.errors import BadCredentials, PlatformError, Refused
from talaria.platforms.email.sender_check import is_trusted
from talaria.platforms.email.settings import EmailSettings, is_address, read_settings

_PATIENCE = timedelta(seconds=15)
_KNOWN = "Not needed for Gmail, Outlook, iCloud and Fastmail."


async def _check_login(trial: NetworkTrial) -> ProbeResult:
    """Log in to both servers, and compare what the newest mail in the inbox says with the answers."""
    try:
        from talaria.platforms.email.adapter import check_account  # noqa: PLC0415 (its libraries are an extra)
    except ModuleNotFoundError:
        from talaria.core.installation import install_command  # noqa: PLC0415 (loaded when a library is missing)

        return ProbeResult(
            "odd", f"E-mail needs a library that isn't installed. Install it: {install_command('email')}"
        )
    try:
        settings = _read(trial)
        with TemporaryDirectory() as folder:
            server = await check_account(msgspec.structs.replace(settings, patience=_PATIENCE), Path(folder))
    except Refused as error:
        return ProbeResult("odd", str(error))
    except BadCredentials as error:
        return ProbeResult("refused", f"The login was refused: {error}. Some providers want an app password.")
    except PlatformError as error:
        return ProbeResult("unreachable", f"The servers couldn't be tested: {error}.")
    return ProbeResult("right", f"Logged in to both servers as {settings.login}.{_describe_reports(server, settings)}")


def _describe_reports(server: str, settings: EmailSettings) -> str:
    """Return a warning if the server of the mailbox reports its checks of senders under another name."""
    if not server or is_trusted(server, settings.authserv_ids):
        return ""
    return f" But the newest mail was checked by `{server}`, and authserv_id is `{settings.authserv_id}`."


def _read(trial: NetworkTrial) -> EmailSettings:
    return read_settings(trial.account or "email", trial.options, lambda name: trial.secrets.get(name, ""))


def _find_problems(trial: NetworkTrial) -> tuple[str, ...]:
    try:
        _read(trial)
    except Refused as error:
        return (str(error),)
    return ()


def _find_address_problem(address: str) -> str:
    return "" if is_address(address.strip()) else f"`{address}` is no e-mail address."


SETUP = NetworkSetup(
    title="E-mail",
    questions=(
        SetupQuestion(
            name="address",
            prompt="Address",
            hint="Address of the agent's own mailbox, not of yours.",
            problem=_find_address_problem,
        ),
        SetupQuestion(
            name="provider",
            prompt="Provider",
            hint="For your own domain at a known provider: gmail.com, outlook.com, icloud.com or fastmail.com.",
            required=False,
        ),
        SetupQuestion(name="imap_host", prompt="IMAP server", hint=f"Port 993 with TLS. {_KNOWN}", required=False),
        SetupQuestion(name="smtp_host", prompt="SMTP server", hint=f"Port 465 with TLS. {_KNOWN}", required=False),
        SetupQuestion(
            name="authserv_id",
            prompt="Name in Authentication-Results",
            hint=f"How this header starts in received mail; it proves who sent a mail. {_KNOWN}",
            required=False,
        ),
        SetupQuestion(
            name="EMAIL_PASSWORD",
            hint="An app password where the provider has them; empty to sign in with OAuth.",
            required=False,
            check=_check_login,
        ),
        SetupQuestion(name="client_id", prompt="OAuth client", hint="Only to sign in with OAuth.", required=False),
        SetupQuestion(name="EMAIL_CLIENT_SECRET", hint="Of the OAuth client; Google only.", required=False),
        SetupQuestion(
            name="EMAIL_REFRESH_TOKEN",
            hint="Only to sign in with OAuth; docs/how-to/use-email.md says how to get one.",
            required=False,
            check=_check_login,
        ),
    ),
    next_step="Start the gateway, write a mail to the agent, and approve the pairing code that it sends you.",
    doctor=_find_problems,
)
