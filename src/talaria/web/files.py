"""Files of conversations: uploads until they are sent, parts of messages, and downloads by id."""

import base64
import binascii
import hashlib
import mimetypes
import shutil
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from talaria.contracts.stores.sessions import Session
from talaria.core.errors import NotFound
from talaria.core.ids import SessionId, is_id, new_id
from talaria.core.messages import File, Image, Part, image_type
from talaria.settings.atomic_files import OWNER_ONLY_FILE, make_folder
from talaria.web.wire import FileRow, FileView, UploadView

_UPLOADS = "uploads"
_SENT_FOLDERS = ("sent", "replies")  # what `send_file` and delivery store
_MOST_LISTED = 300
_PICTURE_LIMIT = 5_000_000  # bytes; accepted by the common providers
_UPLOAD_LIFE = 2 * 86_400.0  # seconds for which an upload waits for its message
_LONGEST_NAME = 100
_DEFAULT_TYPE = "application/octet-stream"
_GONE = "This file is gone. Add it again."


class WebFiles:
    """Files below the media folder, in a folder per conversation; uploads wait in a folder per person."""

    def __init__(self, media: Path) -> None:
        self._media = media

    def stage(self, person: str, name: str, data: bytes) -> UploadView:
        """Store an upload until it is sent; its type is found from its content."""
        upload_id, safe = new_id(), make_safe_name(name)
        folder = self._get_staging_folder(person) / upload_id
        make_folder(folder)
        path = folder / safe
        path.touch(OWNER_ONLY_FILE)
        path.write_bytes(data)
        return UploadView(upload_id, safe, find_media_type(path), len(data))

    def find_upload(self, person: str, upload_id: str) -> Path:
        """Return an upload that waits, or raise `NotFound`."""
        return self._find_in(self._get_staging_folder(person), upload_id)

    def drop(self, person: str, upload_id: str) -> None:
        """Delete an upload that isn't sent."""
        shutil.rmtree(self.find_upload(person, upload_id).parent, ignore_errors=True)

    def attach(self, person: str, upload_ids: Iterable[str], session_id: SessionId) -> tuple[Part, ...]:
        """Move uploads to a conversation and return them as parts of a message; repeating it changes nothing."""
        return tuple(_make_part(self._move(person, one, session_id)) for one in upload_ids)

    def view(self, part: Image | File) -> FileView:
        """Return a file as the browser gets it; without an id if it isn't ours to show."""
        path = Path(part.source)
        name = part.name if isinstance(part, File) else path.name
        return FileView(self._make_id(path), name, part.media_type)

    def find(self, file_id: str) -> tuple[SessionId, Path]:
        """Return the conversation and the path of a file, or raise `NotFound`."""
        try:
            relative = base64.urlsafe_b64decode(file_id + "=" * (-len(file_id) % 4)).decode()
        except (binascii.Error, UnicodeDecodeError) as error:
            raise NotFound(_GONE) from error
        session_id, _, rest = relative.partition("/")
        if not is_id(session_id) or not rest or "\0" in rest:
            raise NotFound(_GONE)
        folder = (self._media / session_id).resolve()
        path = (folder / rest).resolve()
        if not path.is_relative_to(folder) or not path.is_file():
            raise NotFound(_GONE)
        return SessionId(session_id), path

    def list_paths(self, session_id: str = "") -> list[Path]:
        """Return the newest files of a conversation, or of all; their first folder is the conversation."""
        if session_id and not is_id(session_id):
            return []
        folders = [self._media / session_id] if session_id else self._media.glob("*")
        paths = [path for one in folders if is_id(one.name) for path in one.rglob("*") if path.is_file()]
        return sorted(paths, key=lambda path: path.stat().st_mtime, reverse=True)[:_MOST_LISTED]

    def describe(self, path: Path, session: Session) -> FileRow:
        """Return a file of a conversation for the list."""
        state = path.stat()
        return FileRow(
            id=self._make_id(path),
            name=path.name,
            media_type=find_media_type(path),
            size=state.st_size,
            at=datetime.fromtimestamp(state.st_mtime, UTC),
            sent=path.relative_to(self._media).parts[1] in _SENT_FOLDERS,
            session_id=session.id,
            session_title=session.title,
        )

    def session_of(self, path: Path) -> SessionId:
        """Return the conversation of a listed file."""
        return SessionId(path.relative_to(self._media).parts[0])

    def clean(self) -> None:
        """Delete uploads that were never sent."""
        oldest = time.time() - _UPLOAD_LIFE
        for folder in (self._media / _UPLOADS).glob("*/*"):
            if folder.stat().st_mtime < oldest:
                shutil.rmtree(folder, ignore_errors=True)

    def _get_staging_folder(self, person: str) -> Path:
        return self._media / _UPLOADS / hashlib.sha256(person.encode()).hexdigest()[:16]

    def _move(self, person: str, upload_id: str, session_id: SessionId) -> Path:
        target = self._media / session_id / _UPLOADS
        try:
            return self._find_in(target, upload_id)
        except NotFound:
            source = self.find_upload(person, upload_id)
        make_folder(target)
        source.parent.replace(target / upload_id)
        return target / upload_id / source.name

    def _find_in(self, folder: Path, upload_id: str) -> Path:
        if not is_id(upload_id) or not (folder / upload_id).is_dir():
            raise NotFound(_GONE)
        return next((folder / upload_id).iterdir())

    def _make_id(self, path: Path) -> str:
        if not path.is_relative_to(self._media):
            return ""
        return base64.urlsafe_b64encode(path.relative_to(self._media).as_posix().encode()).decode().rstrip("=")


def make_safe_name(name: str) -> str:
    """Return a file name without folders and control characters."""
    base = name.replace("\\", "/").rpartition("/")[2]
    text = "".join(one for one in base if one.isprintable()).strip(". ")
    stem, dot, suffix = text.rpartition(".")
    return f"{stem[: _LONGEST_NAME - 12]}{dot}{suffix[:11]}" if len(text) > _LONGEST_NAME else text or "file"


def find_media_type(path: Path) -> str:
    """Return the type of a file: that of a picture by its content, any other by its name."""
    with path.open("rb") as opened:
        picture = image_type(opened.read(16))
    guessed = mimetypes.guess_type(path.name)[0] or _DEFAULT_TYPE
    return picture or (_DEFAULT_TYPE if guessed.startswith("image/") else guessed)


def _make_part(path: Path) -> Image | File:
    """Return a picture that models accept as an image, and everything else as a file."""
    media_type = find_media_type(path)
    if media_type.startswith("image/") and path.stat().st_size <= _PICTURE_LIMIT:
        return Image(str(path), media_type)
    return File(str(path), path.name, media_type)
