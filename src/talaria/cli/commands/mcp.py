"""`talaria mcp`: add, test, sign in to and remove MCP servers, and serve this agent to other agents."""

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

from talaria.cli.commands.login import INTERRUPTED, TerminalSignIn
from talaria.cli.services import Services, note_gateway_reload
from talaria.contracts.mcp import ServerEntry, ServerState
from talaria.contracts.setup import SignInWay
from talaria.core.errors import NotFound, Refused
from talaria.settings.errors import build_unknown_fault
from talaria.settings.schema import format_key

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
_REFERENCE = re.compile(r"\$\{(\w+)\}")
_ADDRESS = ("http://", "https://")
_DESCRIPTION_LENGTH = 100
_EPILOG = """\
An MCP server gives the agent more tools. It is a program on this computer, or
a service with an address:

  talaria mcp add time -- uvx mcp-server-time
  talaria mcp add linear https://mcp.linear.app/mcp
  talaria mcp login linear

Tokens and passwords don't belong in the settings: store each as a secret, and
write ${NAME} where it is needed:

  talaria config set GITHUB_TOKEN -
  talaria mcp add github https://api.githubcopilot.com/mcp/ \\
    --header 'Authorization=Bearer ${GITHUB_TOKEN}'

`serve` is for the settings of another agent, which starts it: it offers your
conversations, search, messages, handoff and approvals there. Over HTTP,
`talaria serve` offers the same at /mcp, within the scopes of each API key.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the actions."""
    parser.epilog = _EPILOG
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    parser.set_defaults(action="list", json=False)
    _add_add_arguments(actions.add_parser("add", help="add a server, connect to it and show its tools"))
    listing = actions.add_parser("list", help="list the servers in the settings")
    test = actions.add_parser("test", help="connect to servers and list what they offer")
    test.add_argument("names", nargs="*", metavar="NAME", help="name of a server; without one, all that are on")
    _add_login_arguments(actions.add_parser("login", help="sign in to a server with a browser"))
    logout = actions.add_parser("logout", help="sign out of a server and delete the stored tokens")
    remove = actions.add_parser("remove", help="remove a server from the settings, and sign out of it")
    for action in (logout, remove):
        action.add_argument("name", metavar="NAME", help="name of the server")
    actions.add_parser("serve", help="serve this agent to another agent over standard input and output")
    for action in (listing, test):
        action.add_argument("--json", action="store_true", help="print JSON")


def _add_add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="a name of your choice; it becomes part of the tools' names")
    parser.add_argument(
        "target", nargs="+", metavar="TARGET", help="address of the server, or after -- a program and its arguments"
    )
    for flag, what in (("--env", "environment variable of the program"), ("--header", "header of each request")):
        parser.add_argument(
            flag, metavar="NAME=VALUE", action="append", default=[], help=f"{what}; ${{SECRET}} works; repeatable"
        )
    parser.add_argument("--include", metavar="TOOL", action="append", help="use only this tool; repeatable")
    parser.add_argument("--exclude", metavar="TOOL", action="append", help="leave out this tool; repeatable")
    parser.add_argument("--replace", action="store_true", help="replace a server of the same name")
    parser.add_argument("--no-test", action="store_true", help="don't connect to it now")


