"""Jobs are added, changed and removed."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from talaria.cli.cron_actions.jobs import ASKER, rules, tell_of_gateway
from talaria.cli.services import Services
from talaria.contracts.clock import SystemClock
from talaria.contracts.schedules import CRON, HOME, JobView, JobWish
from talaria.contracts.store import Transaction
from talaria.contracts.stores.jobs import Job
from talaria.core.errors import Refused
from talaria.schedule.keeping import add_job, change_job, remove_job, view
from talaria.schedule.plan import read_job
from talaria.schedule.remarks import NO_GATEWAY, remarks
from talaria.sessions.homes import gateway_alive

_SOURCE = "TALARIA_SESSION_SOURCE"


def add(arguments: argparse.Namespace, services: Services) -> int:
    """Make a job."""
    if services.environment.get(_SOURCE) == CRON:
        raise Refused("A scheduled job makes no other jobs.")
    wish = _wish(arguments)
    if wish.deliver is None:
        wish = _wish(arguments, deliver=(HOME,))
    now, by = SystemClock().now(), rules(services)
    return _changed(arguments, services, lambda tx: add_job(tx, wish, ASKER, by, now))


def edit(arguments: argparse.Namespace, services: Services) -> int:
    """Change what is given."""
    wish = _wish(arguments)
    if wish == JobWish():
        raise Refused("Say what is to be changed: `talaria help cron edit` shows what can be.")
    return _change(arguments, services, wish)


def pause(arguments: argparse.Namespace, services: Services) -> int:
    """Let a job rest."""
    return _change(arguments, services, JobWish(paused=True))


def resume(arguments: argparse.Namespace, services: Services) -> int:
    """Let it go on."""
    return _change(arguments, services, JobWish(paused=False))


def remove(arguments: argparse.Namespace, services: Services) -> int:
    """Remove a job."""
    with services.open_database() as database:
        job = database.write(lambda tx: remove_job(tx, arguments.job, ASKER))
    if arguments.json:
        services.terminal.json(view(read_job(job)))
    else:
        services.terminal.line(f"Removed: {job.name}")
    return 0


def _change(arguments: argparse.Namespace, services: Services, wish: JobWish) -> int:
    now, by = SystemClock().now(), rules(services)
    return _changed(arguments, services, lambda tx: change_job(tx, arguments.job, wish, ASKER, by, now))


def _changed(arguments: argparse.Namespace, services: Services, work: Callable[[Transaction], Job]) -> int:
    networks = services.networks().names()

    def changed(tx: Transaction) -> tuple[JobView, bool]:
        job = read_job(work(tx))
        return view(job, remarks(tx, job, networks)), gateway_alive(tx)

    with services.open_database() as database:
        shown, served = database.write(changed)
    if arguments.json:
        services.terminal.json(shown)
        return 0
    services.terminal.line(f"{shown.id}  {shown.name}: {shown.schedule}, {_next(shown.next_told, shown.state)}")
    tell_of_gateway(services, served=served)
    for remark in shown.remarks:
        if remark != NO_GATEWAY:
            services.terminal.note(remark)
    return 0


def _next(told: str, state: str) -> str:
    return f"next {told}" if told else state


def _wish(arguments: argparse.Namespace, deliver: tuple[str, ...] | None = None) -> JobWish:
    folder = str(Path(arguments.folder).expanduser().absolute()) if arguments.folder else arguments.folder
    return JobWish(
        when=arguments.when,
        prompt=sys.stdin.read() if arguments.prompt == "-" else arguments.prompt,
        name=arguments.name,
        skills=tuple(arguments.skill) if arguments.skill is not None else None,
        model=arguments.model,
        folder=folder,
        script=arguments.script,
        times=arguments.times,
        deliver=deliver or (tuple(arguments.deliver) if arguments.deliver is not None else None),
        zone=arguments.zone,
        catch_up=arguments.catch_up,
        dollars=arguments.dollars,
    )
