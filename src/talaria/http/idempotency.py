"""Idempotent requests: the first answer is stored and returned to repetitions."""

import asyncio
import hashlib
import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Self

import msgspec
from msgspec import Struct, structs

from talaria.contracts.store import Store
from talaria.contracts.stores.responses import IdempotentAnswer
from talaria.core.errors import StoreError
from talaria.core.ids import WorkerId, is_gone
from talaria.http.errors import Problem, make_conflict
from talaria.http.routing import Reply

HEADER = "idempotency-key"
_TIME_TO_LIVE = timedelta(hours=24)
_RESERVATION_TIME = timedelta(seconds=30)
_MAX_KEY = 255
MAX_STORED_BYTES = 4_000_000
_RETRYABLE = {408, 409, 429, 503}

log = logging.getLogger(__name__)

_encode = msgspec.json.Encoder().encode


class StoredReply(Struct, frozen=True):
    """A reply as it was sent."""

    status: int
    content_type: str
    headers: Mapping[str, str]
    body: bytes

    @classmethod
    def of(cls, reply: Reply) -> Self:
        """Return a complete reply for storage."""
        return cls(reply.status, reply.content_type, reply.headers, reply.body)


_decode = msgspec.json.Decoder(StoredReply).decode


class Reservation(Struct, frozen=True):
    """The reservation of a key by its first request, while that is being answered."""

    key: str
    fingerprint: str


class IdempotencyStore:
    """Recognises requests by the key their client chose, separately per caller.

    A reservation expires unless it is renewed: its machine may be gone.
    """

    def __init__(self, store: Store, worker: WorkerId, *, reserved: timedelta = _RESERVATION_TIME) -> None:
        self._store = store
        self._worker = worker
        self._reserved = reserved

    async def begin(self, key: str, caller: str, method: str, path: str, body: bytes) -> StoredReply | Reservation:
        """Return the first answer, or a reservation if this is the first request.

        Raises a `Problem` for a key used for another request, and while the first request is in progress. A request
        whose server was killed counts as never made.
        """
        if not 0 < len(key) <= _MAX_KEY:
            raise Problem(f"An Idempotency-Key must have 1 to {_MAX_KEY} characters.", code="invalid_idempotency_key")
        digest = hashlib.sha256(b"\n".join((method.encode(), path.encode(), body))).hexdigest()
        reservation = Reservation(_make_stored_key(caller, key), f"{digest} {self._worker}")
        found = await self._reserve(reservation)
        if found is not None and found.answer is None and _is_abandoned(found.fingerprint):
            found = await self._reserve(reservation, instead_of=found.fingerprint)
        if found is None:
            return reservation
        if found.fingerprint.partition(" ")[0] != digest:
            raise Problem(
                "This Idempotency-Key was already used for a different request.", 422, code="idempotency_key_reused"
            )
        if found.answer is None:
            raise make_conflict("The first request with this Idempotency-Key is still in progress.", code="in_progress")
        return _decode(found.answer)

    async def hold(self, reservation: Reservation) -> None:
        """Renew a reservation until cancelled; if the store refuses, the request continues anyway."""
        while True:
            await asyncio.sleep(self._reserved.total_seconds() / 3)
            try:
                await self._reserve(reservation, instead_of=reservation.fingerprint)
            except StoreError as error:
                log.warning("the reservation of an Idempotency-Key couldn't be renewed: %s", error)

    async def end(self, reservation: Reservation, reply: StoredReply) -> None:
        """Store an answer of at most `MAX_STORED_BYTES` for a day; one that asks to retry releases the key instead."""
        if reply.status in _RETRYABLE:
            released = structs.replace(reservation, fingerprint=f"{reservation.fingerprint.partition(' ')[0]} ")
            await self._reserve(released, instead_of=reservation.fingerprint)
            return
        answer = _encode(reply).decode()
        key, fingerprint = reservation.key, reservation.fingerprint
        await self._store.write(lambda tx: tx.responses.store_answer(key, fingerprint, answer, _TIME_TO_LIVE))

    async def _reserve(self, reservation: Reservation, instead_of: str = "") -> IdempotentAnswer | None:
        key, fingerprint = reservation.key, reservation.fingerprint
        return await self._store.write(
            lambda tx: tx.responses.reserve_request(key, fingerprint, self._reserved, instead_of=instead_of)
        )


def _is_abandoned(fingerprint: str) -> bool:
    """Return whether a reservation was released, or its worker is dead."""
    worker = fingerprint.partition(" ")[2]
    return not worker or is_gone(WorkerId(worker))


def _make_stored_key(caller: str, key: str) -> str:
    return hashlib.sha256(f"{caller}\n{key}".encode("utf-8", "surrogateescape")).hexdigest()
