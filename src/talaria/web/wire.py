"""Wire types of the web app; `make docs` writes ``static/js/wire.d.ts`` from them."""

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

from talaria.core.messages import Reasoning, Role, Text, ToolCall, ToolResult
from talaria.runtime.live.feed import FeedEvent

_Id = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[\w-]+$")]
_Topic = Annotated[str, Meta(max_length=80)]
_CommandText = Annotated[str, Meta(min_length=2, max_length=20_000, pattern="^/")]
_Name = Annotated[str, Meta(max_length=64)]


class LoginRequest(Struct, frozen=True):
    """A one-use code."""

    code: Annotated[str, Meta(min_length=1, max_length=64)]


class CommandInfo(Struct, frozen=True):
    """A slash command, for completion."""

    name: str
    usage: str
    help: str
    category: str


class MeView(Struct, frozen=True, kw_only=True):
    """Signed-in person, and everything else that the page needs at its start."""

    name: str
    owner: bool
    browser: str
    model: str
    version: str
    digest: str
    voice: bool
    commands: tuple[CommandInfo, ...]


class BrowserView(Struct, frozen=True, kw_only=True):
    """A signed-in browser."""

    id: str
    label: str
    person: str
    created_at: datetime
    seen_at: datetime
    current: bool


class SessionRow(Struct, frozen=True, kw_only=True):
    """A conversation in the list; ``network`` is that of its chat, empty if it has none."""

    id: str
    title: str
    source: str
    network: str
    owner: str
    model: str
    updated_at: datetime
    message_count: int
    archived: bool
    running: bool
    unread: int


class QueuedMessage(Struct, frozen=True):
    """A pending message; ``own`` if the caller may withdraw it."""

    id: int
    text: str
    own: bool


class SessionDetail(SessionRow, frozen=True, kw_only=True):
    """A conversation on the screen.

    ``elsewhere`` means that another surface answers what is said here; ``location`` says where it is as sentences.
    ``taken_from`` is the network from which it was taken over. ``context`` is the number of tokens of the last model
    call, of ``context_limit`` if that is known; ``effort`` and ``personality`` are those chosen for this conversation.
    While ``planning``, the agent only reads.
    """

    location: str
    elsewhere: bool
    taken_from: str
    queued: tuple[QueuedMessage, ...]
    context: int
    context_limit: int
    cost_microdollars: int
    effort: str
    personality: str
    planning: bool
    branches: int


class SessionPage(Struct, frozen=True):
    """A page of the list; ``next`` is where the next one begins, empty at the end."""

    sessions: list[SessionRow]
    next: str


class SessionListQuery(Struct, frozen=True):
    """Which conversations to list."""

    after: _Name = ""
    archived: bool = False
    source: _Name = ""
    owner: _Name | None = None


class TranscriptQuery(Struct, frozen=True):
    """Which messages to show: the last ones, those before a number, or those after one."""

    before: Annotated[int, Meta(ge=0, le=2**31)] = 0
    after: Annotated[int, Meta(ge=-1, le=2**31)] = -1
    limit: Annotated[int, Meta(ge=1, le=500)] = 60


class FileView(Struct, frozen=True, tag="file"):
    """A file of a message; without an ``id`` it can't be downloaded."""

    id: str
    name: str
    media_type: str


class FileRow(Struct, frozen=True, kw_only=True):
    """A file of a conversation; ``sent`` means that the agent made or sent it."""

    id: str
    name: str
    media_type: str
    size: int
    at: datetime
    sent: bool
    session_id: str
    session_title: str


class FilesQuery(Struct, frozen=True):
    """Query for files: of one conversation, or of all."""

    session: Annotated[str, Meta(max_length=64)] = ""


class UploadView(Struct, frozen=True):
    """A file that waits for its message."""

    id: str
    name: str
    media_type: str
    size: int


class UploadQuery(Struct, frozen=True):
    """The name of an uploaded file, and its type as the browser knows it."""

    name: Annotated[str, Meta(max_length=400)] = "file"
    type: Annotated[str, Meta(max_length=100)] = ""


class TranscriptionView(Struct, frozen=True):
    """The text of a recording; empty if nothing is said."""

    text: str


PartView = Text | FileView | Reasoning | ToolCall | ToolResult


class TranscriptMessage(Struct, frozen=True):
    """A message of the transcript."""

    seq: int
    role: Role
    at: datetime
    model: str
    author: str
    parts: tuple[PartView, ...]


class NoticeView(Struct, frozen=True):
    """A delivered message next to the transcript; ``after`` is the number of the message before it."""

    id: str
    after: int
    at: datetime
    text: str
    files: tuple[FileView, ...]


class MessagePage(Struct, frozen=True):
    """Messages, oldest first; ``more`` if there are earlier ones, ``turn_from`` is the first of a running turn.

    ``notices`` are all delivered messages of the conversation that are no part of its transcript.
    """

    messages: list[TranscriptMessage]
    more: bool
    turn_from: int | None
    notices: list[NoticeView]


class SearchQueryText(Struct, frozen=True):
    """Text to find in all messages; ``owner`` is a person, empty for the owner of the agent."""

    q: Annotated[str, Meta(min_length=1, max_length=500)]
    source: _Name = ""
    owner: _Name | None = None
    archived: bool | None = None


class SearchHitView(Struct, frozen=True):
    """A message that matches a search."""

    session_id: str
    title: str
    seq: int
    at: datetime
    snippet: str


