"""What a front door asks for when it opens a conversation, and what it gets."""

from pathlib import Path

from msgspec import Struct

from talaria.contracts.follower import Follower
from talaria.contracts.models import ModelInfo
from talaria.contracts.tool import Tool, Workspace
from talaria.sessions.conversation import Conversation
from talaria.sessions.questions import Questions


class ChatWish(Struct, frozen=True, kw_only=True):
    """Which conversation, with which model: a new one with the usual model where nothing is said.

    ``resume`` is an id, a title or a part of one; ``latest`` goes on with the last one of this source. Where nobody
    attends, questions are answered with no at once. ``lasting`` says that the place stays open behind the reply, so
    that a goal may go on there. ``owner`` and ``audience`` are those of a new conversation; ``followers`` hear of its
    turns as well.
    """

    source: str
    folder: Path
    resume: str = ""
    latest: bool = False
    model: str = ""
    surface: str = ""
    identity: str = ""
    titled: bool = True
    attended: bool = True
    lasting: bool = False
    tools: tuple[Tool, ...] | None = None
    owner: str = ""
    audience: str = ""
    followers: tuple[Follower, ...] = ()


class Chat(Struct, frozen=True, kw_only=True):
    """An open conversation; ``notes`` are sentences that the person should read first.

    ``why`` is a sentence about why this model answers.
    """

    conversation: Conversation
    questions: Questions
    title: str
    model: str
    provider: str
    why: str
    info: ModelInfo
    workspace: Workspace
    notes: tuple[str, ...] = ()
