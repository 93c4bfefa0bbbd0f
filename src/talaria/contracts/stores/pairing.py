"""Pairing: people whom the owner has let in, and those who have asked."""

from datetime import datetime, timedelta
from typing import Protocol

from msgspec import Struct


class Person(Struct, frozen=True):
    """Someone on a network."""

    platform: str
    user_id: str
    name: str = ""
    since: datetime | None = None


class PairingRules(Struct, frozen=True):
    """How long a code lives and how many wrong ones lock a platform for how long.

    Of more than ``most_waiting`` codes on a platform the oldest is dropped; ``per_minute`` limits new ones.
    """

    code_life: timedelta = timedelta(hours=1)
    most_waiting: int = 50
    per_minute: int = 20
    failures: int = 5
    lockout: timedelta = timedelta(hours=1)


class Pairing(Protocol):
    """One-time codes, known to the store by their hashes only."""

    def offer(self, person: Person, code_hash: str, rules: PairingRules) -> bool:
        """Keep a code for someone; ``False`` while an earlier one of theirs is still good, or after too many others."""

    def approve(self, platform: str, code_hash: str, rules: PairingRules) -> Person | None:
        """Let in whoever was given the code; a wrong or old one counts as a failure.

        Raises `Refused` while the platform is locked after too many failures.
        """

    def waiting(self) -> list[Person]:
        """Return those who hold a code that is still good."""

    def people(self, platform: str | None = None) -> list[Person]:
        """Return those who have been let in."""

    def is_paired(self, platform: str, user_id: str) -> bool:
        """Tell whether someone has been let in."""

    def revoke(self, platform: str, user_id: str) -> bool:
        """Shut someone out again."""
