"""Writer of imported sessions: each with its messages in one transaction, once, however often it is repeated."""

import base64
import binascii
import hashlib
import zlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from talaria.access.policy import Access
from talaria.contracts.imports import ForeignAgent, ForeignSession, ForeignTranscript, ImportItem
from talaria.contracts.store import Database, Transaction
from talaria.contracts.stores.sessions import NewSession, Session, SessionChanges
from talaria.contracts.turns import Summary
from talaria.contracts.values import NamedValue
from talaria.core.errors import Refused
from talaria.core.ids import SessionId, derive_id
from talaria.core.messages import File, Image, Message, Part, Text, image_type
from talaria.runtime.open_session import WORKSPACE
from talaria.sessions.keys import Ownership, build_session_key, is_shared, resolve_ownership
from talaria.sessions.model_context import SUMMARY, StoredSummary
from talaria.settings.atomic_files import OWNER_ONLY_FILE, make_folder
from talaria.settings.model import Settings
from talaria.settings.sections.chats import ChatNetworkSettings
from talaria.tools.workspace import LocalWorkspace

_BATCH_MESSAGES = 2_000  # a commit waits for the disk; this many messages take about as long
_MAX_FILE_BYTES = 20_000_000
_MAX_TITLE = 200
_MAX_MESSAGES = (1 << 24) - 1  # positions in a session have 24 bits
_encode = msgspec.json.Encoder().encode


class ImportRecord(Struct, frozen=True, omit_defaults=True):
    """Record of an earlier import: the id of the result, and for a session how far it was imported."""

    id: str
    version: str = ""
    messages: int = 0
    digest: int = 0
    title: str = ""


IMPORTED = NamedValue("imported", ImportRecord)  # by agent, kind and key in the other home


def build_record_key(agent: str, kind: str, key: str) -> str:
    """Return the key of an import record."""
    return f"{agent}:{kind}:{key}"


class _Prepared(Struct, frozen=True):
    """A session that is ready to be written, with its images in files.

    ``digest`` is that of all messages, ``earlier_digest`` that of those which an earlier import had.
    """

    session: ForeignSession
    id: SessionId
    transcript: ForeignTranscript
    digest: int
    earlier_digest: int