def _add_login_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of the server")
    parser.add_argument("--paste", action="store_true", help="show an address, and ask for the one you end up at")
    parser.add_argument(
        "--wait", metavar="SECONDS", type=float, default=300.0, help="how long to wait for the browser (300)"
    )


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Do what was asked and return the exit code."""
    return _ACTIONS[arguments.action](arguments, services)


def _add(arguments: argparse.Namespace, services: Services) -> int:
    name = arguments.name
    if not _NAME.fullmatch(name):
        raise Refused(f"`{name}` can't be the name of a server: use up to 32 letters, digits, `-` and `_`.")
    if name in services.settings().mcp and not arguments.replace:
        raise Refused(f"There is already an MCP server `{name}`. Add --replace to replace it.")
    values = _read_server(arguments)
    services.tools().mcp().save(name, values)
    services.terminal.line(f"Added the MCP server {name}.")
    _note_missing_secrets(values, services)
    _note_reload(services)
    return 0 if arguments.no_test else _show_tests([services.tools().mcp().test(name)], services)


def _read_server(arguments: argparse.Namespace) -> Mapping[str, object]:
    """Return the settings of a new server."""
    first, *rest = arguments.target
    is_address = first.startswith(_ADDRESS)
    if is_address and rest:
        raise Refused(f"`{rest[0]}` is too much: a server with an address takes no arguments.")
    if is_address and arguments.env:
        raise Refused("--env is for a program. A server with an address takes --header.")
    if not is_address and arguments.header:
        raise Refused("--header is for a server with an address. A program takes --env.")
    target: Mapping[str, object] = {"url": first} if is_address else {"command": first, "args": rest}
    return {
        **target,
        "env": _read_pairs(arguments.env),
        "headers": _read_pairs(arguments.header),
        "include": arguments.include or [],
        "exclude": arguments.exclude or [],
    }


def _read_pairs(given: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals or not name.strip():
            raise Refused(f"`{name}` has no value. Write it as NAME=VALUE.")
        pairs[name.strip()] = value
    return pairs


def _note_missing_secrets(values: Mapping[str, object], services: Services) -> None:
    from talaria.settings.secrets import read_secrets  # noqa: PLC0415 (loaded when a server is added)

    secrets = read_secrets(services.profile, services.environment)
    for name in dict.fromkeys(_REFERENCE.findall(f"{values['env']} {values['headers']}")):
        if secrets.get(name) is None:
            services.terminal.note(f"The secret {name} isn't set. Store it with `talaria config set {name} -`.")


def _list(arguments: argparse.Namespace, services: Services) -> int:
    entries = services.tools().mcp().list()
    if arguments.json:
        services.terminal.json(entries)
    elif entries:
        rows = [(one.name, "on" if one.enabled else "off", one.target, _describe_login(one)) for one in entries]
        services.terminal.table(("NAME", "STATE", "TARGET", "SIGN-IN"), rows)
    else:
        services.terminal.note("There are no MCP servers. `talaria mcp add NAME TARGET` adds one.")
    return 0


def _describe_login(entry: ServerEntry) -> str:
    if entry.problem:
        return "expired"
    return (entry.account or "signed in") if entry.signed_in else ""


def _test(arguments: argparse.Namespace, services: Services) -> int:
    known = services.settings().mcp
    for name in arguments.names:
        _require_server(name, services)
    names = arguments.names or [name for name, server in known.items() if server.enabled]
    states = [services.tools().mcp().test(name) for name in dict.fromkeys(names)]
    if arguments.json:
        services.terminal.json(states)
        return 0 if all(one.condition == "connected" for one in states) else 1
    if not states:
        services.terminal.note("There are no MCP servers to test.")
    return _show_tests(states, services)


def _show_tests(states: Sequence[ServerState], services: Services) -> int:
    """Print what servers offer; return 1 if one of them isn't connected."""
    for state in states:
        if state.condition != "connected":
            services.terminal.note(f"{state.name} can't be used: {state.problem.rstrip('.')}.")
            continue
        rows = [(tool.name, _shorten(tool.description)) for tool in state.tools]
        services.terminal.table(("TOOL", "DESCRIPTION"), rows)
        tools, resources, prompts = (
            f"{count} {noun}{'' if count == 1 else 's'}"
            for count, noun in (
                (len(state.tools), "tool"),
                (state.resources, "resource"),
                (len(state.prompts), "prompt"),
            )
        )
        services.terminal.note(f"{state.name} is connected and offers {tools}, {resources} and {prompts}.")
    return 0 if all(one.condition == "connected" for one in states) else 1


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _DESCRIPTION_LENGTH else f"{line[: _DESCRIPTION_LENGTH - 1]}…"


def _login(arguments: argparse.Namespace, services: Services) -> int:
    _require_server(arguments.name, services)
    way: SignInWay = "paste" if arguments.paste else "auto"
    wait = timedelta(seconds=arguments.wait)
    try:
        account = services.tools().mcp().sign_in(arguments.name, TerminalSignIn(services), way=way, wait=wait)
    except KeyboardInterrupt:
        services.terminal.note("\nStopped. Nothing has changed.")
        return INTERRUPTED
    services.terminal.line(f"Signed in to {arguments.name}{f' as {account}' if account else ''}.")
    return _show_tests([services.tools().mcp().test(arguments.name)], services)


def _logout(arguments: argparse.Namespace, services: Services) -> int:
    if services.tools().mcp().sign_out(arguments.name):
        services.terminal.line(f"Signed out of {arguments.name}.")
        return 0
    _require_server(arguments.name, services)
    services.terminal.note(f"You aren't signed in to {arguments.name}.")
    return 0


def _remove(arguments: argparse.Namespace, services: Services) -> int:
    _require_server(arguments.name, services)
    services.tools().mcp().sign_out(arguments.name)
    services.tools().mcp().remove(arguments.name)
    services.terminal.line(f"Removed the MCP server {arguments.name}.")
    _note_reload(services)
    return 0


def _note_reload(services: Services) -> None:
    note_gateway_reload(services, live=True)
    services.terminal.note("In an open terminal, `/mcp reload` applies this.")


def _serve(arguments: argparse.Namespace, services: Services) -> int:
    try:
        services.tools().mcp().serve()
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _require_server(name: str, services: Services) -> None:
    known = services.settings().mcp
    if name not in known:
        fault = build_unknown_fault("MCP server", name, [format_key([one]) for one in known])
        raise NotFound(f"{fault.problem} `talaria mcp list` lists them.")


_ACTIONS: Mapping[str, Callable[[argparse.Namespace, Services], int]] = {
    "add": _add,
    "list": _list,
    "test": _test,
    "login": _login,
    "logout": _logout,
    "remove": _remove,
    "serve": _serve,
}
