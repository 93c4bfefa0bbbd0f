"""Settings of the Matrix adapter."""

from datetime import timedelta
from typing import Literal

from msgspec import Struct

GroupMode = Literal["mention", "reply", "free"]
Invitations = Literal["allowed", "direct"]


class MatrixSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One account: an access ``token``, or a ``user`` with a ``password`` that is used once.

    In rooms with more than two members the account is addressed when it is mentioned (``mention``), also when one of
    its messages is answered (``reply``), or always (``free``). ``allowed`` are the people whose invitations are
    accepted by default; ``direct`` accepts invitations to private chats from anybody. A sync takes ``poll`` at most if
    nothing happens; any other call ``patience``, those with files ``file_patience``. ``file_limit`` is the size in
    bytes of the largest file, in both directions.
    """

    homeserver: str
    token: str = ""
    user: str = ""
    password: str = ""
    name: str = "matrix"
    device_name: str = "Talaria"
    encryption: bool = False
    group_mode: GroupMode = "reply"
    allowed: tuple[str, ...] = ()
    invitations: Invitations = "allowed"
    read_marks: bool = True
    file_limit: int = 50_000_000
    poll: timedelta = timedelta(seconds=30)
    patience: timedelta = timedelta(seconds=20)
    file_patience: timedelta = timedelta(seconds=120)
