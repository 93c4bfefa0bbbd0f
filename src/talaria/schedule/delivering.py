"""Where runs report: the places of a plan found, what was said sent there and recorded there, once."""

import logging
from collections.abc import Callable, Collection
from datetime import datetime

from msgspec import Struct

from talaria.contracts.platform import Content
from talaria.contracts.schedules import HOME, NOWHERE, ORIGIN
from talaria.contracts.store import Transaction
from talaria.core.addresses import Address
from talaria.core.errors import Ambiguous, NotFound
from talaria.core.ids import SessionId
from talaria.schedule.plan import Plan, Target
from talaria.sessions.channels import find_target
from talaria.sessions.homes import read_home
from talaria.sessions.sending import Parcel, send_parcel

Networks = Callable[[], Collection[str]]

log = logging.getLogger(__name__)


class Report(Struct, frozen=True, kw_only=True):
    """Something to be told by a job; ``key`` makes it the same one however often it is sent."""

    key: str
    name: str
    text: str
    at: datetime
    sender: SessionId | None = None


def places(tx: Transaction, plan: Plan, networks: Collection[str]) -> list[Address]:
    """Return where a job reports now; a place that is not there any more is left out, and logged."""
    found: dict[Address, None] = {}
    for target in plan.deliver:
        try:
            address = _place(tx, target, plan, networks)
        except (NotFound, Ambiguous) as error:
            log.warning("a job cannot report to %s: %s", target.words, error)
            continue
        if address is not None:
            found[address] = None
    return list(found)


def send(tx: Transaction, plan: Plan, report: Report, networks: Collection[str]) -> int:
    """Send a report to the places of a plan and return how many those are."""
    there = places(tx, plan, networks)
    for address in there:
        place = f"{address.platform}:{address.chat_id}:{address.thread_id}"
        parcel = Parcel(
            key=f"{report.key}:{place}",
            address=address,
            content=Content(text=report.text),
            source=f"the job “{report.name}”",
            at=report.at,
            sender=report.sender,
        )
        send_parcel(tx, parcel)
    return len(there)


def _place(tx: Transaction, target: Target, plan: Plan, networks: Collection[str]) -> Address | None:
    if target.words == NOWHERE:
        return None
    if target.words == ORIGIN:
        return _origin(tx, plan) or _home(tx, networks)
    if target.words == HOME:
        return _home(tx, networks)
    return target.address or find_target(tx, target.words, networks)


def _origin(tx: Transaction, plan: Plan) -> Address | None:
    """Return the place of the conversation that asked: where it is now, else the chat in which it was."""
    bindings = tx.bindings.of_session(plan.session_id) if plan.session_id else []
    return bindings[0].address if bindings else plan.address


def _home(tx: Transaction, networks: Collection[str]) -> Address | None:
    """Return the home channel of the first network that has one."""
    homes = (read_home(tx, name) for name in networks)
    return next((home.address for home in homes if home), None)
