"""`talaria completion`: print completion scripts for bash, zsh and fish."""

import argparse
from collections.abc import Iterator

from talaria.cli.commands.completion.scripts import bash_script, fish_script, zsh_script
from talaria.cli.services import Services
from talaria.contracts.stores.sessions import SessionFilter
from talaria.core.errors import Refused
from talaria.settings.schema import SettingsSchema

_SCRIPTS = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}
_MAX_SESSIONS = 100
_EPILOG = """\
Save the script once where your shell looks for completions, for example
`talaria completion fish > ~/.config/fish/completions/talaria.fish`:
  bash   ~/.local/share/bash-completion/completions/talaria
         (without the package bash-completion, add this to ~/.bashrc:
         source <(talaria completion bash))
  zsh    ~/.zsh/completions/_talaria
         (with fpath+=(~/.zsh/completions) before compinit in ~/.zshrc)
  fish   ~/.config/fish/completions/talaria.fish

Save it again after you update Talaria. Profiles, settings and sessions are
looked up each time you press Tab.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take the name of a shell."""
    parser.epilog = _EPILOG
    parser.add_argument("shell", nargs="?", choices=tuple(_SCRIPTS), help="shell to print a script for")
    parser.add_argument("--values", choices=tuple(_VALUE_SOURCES), help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Print the script, or the values that a script requests."""
    if arguments.values:
        services.terminal.table(("VALUE", "MEANING"), list(_VALUE_SOURCES[arguments.values](services)))
        return 0
    if arguments.shell is None:
        raise Refused("For which shell? Use `talaria completion bash`, `zsh` or `fish`.")
    services.terminal.document(_SCRIPTS[arguments.shell](services.command_line()))
    return 0


def _list_profiles(services: Services) -> Iterator[tuple[str, str]]:
    for profile in services.profiles.list():
        yield profile.name, str(profile.folder)


def _list_settings(_: Services) -> Iterator[tuple[str, str]]:
    for field in SettingsSchema().fields():
        yield field.key, field.doc


def _list_sessions(services: Services) -> Iterator[tuple[str, str]]:
    with services.open_database() as database:
        for session in database.read(lambda store: store.sessions.find(SessionFilter(limit=_MAX_SESSIONS))):
            yield session.id, session.title


def _list_tools(services: Services) -> Iterator[tuple[str, str]]:
    for toolset in services.tools().toolsets():
        yield toolset.name, f"{len(toolset.tools)} in this toolset"
        yield from ((tool.name, tool.does) for tool in toolset.tools if tool.name != toolset.name)


def _list_skills(services: Services) -> Iterator[tuple[str, str]]:
    yield from {one.name: one.about for one in reversed(services.tools().skills().list())}.items()


_VALUE_SOURCES = {
    "profiles": _list_profiles,
    "settings": _list_settings,
    "sessions": _list_sessions,
    "tools": _list_tools,
    "skills": _list_skills,
}
