"""`talaria completion`: what makes the Tab key work in bash, zsh and fish."""

import argparse
from collections.abc import Iterator

from talaria.cli.services import Services
from talaria.cli.shells.bash import bash_script
from talaria.cli.shells.fish import fish_script
from talaria.cli.shells.zsh import zsh_script
from talaria.contracts.stores.sessions import SessionFilter
from talaria.core.errors import Refused
from talaria.settings.fields import Model

_SCRIPTS = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}
_MOST_SESSIONS = 100
_WHERE = """\
Write it once to where your shell looks for it, as in
`talaria completion fish > ~/.config/fish/completions/talaria.fish`:
  bash   ~/.local/share/bash-completion/completions/talaria
         (without the package bash-completion, put this into ~/.bashrc:
         source <(talaria completion bash))
  zsh    ~/.zsh/completions/_talaria
         (with fpath+=(~/.zsh/completions) before compinit in ~/.zshrc)
  fish   ~/.config/fish/completions/talaria.fish

Write it anew after an update of Talaria. Profiles, settings and sessions are
looked up whenever Tab is pressed.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take the name of a shell."""
    parser.epilog = _WHERE
    parser.add_argument("shell", nargs="?", choices=tuple(_SCRIPTS), help="the shell to print a script for")
    parser.add_argument("--values", choices=tuple(_LISTS), help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Print the script, or the values that a script asks for."""
    if arguments.values:
        services.terminal.table(("VALUE", "MEANING"), list(_LISTS[arguments.values](services)))
        return 0
    if arguments.shell is None:
        raise Refused("Which shell is it for? `talaria completion bash`, `zsh` or `fish`.")
    services.terminal.document(_SCRIPTS[arguments.shell](services.command_line()))
    return 0


def _profiles(services: Services) -> Iterator[tuple[str, str]]:
    for profile in services.profiles.list():
        yield profile.name, str(profile.folder)


def _settings(_: Services) -> Iterator[tuple[str, str]]:
    for field in Model().fields():
        yield field.key, field.doc


def _sessions(services: Services) -> Iterator[tuple[str, str]]:
    with services.open_database() as database:
        for session in database.read(lambda store: store.sessions.find(SessionFilter(limit=_MOST_SESSIONS))):
            yield session.id, session.title


def _tools(services: Services) -> Iterator[tuple[str, str]]:
    for toolset in services.toolsets():
        yield toolset.name, f"{len(toolset.tools)} in this toolset"
        yield from ((tool.name, tool.does) for tool in toolset.tools if tool.name != toolset.name)


_LISTS = {"profiles": _profiles, "settings": _settings, "sessions": _sessions, "tools": _tools}
