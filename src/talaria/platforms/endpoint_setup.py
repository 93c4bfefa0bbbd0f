"""Setup of networks that call us: questions about public address and port, and a check of the options."""

from collections.abc import Callable

from talaria.contracts.setup import NetworkTrial, SetupQuestion
from talaria.core.errors import Refused
from talaria.platforms.token_check import web_address_problem

PLACEHOLDER = {"public_url": "https://localhost"}  # for checks before the question about it


def refusals_of(read: Callable[[NetworkTrial], object]) -> Callable[[NetworkTrial], tuple[str, ...]]:
    """Return a check that reads the settings and returns the sentence of their refusal."""

    def find_problems(trial: NetworkTrial) -> tuple[str, ...]:
        try:
            read(trial)
        except Refused as error:
            return (str(error),)
        return ()

    return find_problems


def endpoint_questions(title: str, path: str, port: int, *, needs_tls: bool = True) -> tuple[SetupQuestion, ...]:
    """Return the questions about the public address and the port."""

    def find_problem(url: str) -> str:
        if needs_tls and not url.startswith("https://"):
            return f"The address must start with https://: {title} calls nothing else."
        return web_address_problem(url)

    return (
        SetupQuestion(
            name="public_url",
            prompt="Public address",
            hint=f"Address under which {title} reaches this machine, for example https://bot.example.org/{path}.",
            problem=find_problem,
        ),
        SetupQuestion(
            name="port",
            prompt="Port",
            hint="Port on this machine to which your proxy or tunnel forwards the public address.",
            default=str(port),
            distinct=True,
            problem=_port_problem,
        ),
    )


def _port_problem(text: str) -> str:
    is_port = text.isascii() and text.isdigit() and len(text) <= 5 and 1 <= int(text) <= 65_535
    return "" if is_port else "A port is a number from 1 to 65535."
