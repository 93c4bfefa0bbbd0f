"""`talaria routes` and `talaria channels`: the known chats, and which persona answers where."""

import argparse

from msgspec import structs

from talaria.access.policy import People
from talaria.access.routes import RoutedMessage, Routes
from talaria.cli.services import Services
from talaria.contracts.clock import SystemClock
from talaria.contracts.store import Transaction
from talaria.core.addresses import Address, ChatType
from talaria.core.errors import NotFound, Refused
from talaria.core.formatting import format_age
from talaria.sessions.chat_directory import KnownChannel, list_channels, read_home
from talaria.settings.config_file import read_source
from talaria.settings.model import Settings
from talaria.settings.schema import format_key
from talaria.settings.sections.chats import BUILT_IN_PLATFORMS, ChatNetworkSettings, RouteSettings, find_room

_EPILOG = """\
A route binds a person, chat, thread, server or network to a persona of the
settings (`personas.NAME`). The most specific route counts: thread, chat,
person, server, network, in this order.

What a server is depends on the network, and some have none:

{servers}

Several accounts of one network are sections of their own, for example
`platforms.work` with `network = "telegram"` and the secret
WORK_TELEGRAM_BOT_TOKEN. Routes call such an account by its name.
"""
_PLACES = (
    ("network", "a network or account, for example telegram"),
    ("server", "the id of a server, workspace or team; see below"),
    ("chat", "the id of a chat or channel"),
    ("thread", "the id of a thread or topic"),
    ("person", "a person as PLATFORM:ID or by name"),
)


class RoutesCommand:
    """`talaria routes`: list, add and test the routes that say which persona answers where."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Describe the actions."""
        servers = [f"  {name:<12}{one.server}" for name, one in BUILT_IN_PLATFORMS.items() if one.server]
        parser.epilog = _EPILOG.format(servers="\n".join(servers))
        actions = parser.add_subparsers(dest="action", metavar="ACTION")
        parser.set_defaults(action="list", json=False)
        listing = actions.add_parser("list", help="list the routes, the most specific first")
        adding = actions.add_parser("add", help="add a route, or replace the one of that name")
        adding.add_argument("name", metavar="NAME", help="a name for the route")
        adding.add_argument("--persona", metavar="NAME", default="", help="the persona; without it, the agent itself")
        testing = actions.add_parser("test", help="show which persona answers a message, and why")
        testing.add_argument("--kind", choices=("private", "group"), default="private", help="kind of chat")
        for action in (adding, testing):
            for name, text in _PLACES:
                action.add_argument(f"--{name}", metavar=name.upper(), default="", help=text)
        for action in (listing, testing):
            action.add_argument("--json", action="store_true", help="print JSON")

    @staticmethod
    def run(arguments: argparse.Namespace, services: Services) -> int:
        """Do what was asked and return the exit code."""
        match arguments.action:
            case "add":
                return _add_route(arguments, services)
            case "test":
                return _test_route(arguments, services)
        return _list_routes(arguments, services)


class ChannelsCommand:
    """`talaria channels`: list the chats to which the agent can send."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Describe the actions."""
        actions = parser.add_subparsers(dest="action", metavar="ACTION")
        parser.set_defaults(action="list")
        listing = actions.add_parser("list", help="list the known chats, most recently active first")
        listing.add_argument("platform", metavar="PLATFORM", nargs="?", default="", help="only this network")
        listing.add_argument("--json", action="store_true", help="print JSON")

    @staticmethod
    def run(arguments: argparse.Namespace, services: Services) -> int:
        """List the chats."""
        platform = arguments.platform.strip().lower()
        with services.open_database() as database:
            found = database.read(lambda tx: _read_channels(tx, platform))
        if arguments.json:
            services.terminal.json([_channel_as_data(channel, home=home) for channel, home in found])
        elif found:
            now = SystemClock().now()
            services.terminal.table(
                ("TARGET", "NAME", "KIND", "LAST ACTIVE", "HOME"),
                [
                    (one.target, one.name, one.address.chat_type, format_age(one.seen, now), "home" * home)
                    for one, home in found
                ],
            )
        elif services.terminal.interactive:
            services.terminal.note("No chats are known yet. Write to the agent in a chat first.")
        return 0


