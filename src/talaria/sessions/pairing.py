"""Pairing: a stranger is given a code, the owner types it, and from then on they may speak."""

import hashlib
import secrets

import msgspec

from talaria.contracts.clock import SystemClock
from talaria.contracts.platform import Content
from talaria.contracts.store import Transaction
from talaria.contracts.stores.pairing import PairingRules, Person
from talaria.core.addresses import Address
from talaria.core.errors import Refused
from talaria.core.ids import new_id
from talaria.sessions.sending import Parcel, send_parcel

RULES = PairingRules()
_ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"  # neither 0 and O nor 1 and I, which read alike
_LENGTH = 8
_SALT = "pairing:salt"
_PLACES = "pairing:place:"
_LET_IN = "You have been let in: from now on I answer you here."
_SCRYPT = {"n": 2**13, "r": 8, "p": 1}  # some 20 ms, so that a stolen store does not give its codes away at once


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Address).decode


def offer_code(
    tx: Transaction, person: Person, rules: PairingRules = RULES, *, place: Address | None = None
) -> str | None:
    """Make a code for somebody and return it; ``None`` while they have one, or too many asked in the last minute.

    The code itself is kept nowhere. ``place`` is where they are told when they are let in.
    """
    waiting = [one.user_id for one in tx.pairing.waiting() if one.platform == person.platform]
    if person.user_id in waiting:
        return None
    code = "".join(secrets.choice(_ALPHABET) for _ in range(_LENGTH))
    if not tx.pairing.offer(person, _hashed(code, person.platform, _salt(tx)), rules):
        return None
    _keep_place(tx, person, place, [*waiting, person.user_id])
    return code


def approve_code(tx: Transaction, platform: str, code: str, rules: PairingRules = RULES) -> Person | None:
    """Let in whoever was given the code, and tell them so; ``None`` for a wrong or old one, which counts as a failure.

    Raises `Refused` for what cannot be a code, and while the platform is locked after too many failures.
    """
    person = tx.pairing.approve(platform, _hashed(_read(code), platform, _salt(tx)), rules)
    if person is not None:
        _tell(tx, person)
    return person


def code_words(platform: str, code: str, rules: PairingRules = RULES) -> str:
    """Return what a stranger is told."""
    minutes = int(rules.code_life.total_seconds()) // 60
    return (
        "Hello! I do not know you yet, so I cannot talk with you. If you know my owner, send them this code:\n\n"
        f"`{code}`\n\n"
        f"It is good for {minutes} minutes. They let you in with `talaria pairing approve {platform} {code}`."
    )


def _tell(tx: Transaction, person: Person) -> None:
    """Tell somebody in their chat that they may speak now, if it is known which that is."""
    key = _key(person.platform, person.user_id)
    entry = tx.state.get(key)
    if entry is None:
        return
    tx.state.delete(key)
    parcel = Parcel(
        key=f"paired:{new_id()}",
        address=_decode(entry.value),
        content=Content(text=_LET_IN),
        source="the owner",
        at=SystemClock().now(),
    )
    send_parcel(tx, parcel)


def _keep_place(tx: Transaction, person: Person, place: Address | None, waiting: list[str]) -> None:
    """Keep where somebody wrote from, for as long as they wait: strangers leave nothing behind."""
    wanted = {_key(person.platform, one) for one in waiting}
    for entry in tx.state.with_prefix(_key(person.platform, "")):
        if entry.key not in wanted:
            tx.state.delete(entry.key)
    if place is not None:
        tx.state.put(_key(person.platform, person.user_id), _encode(place).decode())


def _key(platform: str, user_id: str) -> str:
    return f"{_PLACES}{platform}:{user_id}"


def _read(code: str) -> str:
    read = "".join(code.split()).replace("-", "").upper()
    if len(read) != _LENGTH or not set(read) <= set(_ALPHABET):
        raise Refused(f"`{code}` is no code: it has {_LENGTH} letters and digits, and never 0, O, 1 or I.")
    return read


def _salt(tx: Transaction) -> bytes:
    """Return what makes the hashes of this store differ from those of any other; made at its first use."""
    entry = tx.state.get(_SALT)
    if entry is None:
        tx.state.replace(_SALT, secrets.token_hex(16), version=0)
        entry = tx.state.get(_SALT)
    assert entry is not None
    return bytes.fromhex(entry.value)


def _hashed(code: str, platform: str, salt: bytes) -> str:
    return hashlib.scrypt(f"{platform}:{code}".encode(), salt=salt, **_SCRYPT).hex()
