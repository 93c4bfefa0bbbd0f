"""`talaria login`, `logout` and `auth`: sign in with a subscription, sign out, and show the sign-ins."""

import argparse
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

from talaria.cli.parser import add_completion
from talaria.cli.services import Services, note_gateway_reload
from talaria.contracts.setup import LoginState, SignInWay
from talaria.core.errors import TalariaError

INTERRUPTED = 130
_EPILOG = """\
Without a name, it lists what you can sign in to. The tokens are stored in the
profile's folder, readable only by you, and renewed when needed.

  talaria login openai              ChatGPT Plus, Pro, Business or Enterprise
  talaria login openai --device     with a code, for example over ssh
  talaria login github-copilot
  talaria login google --client client_secret.json
"""
_NO_BROWSER_HERE = ("SSH_CONNECTION", "SSH_TTY")
_DISPLAYS = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME")


class LoginCommand:
    """`talaria login`: sign in with a subscription, with a browser or a code."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Take the name of a sign-in and how to do it."""
        parser.epilog = _EPILOG
        parser.add_argument("name", nargs="?", metavar="NAME", help="one of openai, github-copilot and google")
        ways = parser.add_mutually_exclusive_group()
        ways.add_argument("--device", action="store_true", help="show a code to enter on any device")
        ways.add_argument("--paste", action="store_true", help="show an address, and ask for the one you end up at")
        client = parser.add_argument(
            "--client", metavar="FILE", type=Path, help="JSON file of your OAuth client, for google"
        )
        add_completion(client, "files")
        parser.add_argument(
            "--wait", metavar="SECONDS", type=float, default=300.0, help="how long to wait for the browser (300)"
        )

    @staticmethod
    def run(arguments: argparse.Namespace, services: Services) -> int:
        """Sign in, report the account, and return the exit code."""
        logins = services.models().logins()
        if not arguments.name:
            print_states(logins.status(), services)
            services.terminal.note("`talaria login NAME` signs in.")
            return 0
        way: SignInWay = "device" if arguments.device else "paste" if arguments.paste else "auto"
        surface = TerminalSignIn(services)
        try:
            state = logins.sign_in(
                arguments.name, surface, way=way, client_file=arguments.client, wait=timedelta(seconds=arguments.wait)
            )
        except KeyboardInterrupt:
            services.terminal.note("\nStopped. Nothing has changed.")
            return INTERRUPTED
        _report_sign_in(state, services)
        return 0


class LogoutCommand:
    """`talaria logout`: revoke and delete the tokens of a sign-in."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Take the name of a sign-in."""
        parser.add_argument("name", nargs="?", metavar="NAME", help="one of openai, github-copilot and google")
        parser.add_argument("--all", action="store_true", help="sign out everywhere")

    @staticmethod
    def run(arguments: argparse.Namespace, services: Services) -> int:
        """Sign out and return the exit code."""
        logins = services.models().logins()
        states = logins.status()
        if not arguments.name and not arguments.all:
            print_states(states, services)
            services.terminal.note("`talaria logout NAME` signs out, --all signs out everywhere.")
            return 0
        names = (
            [state.name for state in states if state.condition != "signed out"] if arguments.all else [arguments.name]
        )
        for name in names:
            was_signed_in = logins.sign_out(name)
            services.terminal.line(
                f"Signed out of {name}; its tokens are deleted."
                if was_signed_in
                else f"You weren't signed in to {name}."
            )
        if not names:
            services.terminal.line("You weren't signed in anywhere.")
        return 0


class AuthCommand:
    """`talaria auth status`: which subscriptions the owner is signed in with."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Describe the actions."""
        parser.epilog = "`talaria login NAME` signs in, `talaria logout NAME` signs out."
        actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions")
        status = actions.add_parser("status", help="show every sign-in, its account and when its token is renewed")
        status.add_argument("--json", action="store_true", help="print JSON")
        parser.set_defaults(action="status")

    @staticmethod
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
        (
            state.name,
            state.title,
            state.condition,
            state.provider,
            _describe_account(state),
            _format_expiry(state.expires_at),
        )
        for state in states
    ]
    services.terminal.table(("NAME", "SERVICE", "STATE", "PROVIDER", "ACCOUNT", "TOKEN UNTIL"), rows)
    for state in states:
        if state.problem:
            services.terminal.note(state.problem)


class TerminalSignIn:
    """The terminal and the browser of the person who signs in."""

    def __init__(self, services: Services) -> None:
        self._services = services

    @property
    def has_browser(self) -> bool:
        """Return whether a browser can be opened on this computer; not over ssh."""
        environment = self._services.environment
        if any(environment.get(name) for name in _NO_BROWSER_HERE):
            return False
        return sys.platform == "darwin" or any(environment.get(name) for name in _DISPLAYS)

    def show(self, text: str) -> None:
        """Print a line at once."""
        self._services.terminal.note(text)

    def open_browser(self, url: str) -> bool:
        """Open an address in a browser, and return whether there is one; never waits for it."""
        import threading  # noqa: PLC0415 (loaded for a sign-in)
        import webbrowser  # noqa: PLC0415 (loaded for a sign-in)

        try:
            browser = webbrowser.get()
        except webbrowser.Error:
            return False
        threading.Thread(target=browser.open, args=(url,), daemon=True).start()
        return True

    def ask(self, prompt: str) -> str:
        """Return a line that the person types."""
        self._services.terminal.prompt(prompt)
        return sys.stdin.readline()


def _describe_account(state: LoginState) -> str:
    return f"{state.account} ({state.plan})" if state.plan else state.account


def _format_expiry(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment.astimezone():%Y-%m-%d %H:%M}"


def _report_sign_in(state: LoginState, services: Services) -> None:
    who = f" as {state.account}" if state.account else ""
    plan = f" ({state.plan})" if state.plan else ""
    services.terminal.line(f"Signed in to {state.title}{who}{plan}.")
    try:
        chosen = services.models().resolve_default_model()
    except TalariaError as error:
        services.terminal.note(error.for_owner)
        return
    if chosen.provider == state.provider:
        services.terminal.line(f"Talaria uses {chosen.provider}:{chosen.model}. Run `talaria` to chat.")
    else:
        services.terminal.line(
            f"Talaria still uses {chosen.provider}:{chosen.model}. `talaria model {state.provider}` changes that."
        )
    note_gateway_reload(services, live=True)
