"""How long to wait for a provider."""

from datetime import timedelta

from msgspec import Struct


class Timeouts(Struct, frozen=True):
    """How long to wait: for a connection, for the first byte of the reply, and within a reply that has begun."""

    connect: timedelta = timedelta(seconds=10)
    first_byte: timedelta = timedelta(seconds=120)
    silence: timedelta = timedelta(seconds=60)
