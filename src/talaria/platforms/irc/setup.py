"""Setup of IRC: a server, an account and channels."""

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from talaria.contracts.setup import NetworkSetup, NetworkTrial, ProbeResult, SetupQuestion
from talaria.core.errors import BadCredentials, PlatformError, Refused
from talaria.platforms.irc.connection import IrcConnection
from talaria.platforms.irc.settings import read_settings
from talaria.platforms.irc.wire import ReceivedLine
from talaria.platforms.setup_checks import CHECK_SECONDS

_SERVER, _PASSWORD = "IRC_SERVER", "IRC_PASSWORD"


def _find_problems(trial: NetworkTrial) -> tuple[str, ...]:
    password = trial.secrets.get(_PASSWORD, "")
    try:
        read_settings(trial.account or "irc", trial.options, trial.secrets.get(_SERVER, ""), password=password)
    except Refused as error:
        return (str(error),)
    return ()


def _find_server_problem(server: str) -> str:
    return next(iter(_find_problems(NetworkTrial({_SERVER: server}))), "")


def _find_nick_problem(nick: str) -> str:
    return next(iter(_find_problems(NetworkTrial({_SERVER: "localhost"}, {"nick": nick}))), "")


def _find_channels_problem(channels: str) -> str:
    return next(iter(_find_problems(NetworkTrial({_SERVER: "localhost"}, {"channels": channels}))), "")


async def _check_login(trial: NetworkTrial) -> ProbeResult:
    """Connect with the answers so far, and disconnect."""
    password, server_password = trial.secrets.get(_PASSWORD, ""), trial.secrets.get("IRC_SERVER_PASSWORD", "")
    server = trial.secrets.get(_SERVER, "")
    try:
        settings = read_settings(
            trial.account or "irc", trial.options, server, password=password, server_password=server_password
        )
    except Refused as error:
        return ProbeResult("refused", str(error))
    patient = msgspec.structs.replace(settings, patience=timedelta(seconds=CHECK_SECONDS))
    connection = IrcConnection(patient, _ignore)
    try:
        await connection.open()
    except BadCredentials as error:
        return ProbeResult("refused", f"Can't log in to IRC: {error}.")
    except PlatformError as error:
        return ProbeResult("unreachable", f"Can't connect to IRC: {error}.")
    finally:
        await connection.close()
    login = f"the account {settings.account}" if settings.mechanism else f"the nick {connection.nick}"
    return ProbeResult("right", f"The IRC server accepted {login}.")


async def _ignore(lines: Sequence[ReceivedLine]) -> None:
    """Ignore what people write during the check."""


SETUP = NetworkSetup(
    title="IRC",
    questions=(
        SetupQuestion(
            name=_SERVER,
            prompt="IRC server",
            hint="A host, or host:port for another port than 6697, for example irc.libera.chat.",
            public=True,
            problem=_find_server_problem,
        ),
        SetupQuestion(
            name="nick",
            prompt="Nick",
            hint="Name of the bot on the server.",
            default="talaria",
            problem=_find_nick_problem,
            check=_check_login,
        ),
        SetupQuestion(
            name="channels",
            prompt="Channels",
            hint="Channels to join, separated by commas, for example #garden.",
            required=False,
            problem=_find_channels_problem,
        ),
        SetupQuestion(name=_PASSWORD, hint="The one you registered with NickServ.", required=False, check=_check_login),
        SetupQuestion(name="IRC_SERVER_PASSWORD", hint="For a private server; most need none.", required=False),
    ),
    next_step="Start the gateway, send the bot a private message, and approve the pairing code that it sends you.",
    doctor=_find_problems,
)
