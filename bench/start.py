"""Run time of short commands, compared with Python and two imported modules."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.measure import Measurement, Times, command_path, time_programs
from talaria.app.store import open_database
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import NewSession
from talaria.settings.load import load_settings
from talaria.settings.profiles import Profiles

NAME = "start"

_FLOOR = 'python -c "import argparse, json"'
_GOALS = {"talaria --version": 2.0, "talaria --help": 2.0, "talaria sessions list": 4.0}
_SESSIONS = 200


def run(quick: bool) -> list[Measurement]:
    """Measure wall and CPU time of each command."""
    programs = {name: [command_path("talaria"), *name.split()[1:]] for name in _GOALS}
    programs[_FLOOR] = [sys.executable, "-c", "import argparse, json"]
    with _home_with_sessions() as home:
        times = time_programs(programs, rounds=5 if quick else 25, environment={"TALARIA_HOME": str(home)})
    return [measurement for name, goal in _GOALS.items() for measurement in _compare(name, goal, times)]


def _compare(name: str, goal: float, times: dict[str, Times]) -> Iterator[Measurement]:
    ours, floor = times[name], times[_FLOOR]
    yield Measurement(f"{name}, wall", ours.wall * 1000, "ms", goal, floor.wall * 1000)
    yield Measurement(f"{name}, CPU", ours.cpu * 1000, "ms", goal, floor.cpu * 1000)


@contextmanager
def _home_with_sessions() -> Iterator[Path]:
    with TemporaryDirectory() as folder:
        profile = Profiles(Path(folder)).active()
        with open_database(load_settings(profile, {}), profile) as database:
            database.write(_create_sessions)
        yield Path(folder)


def _create_sessions(transaction: Transaction) -> None:
    for number in range(_SESSIONS):
        transaction.sessions.create(NewSession(source="cli", title=f"Conversation number {number}"))
