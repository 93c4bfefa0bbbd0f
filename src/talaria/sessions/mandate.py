"""What holds where a conversation works on a task of another one."""

from msgspec import Struct

from talaria.core.ids import SessionId
from talaria.sessions.questions import Questions

AT_CALL, BESIDE = "delegation:", "background:"  # what is kept of tasks that are waited for, and of those that are not


class Mandate(Struct, frozen=True, kw_only=True):
    """``tools`` are the only ones that it may have, ``questions`` reach whoever can allow something.

    ``ancestors`` are the conversations that it works for, nearest first: what it costs counts on their budgets too, and
    on ``account``, that of the turn which handed the task on. ``seconds`` is how long a turn may take.
    """

    tools: tuple[str, ...]
    ancestors: tuple[SessionId, ...]
    account: str
    questions: Questions | None = None
    seconds: float | None = None

    @property
    def depth(self) -> int:
        """How often the task was handed on."""
        return len(self.ancestors)

    @property
    def root(self) -> SessionId:
        """The conversation in which a person is asked, and what they allow is kept."""
        return self.ancestors[-1]