def _list_routes(arguments: argparse.Namespace, services: Services) -> int:
    settings = services.settings()
    routes = Routes(settings)
    if arguments.json:
        services.terminal.json({name: structs.asdict(route) for name, route in settings.routes.items()})
        return 0
    fields = ("persona", *(name for name, _ in _PLACES))
    rows = [(name, *(getattr(settings.routes[name], field) for field in fields)) for name in routes.names]
    if not rows:
        services.terminal.note(
            "There are no routes. `talaria routes add NAME --network NETWORK --persona PERSONA` adds one."
        )
        return 0
    services.terminal.table(("ROUTE", *(field.upper() for field in fields)), rows)
    for problem in routes.list_problems():
        services.terminal.note(problem)
    return 0


def _add_route(arguments: argparse.Namespace, services: Services) -> int:
    from talaria.settings.edit import compute_file_version, edit_values  # noqa: PLC0415 (loaded for a change: needs tomlkit)

    settings, persona = services.settings(), arguments.persona
    if persona and persona not in settings.personas:
        raise NotFound(f"There is no persona `{persona}`. Describe it first: [personas.{persona}] in config.toml.")
    route = RouteSettings(persona=persona, **{name: getattr(arguments, name) for name, _ in _PLACES})
    if route == RouteSettings(persona=persona):
        raise Refused("A route needs at least one of --network, --server, --chat, --thread and --person.")
    _check_server(settings, arguments)
    version = compute_file_version(read_source(services.profile.config_file).text)
    key = ("routes", arguments.name)
    values: dict[str, str | None] = {format_key(key): None} if arguments.name in settings.routes else {}
    values |= {format_key((*key, field)): value for field, value in structs.asdict(route).items() if value}
    edit_values(services.profile, values, version)
    services.terminal.note(f"Added the route `{arguments.name}`. A running gateway uses it from the next message on.")
    return 0


def _test_route(arguments: argparse.Namespace, services: Services) -> int:
    settings = services.settings()
    network, user_id = arguments.network, arguments.person
    kind: ChatType = "thread" if arguments.thread and arguments.kind != "private" else arguments.kind
    _check_server(settings, arguments)
    address = Address(network, arguments.chat, kind, arguments.thread)
    people = _names_of(settings, user_id) if not _is_shared(settings, address) else ()
    choice = Routes(settings).choose(RoutedMessage(address, arguments.server, people))
    if arguments.json:
        services.terminal.json(choice)
        return 0
    services.terminal.line(f"{choice.persona or 'the agent itself'}: {choice.why}")
    return 0


def _check_server(settings: Settings, arguments: argparse.Namespace) -> None:
    if arguments.server and (problem := Routes(settings).find_server_problem(arguments.network)):
        raise Refused(problem)


def _names_of(settings: Settings, person: str) -> frozenset[str]:
    """Return all names of a person, given by one of them."""
    if person in settings.people:
        return frozenset((person, *settings.people[person].ids))
    platform, _, user_id = person.partition(":")
    return People(settings.people).names(platform, {user_id}) if user_id else frozenset({person} - {""})


def _is_shared(settings: Settings, address: Address) -> bool:
    """Return whether several people share the session of a chat."""
    network = settings.platforms.get(address.platform, ChatNetworkSettings())
    if address.chat_type == "private":
        return False
    if find_room(network.rooms, address) is not None:
        return True
    return not (network.thread_sessions_per_user if address.thread_id else network.group_sessions_per_user)


def _read_channels(tx: Transaction, platform: str) -> list[tuple[KnownChannel, bool]]:
    channels = list_channels(tx, platform)
    known = {name: read_home(tx, name) for name in {one.address.platform for one in channels}}
    homes = {(home.address.platform, home.address.chat_id) for home in known.values() if home}
    return [(one, (one.address.platform, one.address.chat_id) in homes) for one in channels]


def _channel_as_data(channel: KnownChannel, *, home: bool) -> dict[str, object]:
    address = channel.address
    return {
        "target": channel.target,
        "platform": address.platform,
        "chat_id": address.chat_id,
        "name": channel.name,
        "kind": address.chat_type,
        "seen": channel.seen,
        "home": home,
    }
