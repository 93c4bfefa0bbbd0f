"""Deliver reports of runs: resolve the targets, send and record each report once."""

import logging
from collections.abc import Callable, Collection
from datetime import datetime

from msgspec import Struct

from talaria.contracts.jobs import HOME, NOWHERE, ORIGIN
from talaria.contracts.platform import Content
from talaria.contracts.store import Transaction
from talaria.core.addresses import Address
from talaria.core.errors import Ambiguous, NotFound
from talaria.core.ids import SessionId
from talaria.runtime.cross_posts import CrossPost, send_cross_post
from talaria.schedule.job import JobSpec, ReportTarget
from talaria.sessions.chat_directory import find_target, read_home

Networks = Callable[[], Collection[str]]

log = logging.getLogger(__name__)


class JobReport(Struct, frozen=True, kw_only=True):
    """A report of a job; ``key`` prevents duplicates."""

    key: str
    name: str
    text: str
    at: datetime
    sender: SessionId | None = None


def places(tx: Transaction, plan: JobSpec, networks: Collection[str]) -> list[Address]:
    """Return the current targets of a job; missing ones are left out and logged."""
    found: dict[Address, None] = {}
    for target in plan.deliver:
        try:
            address = _resolve_target(tx, target, plan, networks)
        except (NotFound, Ambiguous) as error:
            log.warning("a job can't report to %s: %s", target.words, error)
            continue
        if address is not None:
            found[address] = None
    return list(found)


def send_report(tx: Transaction, plan: JobSpec, report: JobReport, networks: Collection[str]) -> int:
    """Send a report to the targets of a plan and return their number."""
    addresses = places(tx, plan, networks)
    for address in addresses:
        chat = f"{address.platform}:{address.chat_id}:{address.thread_id}"
        cross_post = CrossPost(
            key=f"{report.key}:{chat}",
            address=address,
            content=Content(text=report.text),
            source=f"the job “{report.name}”",
            at=report.at,
            sender=report.sender,
        )
        send_cross_post(tx, cross_post)
    return len(addresses)


def _resolve_target(tx: Transaction, target: ReportTarget, plan: JobSpec, networks: Collection[str]) -> Address | None:
    if target.words == NOWHERE:
        return None
    if target.words == ORIGIN:
        return _find_origin(tx, plan) or _find_home(tx, networks)
    if target.words == HOME:
        return _find_home(tx, networks)
    return target.address or find_target(tx, target.words, networks)


def _find_origin(tx: Transaction, plan: JobSpec) -> Address | None:
    """Return the chat of the session that created the job: its current one, otherwise the original."""
    bindings = tx.bindings.of_session(plan.session_id) if plan.session_id else []
    return bindings[0].address if bindings else plan.address


def _find_home(tx: Transaction, networks: Collection[str]) -> Address | None:
    """Return the home chat of the first network that has one."""
    homes = (read_home(tx, name) for name in networks)
    return next((home.address for home in homes if home), None)
