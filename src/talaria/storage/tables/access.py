"""People who may talk, pairing codes, and API keys."""

from datetime import timedelta

from talaria.contracts.stores.access import PairedPerson, PairingRules, StoredApiKey
from talaria.core.errors import Refused
from talaria.storage.tables.sql import Row, Sql, from_stamp, to_span, to_stamp

_MINUTE = timedelta(minutes=1)


class PairingTable:
    """SQL implementation of `Pairing`."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def offer(self, person: PairedPerson, code_hash: str, rules: PairingRules) -> bool:
        """Store the hash of a pairing code for a person and return whether it was stored.

        ``False`` while an earlier code of the person is valid, or if the platform has reached ``per_minute`` codes.
        At most ``max_waiting`` codes of a platform are stored; the oldest are deleted.
        """
        recent = self._sql.row(
            "SELECT count(*) FROM pairing_codes WHERE platform = ? AND created_at > ?",
            (person.platform, self._sql.now - to_span(_MINUTE)),
        )
        if recent is not None and int(str(recent[0])) >= rules.per_minute:
            return False
        offered = self._sql.count(
            "INSERT INTO pairing_codes (platform, user_id, name, code_hash, created_at, expires_at)"
            " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (platform, user_id) DO UPDATE SET name = excluded.name,"
            " code_hash = excluded.code_hash, created_at = excluded.created_at, expires_at = excluded.expires_at"
            " WHERE pairing_codes.expires_at <= excluded.created_at",
            (
                person.platform,
                person.user_id,
                person.name,
                code_hash,
                self._sql.now,
                self._sql.now + to_span(rules.code_life),
            ),
        )
        self._sql.run(
            "DELETE FROM pairing_codes WHERE platform = ? AND user_id <> ? AND user_id NOT IN"
            " (SELECT user_id FROM pairing_codes WHERE platform = ? AND user_id <> ? ORDER BY created_at DESC LIMIT ?)",
            (*(person.platform, person.user_id) * 2, rules.max_waiting - 1),
        )
        return offered > 0

    def approve(self, platform: str, code_hash: str, rules: PairingRules) -> PairedPerson | None:
        """Pair the person who was given the code; ``None`` for a wrong or expired code.

        A wrong code counts as a failure. Too many failures lock the platform for a while: then `Refused` is raised.
        """
        self._check_not_locked(platform)
        row = self._sql.row(
            "DELETE FROM pairing_codes WHERE platform = ? AND code_hash = ? AND expires_at > ? RETURNING user_id, name",
            (platform, code_hash, self._sql.now),
        )
        if row is None:
            self._count_failure(platform, rules)
            return None
        self._sql.run("DELETE FROM pairing_failures WHERE platform = ?", (platform,))
        return self._add_person(platform, row)

    def admit(self, platform: str, user_id: str) -> PairedPerson | None:
        """Pair the person with a valid request, without their code; ``None`` if there is no such request."""
        row = self._sql.row(
            "DELETE FROM pairing_codes WHERE platform = ? AND user_id = ? AND expires_at > ? RETURNING user_id, name",
            (platform, user_id, self._sql.now),
        )
        return self._add_person(platform, row) if row else None

    def refuse(self, platform: str, user_id: str) -> bool:
        """Delete the request of a person; ``False`` if there is none."""
        where = "WHERE platform = ? AND user_id = ? AND expires_at > ?"
        return self._sql.count(f"DELETE FROM pairing_codes {where}", (platform, user_id, self._sql.now)) > 0

    def waiting(self) -> list[PairedPerson]:
        """Return the people with a valid code, oldest code first."""
        rows = self._sql.rows(
            "SELECT platform, user_id, name, created_at FROM pairing_codes WHERE expires_at > ? ORDER BY created_at",
            (self._sql.now,),
        )
        return [_to_person(row) for row in rows]

    def people(self, platform: str | None = None) -> list[PairedPerson]:
        """Return the paired people, of one platform or of all, in order of pairing."""
        where, values = ("WHERE platform = ?", (platform,)) if platform else ("", ())
        rows = self._sql.rows(
            f"SELECT platform, user_id, name, since FROM people {where} ORDER BY since, user_id", values
        )
        return [_to_person(row) for row in rows]

    def is_paired(self, platform: str, user_id: str) -> bool:
        """Return whether a person is paired."""
        found = self._sql.row("SELECT 1 FROM people WHERE platform = ? AND user_id = ?", (platform, user_id))
        return found is not None

    def revoke(self, platform: str, user_id: str) -> bool:
        """Remove a paired person; ``False`` if there was none."""
        return self._sql.count("DELETE FROM people WHERE platform = ? AND user_id = ?", (platform, user_id)) > 0

    def _add_person(self, platform: str, row: Row) -> PairedPerson:
        person = self._sql.row(
            "INSERT INTO people (platform, user_id, name, since) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (platform, user_id) DO UPDATE SET name = excluded.name"
            " RETURNING platform, user_id, name, since",
            (platform, *row, self._sql.now),
        )
        assert person is not None
        return _to_person(person)

    def _check_not_locked(self, platform: str) -> None:
        row = self._sql.row(
            "SELECT locked_until FROM pairing_failures WHERE platform = ? AND locked_until > ?",
            (platform, self._sql.now),
        )
        if row:
            until = from_stamp(row[0])
            raise Refused(f"Too many wrong codes for {platform}; try again after {until:%H:%M} UTC.")

    def _count_failure(self, platform: str, rules: PairingRules) -> None:
        row = self._sql.row(
            "INSERT INTO pairing_failures (platform, failures, locked_until) VALUES (?, 1, 0) ON CONFLICT (platform)"
            " DO UPDATE SET failures = pairing_failures.failures + 1 RETURNING failures",
            (platform,),
        )
        if row and row[0] >= rules.failures:
            self._sql.run(
                "UPDATE pairing_failures SET failures = 0, locked_until = ? WHERE platform = ?",
                (self._sql.now + to_span(rules.lockout), platform),
            )


def _to_person(row: Row) -> PairedPerson:
    platform, user_id, name, since = row
    return PairedPerson(platform, user_id, name, from_stamp(since))


class ApiKeysTable:
    """SQL implementation of `ApiKeys`; scopes are stored as words."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def add(self, key: StoredApiKey) -> bool:
        """Add a key; ``False`` if its name is taken."""
        added = self._sql.count(
            "INSERT INTO api_keys (name, scopes, digest, created_at) VALUES (?, ?, ?, ?) ON CONFLICT (name) DO NOTHING",
            (key.name, " ".join(key.scopes), key.digest, to_stamp(key.created_at)),
        )
        return added > 0

    def all(self) -> list[StoredApiKey]:
        """Return the keys, ordered by name."""
        rows = self._sql.rows("SELECT name, scopes, digest, created_at FROM api_keys")
        return [
            StoredApiKey(name=name, scopes=tuple(scopes.split()), digest=digest, created_at=from_stamp(created_at))
            for name, scopes, digest, created_at in sorted(rows)
        ]

    def delete(self, name: str) -> bool:
        """Delete a key; ``False`` if there is none with this name."""
        return self._sql.count("DELETE FROM api_keys WHERE name = ?", (name,)) > 0