class SessionEdit(Struct, frozen=True):
    """Changes to a conversation; an omitted value stays."""

    title: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    archived: bool | None = None


class SayRequest(Struct, frozen=True):
    """A message; with ``steer`` it joins the running turn. A repeated ``id`` counts once.

    ``files`` are the ids of uploads; with them the text may be empty.
    """

    text: Annotated[str, Meta(max_length=200_000)]
    id: _Id
    steer: bool = False
    files: Annotated[tuple[_Id, ...], Meta(max_length=20)] = ()


class BeginRequest(SayRequest, frozen=True):
    """The first message of a conversation; slash commands, for example for its model, run before it.

    The events of its turn go to ``stream`` from the first one on, if that is an open stream of this browser.
    """

    commands: Annotated[list[_CommandText], Meta(max_length=8)] = []
    stream: Annotated[str, Meta(max_length=64)] = ""


class BranchRequest(Struct, frozen=True):
    """A branch that begins with ``text`` instead of message ``seq``; without a text, one after its exchange."""

    seq: Annotated[int, Meta(ge=1, le=2**31)]
    text: Annotated[str, Meta(max_length=200_000)] = ""


class BranchView(Struct, frozen=True, kw_only=True):
    """A conversation in its tree of branches; it shares the messages of its parent up to ``parent_seq``."""

    id: str
    title: str
    parent_id: str
    parent_seq: int
    message_count: int
    updated_at: datetime
    archived: bool


class ExportQuery(Struct, frozen=True):
    """The format of an export."""

    format: Literal["markdown", "json", "jsonl"] = "markdown"


class OutputView(Struct, frozen=True):
    """The whole output of a tool, of which the transcript has only the beginning and the end."""

    text: str


class AnswerRequest(Struct, frozen=True):
    """An answer to a question or an approval; a ``reason`` says why an approval is refused."""

    text: Annotated[str, Meta(min_length=1, max_length=20_000)]
    reason: Annotated[str, Meta(max_length=2000)] = ""


class CommandRequest(Struct, frozen=True):
    """A slash command with its arguments."""

    text: _CommandText


class CommandReply(Struct, frozen=True):
    """Everything that a command has shown, and the conversation to show next; empty to stay."""

    shown: list[str]
    session_id: str = ""


class CompletionsQuery(Struct, frozen=True):
    """The beginning of a command line, or of a file name after ``@``; ``session`` is empty for a new conversation."""

    text: Annotated[str, Meta(max_length=1000)]
    session: _Name = ""


class ChoiceView(Struct, frozen=True):
    """A completion."""

    value: str
    help: str


class BegunSession(Struct, frozen=True):
    """A conversation that has begun."""

    session_id: str


class Done(Struct, frozen=True):
    """Nothing more to say."""

    done: bool = True


class StreamQuery(Struct, frozen=True):
    """A stream of events: its id, made by the browser, and its topics, separated by commas."""

    id: _Id
    topics: Annotated[str, Meta(max_length=8000)] = ""


class TopicsRequest(Struct, frozen=True):
    """The topics of a stream from now on; ``again`` are those whose state is sent once more."""

    topics: Annotated[list[_Topic], Meta(max_length=100)]
    again: Annotated[list[_Topic], Meta(max_length=100)] = []


_Time = Annotated[str, Meta(pattern=r"^([01]\d|2[0-3]):[0-5]\d$|^$")]
_Key = Annotated[str, Meta(min_length=16, max_length=200, pattern=r"^[\w-]+$")]


class PushRequest(Struct, frozen=True, kw_only=True):
    """A push subscription of this browser; quiet hours are local times of ``zone``, empty for none."""

    endpoint: Annotated[str, Meta(min_length=8, max_length=2000)]
    p256dh: _Key
    auth: _Key
    shows_content: bool = False
    quiet_from: _Time = ""
    quiet_to: _Time = ""
    zone: Annotated[str, Meta(max_length=64)] = ""


class PushView(Struct, frozen=True, kw_only=True):
    """Push notifications of this browser; without a ``key`` the server can't send any."""

    key: str
    subscribed: bool
    shows_content: bool
    quiet_from: str
    quiet_to: str


class HelloMessage(Struct, frozen=True, tag_field="topic", tag="hello"):
    """The first event of a stream; ``digest`` is that of the app's files."""

    digest: str


class SessionsMessage(Struct, frozen=True, tag_field="topic", tag="sessions"):
    """Conversations that are new or have changed, and the ids of those that are gone."""

    rows: list[SessionRow]
    gone: list[str]


class SessionMessage(Struct, frozen=True, tag_field="topic", tag="session"):
    """Events of a conversation: the running turn so far (``snapshot``), or what has happened since."""

    session: str
    snapshot: bool
    events: tuple[FeedEvent, ...]


class ChangedMessage(Struct, frozen=True, tag_field="topic", tag="changed"):
    """Something on a page has changed: load it again."""

    page: str


class DeliveredMessage(Struct, frozen=True, tag_field="topic", tag="delivered"):
    """A conversation with something new outside of turns: its transcript is to be read again."""

    session: str


class NoticeMessage(Struct, frozen=True, tag_field="topic", tag="notice"):
    """A notification: ``kind`` is ``asked``, ``answered``, ``delivered`` or ``pairing``, ``path`` the page to open."""

    kind: str
    session: str
    title: str
    text: str
    path: str


StreamMessage = HelloMessage | SessionsMessage | SessionMessage | ChangedMessage | DeliveredMessage | NoticeMessage
