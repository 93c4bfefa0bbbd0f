"""Setup of Signal: the daemon of signal-cli, and the bot's number."""

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from talaria.contracts.setup import NetworkSetup, NetworkTrial, ProbeResult, SetupQuestion
from talaria.core.errors import PlatformError, Refused, Rejected
from talaria.platforms.setup_checks import CHECK_SECONDS
from talaria.platforms.signal.connection import SignalConnection
from talaria.platforms.signal.settings import SignalSettings, read_settings
from talaria.platforms.signal.wire import Envelope

_DAEMON, _ACCOUNT = "SIGNAL_DAEMON", "SIGNAL_ACCOUNT"
_ANY_NUMBER, _ANY_DAEMON = "+15550100", "localhost:7583"


def _read(trial: NetworkTrial) -> SignalSettings:
    settings = read_settings(
        trial.account or "signal",
        trial.options,
        trial.secrets.get(_DAEMON, _ANY_DAEMON),
        trial.secrets.get(_ACCOUNT, _ANY_NUMBER),
    )
    return msgspec.structs.replace(settings, patience=timedelta(seconds=CHECK_SECONDS))


def _find_problems(trial: NetworkTrial) -> tuple[str, ...]:
    try:
        _read(trial)
    except Refused as error:
        return (str(error),)
    return ()


def _find_daemon_problem(daemon: str) -> str:
    return next(iter(_find_problems(NetworkTrial({_DAEMON: daemon}))), "")


def _find_account_problem(account: str) -> str:
    return next(iter(_find_problems(NetworkTrial({_ACCOUNT: account}))), "")


async def _check_account(trial: NetworkTrial) -> ProbeResult:
    """Ask the daemon for its numbers; one for a single number doesn't say which, but answers with its version."""
    try:
        settings = _read(trial)
    except Refused as error:
        return ProbeResult("refused", str(error))
    connection = SignalConnection(settings, _ignore)
    try:
        await connection.open()
        version = await connection.call("version", {}, account=False)
        try:
            accounts = await connection.call("listAccounts", {}, account=False)
        except Rejected:
            accounts = [{"number": settings.account}]
    except PlatformError as error:
        return ProbeResult("unreachable", f"Can't talk to signal-cli: {error}. Is the daemon running?")
    finally:
        await connection.close()
    if not any(one.get("number") == settings.account for one in accounts):
        return ProbeResult("refused", "signal-cli has no such number. Register or link it first.")
    return ProbeResult("right", f"signal-cli {version.get('version', '')} has the number.")


async def _ignore(received: Sequence[Envelope]) -> None:
    """Ignore messages."""


SETUP = NetworkSetup(
    title="Signal",
    questions=(
        SetupQuestion(
            name=_DAEMON,
            prompt="Daemon of signal-cli",
            hint="host:port, or unix: and the path of its socket.",
            public=True,
            default=_ANY_DAEMON,
            problem=_find_daemon_problem,
        ),
        SetupQuestion(
            name=_ACCOUNT,
            prompt="Number of the bot",
            hint="With its country code, for example +4915112345678.",
            public=True,
            problem=_find_account_problem,
            check=_check_account,
        ),
    ),
    next_step="Start the gateway, send the number a message, and approve the pairing code that it sends you.",
    doctor=_find_problems,
)
