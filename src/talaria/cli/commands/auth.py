"""`talaria auth status`: which subscriptions the owner is signed in with."""

import argparse
from collections.abc import Sequence
from datetime import datetime

from talaria.cli.services import Services
from talaria.contracts.setup import LoginState


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the actions."""
    parser.epilog = "`talaria login NAME` signs in, `talaria logout NAME` signs out."
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions")
    status = actions.add_parser("status", help="show every sign-in, its account and when its token is renewed")
    status.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(action="status")


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Print the sign-ins; the exit code is 1 if one of them needs a new sign-in."""
    states = services.models().logins().status()
    if arguments.json:
        services.terminal.json(states)
    else:
        print_states(states, services)
    return 1 if any(state.problem for state in states) else 0


def print_states(states: Sequence[LoginState], services: Services) -> None:
    """Print a table of sign-ins, then what is wrong with them."""
    rows = [
        (state.name, state.title, state.condition, state.provider, _describe_account(state), _format(state.expires_at))
        for state in states
    ]
    services.terminal.table(("NAME", "SERVICE", "STATE", "PROVIDER", "ACCOUNT", "TOKEN UNTIL"), rows)
    for state in states:
        if state.problem:
            services.terminal.note(state.problem)


def _describe_account(state: LoginState) -> str:
    return f"{state.account} ({state.plan})" if state.plan else state.account


def _format(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment.astimezone():%Y-%m-%d %H:%M}"
