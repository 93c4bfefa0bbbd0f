"""`talaria logout`: revoke and delete the tokens of a sign-in."""

import argparse

from talaria.cli.commands.auth import print_states
from talaria.cli.services import Services


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take the name of a sign-in."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="one of openai, github-copilot and google")
    parser.add_argument("--all", action="store_true", help="sign out everywhere")


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Sign out and return the exit code."""
    logins = services.models().logins()
    states = logins.status()
    if not arguments.name and not arguments.all:
        print_states(states, services)
        services.terminal.note("`talaria logout NAME` signs out, --all signs out everywhere.")
        return 0
    names = [state.name for state in states if state.condition != "signed out"] if arguments.all else [arguments.name]
    for name in names:
        was_signed_in = logins.sign_out(name)
        services.terminal.line(
            f"Signed out of {name}; its tokens are deleted." if was_signed_in else f"You weren't signed in to {name}."
        )
    if not names:
        services.terminal.line("You weren't signed in anywhere.")
    return 0
