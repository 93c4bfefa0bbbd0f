"""Setup of webhooks: the port to listen on, and the secret that senders sign with."""

from talaria.contracts.setup import NetworkSetup, SetupQuestion

_PORTS = range(1, 65_536)


def _find_port_problem(text: str) -> str:
    return "" if text.isdecimal() and int(text) in _PORTS else "A port is a number from 1 to 65535."


SETUP = NetworkSetup(
    title="Webhooks",
    questions=(
        SetupQuestion(
            name="port",
            prompt="Port",
            hint="Talaria listens on it for requests, on this machine only unless you set the option `host`.",
            default="8645",
            problem=_find_port_problem,
        ),
        SetupQuestion(
            name="WEBHOOK_SECRET",
            hint="Any long random text that both sides know; routes can name other secrets.",
            required=False,
        ),
    ),
    next_step="Describe each sender in a route file. `talaria webhook list` shows the routes and their problems.",
)