class SessionWriter:
    """Writes the sessions of one home, parents first, a few in each transaction.

    A session and its record are written together: after a crash the next import continues with the first that is
    missing. Image files are written before their session, under names that a repetition gives them again.
    """

    def __init__(
        self, agent_name: str, agent: ForeignAgent, database: Database, settings: Settings, media: Path
    ) -> None:
        self._name = agent_name
        self._agent = agent
        self._database = database
        self._settings = settings
        self._files = MediaFiles(media, agent.home)

    def write(self, sessions: Iterable[ForeignSession], on_progress: Callable[[int], None]) -> list[ImportItem]:
        """Import the sessions and return what happened to each."""
        ordered = order_by_parent(sessions)
        records = self._database.read(lambda tx: IMPORTED.items(tx, build_record_key(self._name, "session", "")))
        items: list[ImportItem] = []
        batch: list[_Prepared] = []
        waiting = 0
        for session in ordered:
            record = records.get(build_record_key(self._name, "session", session.key))
            if record is not None and record.version == session.version:
                items.append(ImportItem("sessions", describe(session), "unchanged"))
                on_progress(session.message_count)
                continue
            try:
                batch.append(self._prepare(session, record))
            except Refused as error:
                items.append(ImportItem("sessions", describe(session), "skipped", str(error)))
                on_progress(session.message_count)
                continue
            waiting += len(batch[-1].transcript.messages)
            if waiting >= _BATCH_MESSAGES:
                items += self._flush(batch, on_progress)
                batch, waiting = [], 0
        return [*items, *self._flush(batch, on_progress)]

    def _prepare(self, session: ForeignSession, record: ImportRecord | None) -> _Prepared:
        transcript = self._agent.read_transcript(session)
        if not transcript.messages:
            raise Refused("It has no messages.")
        if len(transcript.messages) > _MAX_MESSAGES:
            raise Refused(f"It has more than {_MAX_MESSAGES:,} messages.")
        session_id = make_session_id(self._name, session)
        digest = digest_of(transcript.messages)
        earlier_digest = digest_of(transcript.messages[: record.messages]) if record else 0
        problems = list(transcript.problems)
        messages = [self._files.localize(message, session_id, problems) for message in transcript.messages]
        localized = structs.replace(transcript, messages=messages, problems=tuple(problems))
        return _Prepared(session, session_id, localized, digest, earlier_digest)

    def _flush(self, batch: Sequence[_Prepared], on_progress: Callable[[int], None]) -> list[ImportItem]:
        if not batch:
            return []
        items = self._database.write(lambda tx: [self._write_one(tx, one) for one in batch])
        on_progress(sum(one.session.message_count for one in batch))
        return items

    def _write_one(self, tx: Transaction, one: _Prepared) -> ImportItem:
        key = build_record_key(self._name, "session", one.session.key)
        record = IMPORTED.get(tx, key)
        item = partial(ImportItem, "sessions", describe(one.session))
        present = tx.sessions.get(one.id)
        if record is None:
            if present is None:
                self._create(tx, one)
            outcome = item("imported", " ".join(one.transcript.problems))
        elif present is None:
            return item("skipped", "You deleted it here after an earlier import.")
        else:
            outcome = self._continue(tx, one, record, present)
        if outcome.outcome != "skipped":
            self._bind(tx, one)
            IMPORTED.write(tx, key, _make_record(one))
        return outcome

    def _create(self, tx: Transaction, one: _Prepared) -> None:
        session, transcript = one.session, one.transcript
        ownership = self._find_ownership(session)
        parent_id, shared = self._find_parent(tx, one)
        tx.sessions.create(
            NewSession(
                id=one.id,
                source=session.source,
                title=_cut_title(session.title),
                owner=ownership.owner,
                audience=ownership.audience,
                model=session.model,
                parent_id=parent_id,
                parent_seq=shared,
                created_at=session.created_at,
            )
        )
        if own := transcript.messages[shared:]:
            tx.messages.append(one.id, own)
        if session.usage != type(session.usage)() or session.turns:
            has_price = bool(session.usage.cost_microdollars)
            tx.usage.add(one.id, session.usage, turns=session.turns, has_price=has_price, at=session.updated_at)
        self._write_summary(tx, one)
        if session.folder and Path(session.folder).is_dir():
            WORKSPACE.write(tx, one.id, LocalWorkspace(Path(session.folder), {}).snapshot())
        archived = True if session.is_archived else None
        tx.sessions.update(one.id, SessionChanges(updated_at=session.updated_at, archived=archived))

    def _continue(self, tx: Transaction, one: _Prepared, record: ImportRecord, present: Session) -> ImportItem:
        """Add what the other agent has added since, unless the session went on here, too."""
        item = partial(ImportItem, "sessions", describe(one.session))
        messages = one.transcript.messages
        if present.title == record.title and present.title != (title := _cut_title(one.session.title)):
            tx.sessions.update(one.id, SessionChanges(title=title))
        if len(messages) == record.messages and one.digest == record.digest:
            return item("unchanged")
        if len(messages) <= record.messages or one.earlier_digest != record.digest:
            return item("skipped", f"{self._agent.title} has rewritten it since the earlier import.")
        if present.message_count != record.messages:
            return item("skipped", f"It was continued both here and in {self._agent.title}.")
        tx.messages.append(one.id, messages[record.messages :])
        self._write_summary(tx, one)
        tx.sessions.update(one.id, SessionChanges(updated_at=one.session.updated_at))
        return item("changed", f"{len(messages) - record.messages} new messages were added.")

    def _write_summary(self, tx: Transaction, one: _Prepared) -> None:
        summary = one.transcript.summary
        if summary is not None and summary.upto:
            SUMMARY.write(tx, one.id, StoredSummary(Summary(summary.upto, summary.text)))

    def _find_parent(self, tx: Transaction, one: _Prepared) -> tuple[SessionId | None, int]:
        if not one.session.parent:
            return None, 0
        record = IMPORTED.get(tx, build_record_key(self._name, "session", one.session.parent))
        parent = tx.sessions.get(SessionId(record.id)) if record else None
        if parent is None:
            return None, 0
        return parent.id, one.transcript.shared if one.transcript.shared <= parent.message_count else 0

    def _find_ownership(self, session: ForeignSession) -> Ownership:
        address = session.address
        if address is None:
            return Ownership("", "")
        access = Access(self._settings)
        if not address.user_id:
            return resolve_ownership(address, "", shared=address.chat_type != "private")
        is_owner = access.is_owner(address.platform, address.user_id)
        person = "" if is_owner else access.people.person(address.platform, (address.user_id,))
        network = self._get_network_settings(address.platform)
        shared = is_shared(
            address,
            group_sessions_per_user=network.group_sessions_per_user,
            thread_sessions_per_user=network.thread_sessions_per_user,
        )
        return resolve_ownership(address, person, shared=shared)

    def _bind(self, tx: Transaction, one: _Prepared) -> None:
        """Continue the chat of a session with it, unless the chat has a session here already."""
        address = one.session.address
        if address is None or not one.session.is_current:
            return
        network = self._get_network_settings(address.platform)
        key = build_session_key(
            address,
            group_sessions_per_user=network.group_sessions_per_user,
            thread_sessions_per_user=network.thread_sessions_per_user,
        )
        if tx.bindings.get(key) is None:
            tx.bindings.bind(key, one.id, address)

    def _get_network_settings(self, platform: str) -> ChatNetworkSettings:
        return self._settings.platforms.get(platform, ChatNetworkSettings())


