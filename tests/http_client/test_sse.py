"""A stream of events means the same, however the network cuts it."""

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


def as_the_standard_says(stream: bytes) -> list[bytes]:
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
def test_any_cut_gives_the_same_events(stream: bytes, data: st.DataObject) -> None:
    parser = EventParser()
    events = []
    rest = stream
    while rest:
        length = data.draw(st.integers(1, len(rest)))
        events += parser.feed(rest[:length])
        rest = rest[length:]
    assert events == as_the_standard_says(stream)


@given(streams())
def test_one_byte_at_a_time_gives_the_same_events(stream: bytes) -> None:
    parser = EventParser()
    events = [event for place in range(len(stream)) for event in parser.feed(stream[place : place + 1])]
    assert events == EventParser().feed(stream) == as_the_standard_says(stream)


def test_an_event_without_its_blank_line_never_happened() -> None:
    assert EventParser().feed(b'data: {"half":') == []
