"""Server-sent events are parsed the same at any chunk boundaries."""

from hypothesis import given
from hypothesis import strategies as st

from talaria.http_client.client import EventParser

LINES = st.sampled_from(
    [
        b"data: one",
        b"data:two",
        b"data",
        b"data:",
        b": a comment",
        b"event: ping",
        b"id: 7",
        b"",
        b"",
        b"retry: 1",
        b"datax",
    ]
)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    begin = draw(st.sampled_from([b"", b"\xef\xbb\xbf"]))
    return begin + b"".join(draw(LINES) + draw(ENDS) for _ in range(draw(st.integers(0, 12))))


def parse_by_standard(stream: bytes) -> list[bytes]:
    events: list[bytes] = []
    data: list[bytes] = []
    for line in stream.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")[:-1]:
        field, _, value = line.partition(b":")
        if line == b"" and data:
            events.append(b"\n".join(data))
            data = []
        elif field == b"data":
            data.append(value.removeprefix(b" "))
    return events


@given(streams(), st.data())
def test_events_are_parsed_the_same_at_any_chunk_boundaries(stream: bytes, data: st.DataObject) -> None:
    parser = EventParser()
    events = []
    rest = stream
    while rest:
        length = data.draw(st.integers(1, len(rest)))
        events += parser.feed(rest[:length])
        rest = rest[length:]
    assert events == parse_by_standard(stream)


@given(streams())
def test_events_are_parsed_the_same_byte_by_byte(stream: bytes) -> None:
    parser = EventParser()
    events = [event for position in range(len(stream)) for event in parser.feed(stream[position : position + 1])]
    assert events == EventParser().feed(stream) == parse_by_standard(stream)


def test_event_without_a_final_blank_line_is_dropped() -> None:
    assert EventParser().feed(b'data: {"half":') == []
