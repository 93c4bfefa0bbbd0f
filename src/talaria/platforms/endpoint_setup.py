"""Setup of networks that call us: questions about public address and port, and a check of the options."""

from collections.abc import Callable

from talaria.contracts.setup import NetworkTrial, SetupQuestion
from talaria.core.errors import Refused
from talaria.platforms.token_check import web_address_problem

PLACEHOLDER = {"public_url": "https://localhost"}  # for checks before the question about it

FindProblems = Callable[[NetworkTrial], tuple[str, ...]]


def refusals_of(read: Callable[[NetworkTrial], object]) -> FindProblems:
    """Return a check that reads the settings and returns the sentence of their refusal."""

    def find_problems(trial: NetworkTrial) -> tuple[str, ...]:
        try:
            read(trial)
        except Refused as error:
            return (str(error),)
        return ()

    return find_problems


def endpoint_questions(title: str, path: str, port: int, find_problems: FindProblems) -> tuple[SetupQuestion, ...]:
    """Return the questions about the public address and the port."""

    def find_problem(**options: str) -> str:
        return next(iter(find_problems(NetworkTrial({}, {**PLACEHOLDER, **options}))), "")

    return (
        SetupQuestion(
            name="public_url",
            prompt="Public address",
            hint=f"Address under which {title} reaches this machine, for example https://bot.example.org/{path}.",
            problem=lambda url: web_address_problem(url) or find_problem(public_url=url),
        ),
        SetupQuestion(
            name="port",
            prompt="Port",
            hint="Port on this machine to which your proxy or tunnel forwards the public address.",
            default=str(port),
            distinct=True,
            problem=lambda given: find_problem(port=given),
        ),
    )
