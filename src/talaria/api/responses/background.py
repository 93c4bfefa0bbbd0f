"""Responses that are worked on as runs: composed of the events of their run, at any time and anywhere."""

import msgspec
from msgspec import structs

from talaria.api.responses import keeping
from talaria.api.responses.composing import Composition
from talaria.api.responses.wire import Response
from talaria.api.runs.events import stream_of, unpacked
from talaria.api.runs.keeping import ENDED, order_of
from talaria.contracts.store import Transaction
from talaria.contracts.stores.responses import ApiRun, StoredResponse

_PAGE = 1000
_decode = msgspec.json.Decoder(Response).decode


def beginning(run: ApiRun) -> Composition:
    """Return the response of a run before anything has happened."""
    order = order_of(run)
    return Composition(_decode(order.response), thoughts=order.thoughts)


def composed(tx: Transaction, run: ApiRun) -> Response:
    """Return the response of a run as far as it has come."""
    composition, after = beginning(run), 0
    while page := tx.events.after(stream_of(run.id), after, _PAGE):
        for event in page:
            composition.take(unpacked(event), event.at.timestamp())
        after = page[-1].seq
    return composition.whole()


def current(tx: Transaction, stored: StoredResponse, kept: keeping.Kept) -> Response:
    """Return a response as it is now."""
    if kept.response.status not in ("queued", "in_progress"):
        return kept.response
    run = tx.runs.get(stored.id)
    return composed(tx, run) if run is not None else kept.response


def keep_ended(tx: Transaction, run: ApiRun) -> None:
    """Keep the response of a run that has ended; runs that are none, and those that were forgotten, are left alone."""
    ended = tx.runs.get(run.id)
    if ended is None or ended.state not in ENDED or order_of(ended).kind != "response":
        return
    stored = tx.responses.get(ended.id)
    if stored is None:
        return
    last = tx.messages.last(ended.session_id, 1)
    kept = structs.replace(keeping.read(stored), response=composed(tx, ended), upto=last[-1].seq if last else 0)
    keeping.put(tx, ended.session_id, kept, stored.conversation)