class MediaFiles:
    """Copies images and files of the other home into the profile, so that sessions don't depend on that home."""

    def __init__(self, media: Path, home: Path) -> None:
        self._media = media
        self._home = home

    def localize(self, message: Message, session_id: SessionId, problems: list[str]) -> Message:
        """Return a message whose images are files of the profile, or addresses on the web."""
        if not any(isinstance(part, Image | File) for part in message.parts):
            return message
        parts = tuple(self._localize_part(part, session_id, problems) for part in message.parts)
        return structs.replace(message, parts=parts)

    def _localize_part(self, part: Part, session_id: SessionId, problems: list[str]) -> Part:
        if not isinstance(part, Image | File) or part.source.startswith(("http://", "https://")):
            return part
        kind = "image" if isinstance(part, Image) else "file"
        try:
            data = _decode_data_url(part.source) if part.source.startswith("data:") else self._read(part.source)
            media_type = _require_image(data) if isinstance(part, Image) else part.media_type
        except (OSError, ValueError, Refused) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            problems.append(f"An {kind} is missing: {reason}." if kind == "image" else f"A file is missing: {reason}.")
            return Text(f"[{kind} not imported: {reason}]")
        path = self._write(data, part, media_type, session_id)
        return structs.replace(part, source=str(path), media_type=media_type)

    def _read(self, source: str) -> bytes:
        path = Path(source.removeprefix("file://")).expanduser()
        path = path if path.is_absolute() else self._home / path
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise Refused(f"it has more than {_MAX_FILE_BYTES:,} bytes")
        return path.read_bytes()

    def _write(self, data: bytes, part: Image | File, media_type: str, session_id: SessionId) -> Path:
        folder = self._media / session_id
        suffix = Path(part.name).suffix if isinstance(part, File) else f".{media_type.partition('/')[2]}"
        path = folder / f"{hashlib.sha256(data).hexdigest()[:24]}{suffix}"
        if not path.exists():
            make_folder(folder)
            draft = path.with_suffix(".part")
            draft.touch(OWNER_ONLY_FILE)
            draft.write_bytes(data)
            draft.replace(path)
        return path


def order_by_parent(sessions: Iterable[ForeignSession]) -> list[ForeignSession]:
    """Return the sessions, oldest first, each after its parent."""
    waiting = {one.key: one for one in sorted(sessions, key=lambda one: (one.created_at, one.key))}
    ordered: list[ForeignSession] = []
    while waiting:
        chain = [next(iter(waiting.values()))]
        while (parent := waiting.get(chain[-1].parent)) is not None and parent not in chain:
            chain.append(parent)
        ordered += [waiting.pop(one.key) for one in reversed(chain)]
    return ordered


def make_session_id(agent: str, session: ForeignSession) -> SessionId:
    """Return the id of an imported session, the same at each import."""
    seed = hashlib.sha256(f"{agent}:{session.key}".encode("utf-8", "surrogatepass")).digest()
    return SessionId(derive_id(max(0.0, session.created_at.timestamp()), seed))


def describe(session: ForeignSession) -> str:
    """Return the name of a session in reports."""
    return _cut_title(session.title) or session.key


def digest_of(messages: Sequence[Message]) -> int:
    """Return a digest that differs if a message differs."""
    digest = 0
    for message in messages:
        digest = zlib.crc32(_encode(message), digest)
    return digest


def _make_record(one: _Prepared) -> ImportRecord:
    return ImportRecord(
        id=one.id,
        version=one.session.version,
        messages=len(one.transcript.messages),
        digest=one.digest,
        title=_cut_title(one.session.title),
    )


def _cut_title(title: str) -> str:
    words = " ".join(title.split())
    return words if len(words) <= _MAX_TITLE else f"{words[: _MAX_TITLE - 1]}…"


def _require_image(data: bytes) -> str:
    media_type = image_type(data[:16])
    if media_type is None:
        raise Refused("its format isn't PNG, JPEG, GIF or WebP")
    return media_type


def _decode_data_url(url: str) -> bytes:
    head, comma, text = url.partition(",")
    if not comma or not head.endswith(";base64"):
        raise Refused("its data isn't base64")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Refused("its data isn't valid base64") from error
