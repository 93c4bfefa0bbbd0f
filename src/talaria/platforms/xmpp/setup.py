"""Setup of XMPP: an account, and rooms."""

from datetime import timedelta

import msgspec

from talaria.contracts.setup import NetworkSetup, NetworkTrial, ProbeResult, SetupQuestion
from talaria.core.errors import BadCredentials, Refused, Rejected, SlowDown, Unreachable
from talaria.platforms.setup_checks import CHECK_SECONDS
from talaria.platforms.xmpp.session import XmppSession
from talaria.platforms.xmpp.settings import read_settings

_JID, _PASSWORD = "XMPP_JID", "XMPP_PASSWORD"
_ANY_JID = "talaria@example.org"


def _find_problems(trial: NetworkTrial) -> tuple[str, ...]:
    try:
        read_settings(trial.account or "xmpp", trial.options, trial.secrets.get(_JID, _ANY_JID), "")
    except Refused as error:
        return (str(error),)
    return ()


def _find_jid_problem(jid: str) -> str:
    return next(iter(_find_problems(NetworkTrial({_JID: jid}))), "")


def _find_server_problem(server: str) -> str:
    return next(iter(_find_problems(NetworkTrial({}, {"server": server}))), "")


def _find_rooms_problem(rooms: str) -> str:
    return next(iter(_find_problems(NetworkTrial({}, {"rooms": rooms}))), "")


async def _check_login(trial: NetworkTrial) -> ProbeResult:
    """Log in with the answers so far, look for the archive, and disconnect."""
    try:
        settings = read_settings(
            trial.account or "xmpp", trial.options, trial.secrets.get(_JID, ""), trial.secrets.get(_PASSWORD, "")
        )
    except Refused as error:
        return ProbeResult("refused", str(error))
    session = XmppSession(msgspec.structs.replace(settings, patience=timedelta(seconds=CHECK_SECONDS)))
    try:
        await session.open()
    except BadCredentials as error:
        return ProbeResult("refused", f"Can't log in to XMPP: {error}.")
    except (Unreachable, SlowDown) as error:
        return ProbeResult("unreachable", f"Can't connect to XMPP: {error}.")
    except Rejected as error:
        return ProbeResult("odd", f"This XMPP server can't be used: {error}.")
    finally:
        await session.close()
    return ProbeResult("right", f"The XMPP server accepted {settings.jid}, and it has an archive.")


SETUP = NetworkSetup(
    title="XMPP",
    questions=(
        SetupQuestion(
            name=_JID,
            prompt="Address of the bot",
            hint="An account of its own, for example talaria@example.org.",
            public=True,
            problem=_find_jid_problem,
        ),
        SetupQuestion(
            name="server",
            prompt="Server",
            hint="host or host:port, if DNS doesn't name it.",
            required=False,
            problem=_find_server_problem,
        ),
        SetupQuestion(name=_PASSWORD, hint="The password of that account.", check=_check_login),
        SetupQuestion(
            name="rooms",
            prompt="Rooms",
            hint="Rooms to join, separated by commas, for example garden@rooms.example.org.",
            required=False,
            problem=_find_rooms_problem,
        ),
    ),
    next_step="Start the gateway, send the bot a message, and approve the pairing code that it sends you.",
    doctor=_find_problems,
)
