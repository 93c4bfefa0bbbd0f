"""People and programs with access: pairing requests and paired people, and API keys stored as digests."""

from datetime import datetime, timedelta
from typing import Protocol

from msgspec import Struct


class PairedPerson(Struct, frozen=True):
    """A person on a network."""

    platform: str
    user_id: str
    name: str = ""
    since: datetime | None = None


class PairingRules(Struct, frozen=True):
    """Lifetime of codes, and how many wrong ones lock a platform for how long.

    With more than ``max_waiting`` codes on a platform the oldest is dropped; ``per_minute`` limits new ones.
    """

    code_life: timedelta = timedelta(hours=1)
    max_waiting: int = 50
    per_minute: int = 20
    failures: int = 5
    lockout: timedelta = timedelta(hours=1)


class Pairing(Protocol):
    """One-time codes; only their hashes are stored."""

    def offer(self, person: PairedPerson, code_hash: str, rules: PairingRules) -> bool:
        """Store a code for a person; ``False`` while their earlier one is valid, or after too many others."""

    def approve(self, platform: str, code_hash: str, rules: PairingRules) -> PairedPerson | None:
        """Admit the person with this code; a wrong or expired one counts as a failure.

        Raises `Refused` while the platform is locked after too many failures.
        """

    def admit(self, platform: str, user_id: str) -> PairedPerson | None:
        """Admit the person with a valid request, without their code; ``None`` if there is no such request."""

    def refuse(self, platform: str, user_id: str) -> bool:
        """Delete the request of a person; ``False`` if there is none."""

    def waiting(self) -> list[PairedPerson]:
        """Return the people with a valid code."""

    def people(self, platform: str | None = None) -> list[PairedPerson]:
        """Return the people who have been admitted."""

    def is_paired(self, platform: str, user_id: str) -> bool:
        """Return whether a person has been admitted."""

    def revoke(self, platform: str, user_id: str) -> bool:
        """Revoke a person's admission."""


class StoredApiKey(Struct, frozen=True, kw_only=True):
    """An API key: the digest, not the key itself."""

    name: str
    scopes: tuple[str, ...]
    digest: str
    created_at: datetime


class ApiKeys(Protocol):
    """The API keys, by name."""

    def add(self, key: StoredApiKey) -> bool:
        """Add a key; ``False`` if its name is taken."""

    def all(self) -> list[StoredApiKey]:
        """Return the keys, ordered by name."""

    def delete(self, name: str) -> bool:
        """Delete a key; ``False`` if there is none with this name."""
