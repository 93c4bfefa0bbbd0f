"""Requests that come again: the first answer is kept, and is the answer to all of them."""

import asyncio
import hashlib
import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Self

import msgspec
from msgspec import Struct, structs

from talaria.api.http import Reply, problem_reply
from talaria.api.problems import Problem, conflict, server_problem
from talaria.contracts.store import Store
from talaria.contracts.stores.responses import RepeatedAnswer
from talaria.core.errors import StoreError
from talaria.core.ids import WorkerId, is_gone

HEADER = "idempotency-key"
_LIFE = timedelta(hours=24)
_RESERVED = timedelta(seconds=30)
_LONGEST = 255
_MOST_BYTES = 4_000_000
_COME_AGAIN = {408, 409, 429, 503}
_TOO_LONG = "The first answer was too long to be kept."

log = logging.getLogger(__name__)

_encode = msgspec.json.Encoder().encode


class KeptReply(Struct, frozen=True):
    """A reply as it went out."""

    status: int
    content_type: str
    headers: Mapping[str, str]
    body: bytes

    @classmethod
    def of(cls, reply: Reply) -> Self:
        """Return a reply that is there as a whole, to be kept."""
        return cls(reply.status, reply.content_type, reply.headers, reply.body)


_decode = msgspec.json.Decoder(KeptReply).decode


class Reservation(Struct, frozen=True):
    """That this request is the first of its key, and being answered."""

    key: str
    fingerprint: str


class Repetitions:
    """Recognises requests by the key that their client chose, each caller's apart from all others'.

    A reservation that is not held lapses: the machine that has made it may be gone.
    """

    def __init__(self, store: Store, worker: WorkerId, *, reserved: timedelta = _RESERVED) -> None:
        self._store = store
        self._worker = worker
        self._reserved = reserved

    async def begin(self, key: str, caller: str, method: str, path: str, body: bytes) -> KeptReply | Reservation:
        """Return the first answer, or a reservation where this is the first request.

        Raises a `Problem` for a key that stands for something else, and while the first request is being answered. One
        whose server was killed counts as never made.
        """
        if not 0 < len(key) <= _LONGEST:
            raise Problem(f"An Idempotency-Key has 1 to {_LONGEST} characters.", code="invalid_idempotency_key")
        digest = hashlib.sha256(b"\n".join((method.encode(), path.encode(), body))).hexdigest()
        wanted = Reservation(_stored_key(caller, key), f"{digest} {self._worker}")
        found = await self._reserve(wanted)
        if found is not None and found.answer is None and _is_nobodys(found.fingerprint):
            found = await self._reserve(wanted, instead_of=found.fingerprint)
        if found is None:
            return wanted
        if found.fingerprint.partition(" ")[0] != digest:
            raise Problem("This Idempotency-Key stands for another request.", 422, code="idempotency_key_reused")
        if found.answer is None:
            raise conflict("The first request with this Idempotency-Key is still being answered.", code="in_progress")
        return _decode(found.answer)

    async def hold(self, reservation: Reservation) -> None:
        """Renew a reservation until cancelled; where the store does not let it be renewed the answer goes on."""
        while True:
            await asyncio.sleep(self._reserved.total_seconds() / 3)
            try:
                await self._reserve(reservation, instead_of=reservation.fingerprint)
            except StoreError as error:
                log.warning("the reservation of an Idempotency-Key was not renewed: %s", error)

    async def end(self, reservation: Reservation, reply: KeptReply) -> None:
        """Keep an answer for a day; one that says to come again frees the key for that."""
        if reply.status in _COME_AGAIN:
            free = structs.replace(reservation, fingerprint=f"{reservation.fingerprint.partition(' ')[0]} ")
            await self._reserve(free, instead_of=reservation.fingerprint)
            return
        if len(reply.body) > _MOST_BYTES:
            reply = KeptReply.of(problem_reply(server_problem(_TOO_LONG, code="answer_not_kept")))
        answer = _encode(reply).decode()
        key, fingerprint = reservation.key, reservation.fingerprint
        await self._store.write(lambda tx: tx.responses.end_request(key, fingerprint, answer, _LIFE))

    async def _reserve(self, wanted: Reservation, instead_of: str = "") -> RepeatedAnswer | None:
        key, fingerprint = wanted.key, wanted.fingerprint
        return await self._store.write(
            lambda tx: tx.responses.begin_request(key, fingerprint, self._reserved, instead_of=instead_of)
        )


def _is_nobodys(fingerprint: str) -> bool:
    """Tell whether a reservation was given up, or its worker is dead."""
    worker = fingerprint.partition(" ")[2]
    return not worker or is_gone(WorkerId(worker))


def _stored_key(caller: str, key: str) -> str:
    return hashlib.sha256(f"{caller}\n{key}".encode("utf-8", "surrogateescape")).hexdigest()
