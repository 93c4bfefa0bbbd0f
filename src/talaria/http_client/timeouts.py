"""Time-outs of the HTTP client."""

from datetime import timedelta

from msgspec import Struct


class Timeouts(Struct, frozen=True):
    """Time-outs: for a connection, for the first byte of the reply, and within a reply."""

    connect: timedelta = timedelta(seconds=10)
    first_byte: timedelta = timedelta(seconds=120)
    silence: timedelta = timedelta(seconds=60)
