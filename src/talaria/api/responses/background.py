"""Responses processed as runs: built from the events of their run, at any time, by any server."""

import msgspec
from msgspec import structs

from talaria.api.responses import response_store
from talaria.api.responses.builder import ResponseBuilder
from talaria.api.responses.wire import Response
from talaria.api.runs.events import decode_event, make_stream_name
from talaria.api.runs.run_store import END_STATES, read_options
from talaria.contracts.store import Transaction
from talaria.contracts.stores.responses import ApiRun, StoredResponse

_PAGE = 1000
_decode = msgspec.json.Decoder(Response).decode


def make_builder(run: ApiRun) -> ResponseBuilder:
    """Return the builder for a run's response before its first event."""
    order = read_options(run)
    return ResponseBuilder(_decode(order.response), thoughts=order.thoughts)


def build_response(tx: Transaction, run: ApiRun) -> Response:
    """Return the current response of a run."""
    builder, after = make_builder(run), 0
    while page := tx.events.after(make_stream_name(run.id), after, _PAGE):
        for event in page:
            builder.take(decode_event(event), event.at.timestamp())
        after = page[-1].seq
    return builder.whole()


def get_current_response(tx: Transaction, stored: StoredResponse, record: response_store.ResponseRecord) -> Response:
    """Return the current state of a response."""
    if record.response.status not in ("queued", "in_progress"):
        return record.response
    run = tx.runs.get(stored.id)
    return build_response(tx, run) if run is not None else record.response


def store_ended_response(tx: Transaction, run: ApiRun) -> None:
    """Store the response of an ended run; other runs and deleted responses are skipped."""
    ended = tx.runs.get(run.id)
    if ended is None or ended.state not in END_STATES or read_options(ended).kind != "response":
        return
    stored = tx.responses.get(ended.id)
    if stored is None:
        return
    last = tx.messages.last(ended.session_id, 1)
    record = structs.replace(
        response_store.decode_record(stored), response=build_response(tx, ended), upto=last[-1].seq if last else 0
    )
    response_store.put_response(tx, ended.session_id, record, stored.conversation)
