"""`talaria send`: send a message to a chat from a script."""

import argparse
import sys
import time
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Literal

from msgspec import Struct, structs

from talaria.cli.services import Services
from talaria.contracts.platform import Content
from talaria.contracts.store import Database, Transaction
from talaria.contracts.stores.queues import OutboxFilter, OutboxItem
from talaria.core.addresses import WEB
from talaria.core.errors import Refused
from talaria.core.ids import new_id
from talaria.runtime.cross_posts import CrossPost, send_cross_post
from talaria.runtime.workers import NO_GATEWAY, NO_WEB_SERVER, is_platform_served
from talaria.sessions.chat_directory import find_target

_TIMEOUT_SECONDS = 60.0
_POLL_SECONDS = 0.1
_EPILOG = """\
TARGET is a network (its home chat), or NETWORK:CHAT with the chat's name or id,
optionally followed by a thread: telegram, telegram:Family, matrix:#ops,
telegram:-1001234:77. `talaria channels list` shows the known chats.
The gateway delivers the message; without one, it waits until a gateway starts.
"""

State = Literal["queued", "delivered", "failed"]


class Receipt(Struct, frozen=True, kw_only=True):
    """Delivery state of a message."""

    target: str
    platform: str
    chat_id: str
    thread_id: str
    key: str
    state: State
    gateway: bool
    error: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("target", metavar="TARGET", help="the chat to send to, see below")
    parser.add_argument(
        "text", metavar="TEXT", nargs="?", default="-", help="the message, in Markdown; - reads standard input"
    )
    parser.add_argument("--wait", action="store_true", help="wait until it is delivered; exits with 1 if it isn't")
    parser.add_argument(
        "--timeout",
        type=float,
        default=_TIMEOUT_SECONDS,
        metavar="SECONDS",
        help=f"seconds to wait (default {_TIMEOUT_SECONDS:g})",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Queue the message, wait for its delivery if requested, and print the result."""
    networks = services.networks().targets()
    if networks in ([], [WEB]) and not arguments.target.startswith(WEB):
        raise Refused("No chat network is set up. Run `talaria setup chat`.")
    text = _read_text(arguments)
    with services.open_database() as database:
        item, alive = database.write(lambda tx: _queue(tx, arguments.target, text, networks))
        receipt = _build_receipt(arguments.target, item, gateway=alive)
        if arguments.wait:
            receipt = _await_delivery(database, receipt, item, arguments.timeout)
    if arguments.json:
        services.terminal.json(receipt)
    else:
        _print_receipt(receipt, services, waited=arguments.wait)
    return 1 if receipt.state == "failed" or (arguments.wait and receipt.state != "delivered") else 0


def _read_text(arguments: argparse.Namespace) -> str:
    if arguments.text == "-" and sys.stdin.isatty():
        raise Refused("Nothing to send. Give the text after the target, or pipe it in.")
    text: str = sys.stdin.read() if arguments.text == "-" else arguments.text
    if not text.strip():
        raise Refused("Nothing to send: the text is empty.")
    return text.strip("\n")


def _queue(tx: Transaction, target: str, text: str, networks: Collection[str]) -> tuple[OutboxItem, bool]:
    cross_post = CrossPost(
        key=f"script:{new_id()}",
        address=find_target(tx, target, networks),
        content=Content(text=text),
        source="a script",
        at=datetime.now(UTC),
    )
    item = send_cross_post(tx, cross_post)
    assert item is not None, "its key is new"
    return item, is_platform_served(tx, item.address.platform)


def _build_receipt(target: str, item: OutboxItem, *, gateway: bool) -> Receipt:
    address = item.address
    return Receipt(
        target=target,
        platform=address.platform,
        chat_id=address.chat_id,
        thread_id=address.thread_id,
        key=item.key,
        state="queued",
        gateway=gateway,
    )


def _await_delivery(database: Database, receipt: Receipt, item: OutboxItem, seconds: float) -> Receipt:
    deadline = time.monotonic() + seconds
    while (now := database.read(lambda tx: _refresh_receipt(tx, receipt, item))).state == "queued":
        if time.monotonic() > deadline:
            break
        time.sleep(_POLL_SECONDS)
    return now


def _refresh_receipt(tx: Transaction, receipt: Receipt, item: OutboxItem) -> Receipt:
    found = next((one for one in tx.outbox.find(OutboxFilter(session_id=item.session_id)) if one.id == item.id), None)
    state: State = "delivered" if found is None else "failed" if found.state == "failed" else "queued"
    return structs.replace(
        receipt, state=state, error=found.error if found else "", gateway=is_platform_served(tx, receipt.platform)
    )


def _print_receipt(receipt: Receipt, services: Services, *, waited: bool) -> None:
    match receipt.state:
        case "delivered":
            services.terminal.line(f"Delivered to {receipt.target}.")
        case "failed":
            services.terminal.note(f"Can't deliver to {receipt.target}: {receipt.error}")
        case "queued":
            services.terminal.line(f"Queued for {receipt.target}.")
            if not receipt.gateway:
                services.terminal.note(NO_WEB_SERVER if receipt.platform == WEB else NO_GATEWAY)
            elif waited:
                services.terminal.note(f"Not delivered yet{': ' + receipt.error if receipt.error else ''}.")
