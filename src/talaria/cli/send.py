"""`talaria send`: let the agent say something in a chat, from a script."""

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
from talaria.contracts.stores.outbox import OutboxFilter, OutboxItem
from talaria.core.errors import Refused
from talaria.core.ids import new_id
from talaria.sessions.channels import find_target
from talaria.sessions.homes import gateway_alive
from talaria.sessions.sending import Parcel, send_parcel

_PATIENCE = 60.0
_LOOK_AGAIN = 0.1
_EPILOG = """\
TARGET is the name of a network (your home there), or a chat of it by its name
or id, and perhaps a thread: telegram, telegram:Family, matrix:#ops,
telegram:-1001234:77. `talaria channels list` shows the chats that are known.
A gateway delivers the message; without one it waits until there is one.
"""

State = Literal["queued", "delivered", "failed"]


class Receipt(Struct, frozen=True, kw_only=True):
    """What became of a message so far."""

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
    parser.add_argument("target", metavar="TARGET", help="where to, see below")
    parser.add_argument(
        "text", metavar="TEXT", nargs="?", default="-", help="what, in Markdown; - reads standard input"
    )
    parser.add_argument("--wait", action="store_true", help="wait until it is delivered; exit code 1 if it is not")
    parser.add_argument(
        "--timeout", type=float, default=_PATIENCE, metavar="SECONDS", help=f"how long to wait (default {_PATIENCE:g})"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Queue the message, wait for it if asked to, and say what became of it."""
    networks = services.networks().names()
    if not networks:
        raise Refused("No chat network is set up: `talaria setup chat` asks for what one needs.")
    text = _text(arguments)
    with services.open_database() as database:
        item, alive = database.write(lambda tx: _queue(tx, arguments.target, text, networks))
        receipt = _receipt(arguments.target, item, gateway=alive)
        if arguments.wait:
            receipt = _await_delivery(database, receipt, item, arguments.timeout)
    if arguments.json:
        services.terminal.json(receipt)
    else:
        _tell(receipt, services, waited=arguments.wait)
    return 1 if receipt.state == "failed" or (arguments.wait and receipt.state != "delivered") else 0


def _text(arguments: argparse.Namespace) -> str:
    if arguments.text == "-" and sys.stdin.isatty():
        raise Refused("There is nothing to send: give the text after the target, or pipe it in.")
    text: str = sys.stdin.read() if arguments.text == "-" else arguments.text
    if not text.strip():
        raise Refused("There is nothing to send: the text is empty.")
    return text.strip("\n")


def _queue(tx: Transaction, target: str, text: str, networks: Collection[str]) -> tuple[OutboxItem, bool]:
    parcel = Parcel(
        key=f"script:{new_id()}",
        address=find_target(tx, target, networks),
        content=Content(text=text),
        source="a script",
        at=datetime.now(UTC),
    )
    item = send_parcel(tx, parcel)
    assert item is not None, "its key is new"
    return item, gateway_alive(tx)


def _receipt(target: str, item: OutboxItem, *, gateway: bool) -> Receipt:
    place = item.address
    return Receipt(
        target=target,
        platform=place.platform,
        chat_id=place.chat_id,
        thread_id=place.thread_id,
        key=item.key,
        state="queued",
        gateway=gateway,
    )


def _await_delivery(database: Database, receipt: Receipt, item: OutboxItem, seconds: float) -> Receipt:
    deadline = time.monotonic() + seconds
    while (now := database.read(lambda tx: _looked_up(tx, receipt, item))).state == "queued":
        if time.monotonic() > deadline:
            break
        time.sleep(_LOOK_AGAIN)
    return now


def _looked_up(tx: Transaction, receipt: Receipt, item: OutboxItem) -> Receipt:
    found = next((one for one in tx.outbox.find(OutboxFilter(session_id=item.session_id)) if one.id == item.id), None)
    state: State = "delivered" if found is None else "failed" if found.state == "failed" else "queued"
    return structs.replace(receipt, state=state, error=found.error if found else "", gateway=gateway_alive(tx))


def _tell(receipt: Receipt, services: Services, *, waited: bool) -> None:
    match receipt.state:
        case "delivered":
            services.terminal.line(f"Delivered to {receipt.target}.")
        case "failed":
            services.terminal.note(f"{receipt.target} cannot be reached: {receipt.error}")
        case "queued":
            services.terminal.line(f"On its way to {receipt.target}.")
            if not receipt.gateway:
                services.terminal.note("No gateway is running: `talaria gateway start` starts one, which delivers it.")
            elif waited:
                services.terminal.note(f"It is not delivered yet{': ' + receipt.error if receipt.error else ''}.")
