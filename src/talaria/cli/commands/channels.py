"""`talaria channels`: list the chats to which the agent can send."""

import argparse

from talaria.cli.services import Services
from talaria.contracts.clock import SystemClock
from talaria.contracts.store import Transaction
from talaria.core.formatting import format_age
from talaria.sessions.chat_directory import KnownChannel, list_channels, read_home


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the actions."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    parser.set_defaults(action="list")
    listing = actions.add_parser("list", help="list the known chats, most recently active first")
    listing.add_argument("platform", metavar="PLATFORM", nargs="?", default="", help="only this network")
    listing.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace, services: Services) -> int:
    """List the chats."""
    platform = arguments.platform.strip().lower()
    with services.open_database() as database:
        found = database.read(lambda tx: _read_channels(tx, platform))
    if arguments.json:
        services.terminal.json([_as_data(channel, home=home) for channel, home in found])
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


def _read_channels(tx: Transaction, platform: str) -> list[tuple[KnownChannel, bool]]:
    channels = list_channels(tx, platform)
    known = {name: read_home(tx, name) for name in {one.address.platform for one in channels}}
    homes = {(home.address.platform, home.address.chat_id) for home in known.values() if home}
    return [(one, (one.address.platform, one.address.chat_id) in homes) for one in channels]


def _as_data(channel: KnownChannel, *, home: bool) -> dict[str, object]:
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
