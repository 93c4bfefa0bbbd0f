"""Setup of IRC: a server, an account and channels."""

from talaria.contracts.setup import NetworkSetup, NetworkTrial, SetupQuestion
from talaria.core.errors import Refused
from talaria.platforms.irc.settings import read_settings

_SERVER, _PASSWORD = "IRC_SERVER", "IRC_PASSWORD"


def _find_problems(trial: NetworkTrial) -> tuple[str, ...]:
    password = trial.secrets.get(_PASSWORD, "")
    try:
        read_settings("irc", trial.options, trial.secrets.get(_SERVER, ""), password=password)
    except Refused as error:
        return (str(error),)
    return ()


def _server_problem(server: str) -> str:
    return next(iter(_find_problems(NetworkTrial({_SERVER: server}))), "")


def _nick_problem(nick: str) -> str:
    return next(iter(_find_problems(NetworkTrial({_SERVER: "localhost"}, {"nick": nick}))), "")


def _channels_problem(channels: str) -> str:
    return next(iter(_find_problems(NetworkTrial({_SERVER: "localhost"}, {"channels": channels}))), "")


SETUP = NetworkSetup(
    title="IRC",
    questions=(
        SetupQuestion(
            name=_SERVER,
            prompt="IRC server",
            hint="A host, or host:port for another port than 6697, for example irc.libera.chat.",
            public=True,
            problem=_server_problem,
        ),
        SetupQuestion(
            name="nick",
            prompt="Nick",
            hint="Name of the bot on the server.",
            default="talaria",
            problem=_nick_problem,
        ),
        SetupQuestion(
            name="channels",
            prompt="Channels",
            hint="Channels to join, separated by commas, for example #garden.",
            required=False,
            problem=_channels_problem,
        ),
        SetupQuestion(name=_PASSWORD, hint="The one you registered with NickServ.", required=False),
        SetupQuestion(name="IRC_SERVER_PASSWORD", hint="For a private server; most need none.", required=False),
    ),
    next_step="Start the gateway, send the bot a private message, and approve the pairing code that it sends you.",
    doctor=_find_problems,
)
