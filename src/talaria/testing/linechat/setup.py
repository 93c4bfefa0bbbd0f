"""Setup of the chat: its server, and a token that the server knows."""

from msgspec import ValidationError, convert

from talaria.contracts.setup import NetworkSetup, NetworkTrial, ProbeResult, SetupQuestion
from talaria.core.errors import BadCredentials, PlatformError
from talaria.testing.linechat.adapter import LineChat, LineChatSettings


def _port_problem(port: str) -> str:
    return "" if port.isdecimal() and 0 < int(port) < 65_536 else "A port is a number from 1 to 65535."


async def _log_in(trial: NetworkTrial) -> ProbeResult:
    """Log in with the answers, and out again."""
    given = {"host": "127.0.0.1", "port": "7000", **trial.options, "token": trial.secrets["LINECHAT_TOKEN"]}
    try:
        async with LineChat(convert(given, LineChatSettings, strict=False)).connect():
            return ProbeResult("right", "linechat accepted the token.")
    except BadCredentials:
        return ProbeResult("refused", "linechat rejected this token. Ask the operator of the server for another one.")
    except PlatformError as error:
        return ProbeResult("unreachable", f"Can't reach linechat: {error}. Check the server's name and port.")
    except ValidationError as error:
        return ProbeResult("odd", f"An option is wrong: {error}.")


SETUP = NetworkSetup(
    title="linechat",
    questions=(
        SetupQuestion(name="host", prompt="Server", hint="Name or address of the server.", default="127.0.0.1"),
        SetupQuestion(name="port", prompt="Port", hint="Its port.", default="7000", problem=_port_problem),
        SetupQuestion(name="LINECHAT_TOKEN", hint="The operator of the server gives it to you.", check=_log_in),
    ),
    next_step="Start the gateway and write to the bot.",
)
