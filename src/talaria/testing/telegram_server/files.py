"""Files of people and bots, and their wire form."""

import struct
import zlib
from pathlib import PurePosixPath
from typing import Literal

from msgspec import Struct

from talaria.testing.telegram_server.parts import Wire
from talaria.testing.telegram_server.refusals import Refusal, bad_request

Kind = Literal["photo", "document", "voice", "sticker"]

LARGEST_UPLOAD = 50 * 1024 * 1024
LARGEST_PHOTO = 10 * 1024 * 1024
LARGEST_DOWNLOAD = 20 * 1024 * 1024

_PICTURES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF8", b"RIFF", b"BM")
_MEDIA_TYPES = {".png": "image/png", ".jpg": "image/jpeg", ".ogg": "audio/ogg", ".webp": "image/webp"}
_MEDIA_TYPES |= {".pdf": "application/pdf", ".txt": "text/plain", ".json": "application/json", ".csv": "text/csv"}


def picture(width: int = 320, height: int = 200) -> bytes:
    """Return a PNG of that size, all of one colour."""
    rows = zlib.compress((b"\x00" + b"\x40\x80\xc0" * width) * height)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in ((b"IHDR", header), (b"IDAT", rows), (b"IEND", b""))
    )


class Upload(Struct, frozen=True):
    """A file as it is sent: by a request, or by a person in a test."""

    data: bytes
    name: str = ""
    media_type: str = ""


class Photo(Struct, frozen=True):
    """A picture that a person sends."""

    data: bytes = b""

    def upload(self) -> Upload:
        """Return it as a file; without data it is a small PNG."""
        return Upload(self.data or picture(), "photo.png", "image/png")


class Document(Struct, frozen=True):
    """A file that a person sends."""

    data: bytes
    name: str = "notes.txt"
    media_type: str = ""

    def upload(self) -> Upload:
        """Return it as a file."""
        return Upload(self.data, self.name, self.media_type)


class Voice(Struct, frozen=True):
    """A voice message that a person sends; ``duration`` is in seconds."""

    data: bytes = b"OggS\x00\x02 spoken words"
    duration: int = 2

    def upload(self) -> Upload:
        """Return it as a file."""
        return Upload(self.data, "voice.ogg", "audio/ogg")


class Sticker(Struct, frozen=True):
    """A sticker that a person sends."""

    emoji: str = "👍"
    data: bytes = b"RIFF\x00\x00\x00\x00WEBPVP8 "

    def upload(self) -> Upload:
        """Return it as a file."""
        return Upload(self.data, "sticker.webp", "image/webp")


Sent = Photo | Document | Voice | Sticker


class StoredFile(Struct, frozen=True, kw_only=True):
    """A file stored at Telegram."""

    id: str
    unique_id: str
    kind: Kind
    path: str
    data: bytes
    name: str = ""
    media_type: str = ""

    def wire(self) -> Wire:
        """Return the fields that all file descriptions have."""
        return {"file_id": self.id, "file_unique_id": self.unique_id, "file_size": len(self.data)}


class Media(Struct, frozen=True, kw_only=True):
    """The file of a message: its content, and its field on the wire."""

    kind: Kind
    file: StoredFile
    field: object

    @property
    def data(self) -> bytes:
        """The bytes of the file."""
        return self.file.data


class Files:
    """All files by id, and the ways to send one."""

    def __init__(self) -> None:
        self._files: dict[str, StoredFile] = {}

    def find(self, file_id: str) -> StoredFile | None:
        """Return a file by its id."""
        return self._files.get(file_id)

    def at(self, path: str) -> StoredFile | None:
        """Return the file that `getFile` gave a path for."""
        return next((file for file in self._files.values() if file.path == path), None)

    def store(self, kind: Kind, upload: Upload) -> StoredFile:
        """Store a file and give it an id; the same sticker keeps its id."""
        number = len(self._files) + 1
        suffix = PurePosixPath(upload.name).suffix.lower()
        file = StoredFile(
            id=f"Ag{kind[:2].upper()}AC{number:06}{zlib.crc32(upload.data):08x}",
            unique_id=f"AQAD{zlib.crc32(upload.data):08x}{'' if kind == 'sticker' else number}",
            kind=kind,
            path=f"{kind}s/file_{number}{suffix}",
            data=upload.data,
            name=upload.name,
            media_type=upload.media_type or _MEDIA_TYPES.get(suffix, "application/octet-stream"),
        )
        self._files[file.id] = file
        return file

    def resolve(self, kind: Kind, value: Upload | str) -> StoredFile:
        """Return the file that a request means, by upload or by id, or refuse it."""
        if isinstance(value, Upload):
            return self._check_upload(kind, value)
        if value.startswith(("http://", "https://")):
            raise bad_request("failed to get HTTP URL content")
        file = self.find(value)
        if file is None:
            raise bad_request("wrong file identifier/HTTP URL specified")
        if file.kind != kind:
            raise bad_request(f"can't use file of type {file.kind.title()} as {kind.title()}")
        return file

    def media(self, kind: Kind, file: StoredFile, *, duration: int = 0, emoji: str = "") -> Media:
        """Describe a file as the file of a message."""
        match kind:
            case "photo":
                small = self.store("photo", Upload(picture(90, 56), "thumbnail.png"))
                width, height = _read_size(file.data)
                sizes = [small.wire() | {"width": 90, "height": 56}, file.wire() | {"width": width, "height": height}]
                return Media(kind=kind, file=file, field=sizes)
            case "document":
                described = file.wire() | {"mime_type": file.media_type}
                return Media(kind=kind, file=file, field=described | ({"file_name": file.name} if file.name else {}))
            case "voice":
                return Media(
                    kind=kind, file=file, field=file.wire() | {"duration": duration, "mime_type": file.media_type}
                )
            case "sticker":
                shape = {"type": "regular", "width": 512, "height": 512, "is_animated": False, "is_video": False}
                return Media(kind=kind, file=file, field=file.wire() | shape | ({"emoji": emoji} if emoji else {}))

    def _check_upload(self, kind: Kind, upload: Upload) -> StoredFile:
        if not upload.data:
            raise bad_request("file must be non-empty")
        if len(upload.data) > LARGEST_UPLOAD:
            raise Refusal(413, "Request Entity Too Large")
        if kind == "photo" and len(upload.data) > LARGEST_PHOTO:
            raise bad_request("file is too big for a photo; the maximum size is 10485760 bytes")
        if kind == "photo" and not upload.data.startswith(_PICTURES):
            raise bad_request("IMAGE_PROCESS_FAILED")
        return self.store(kind, upload)


def _read_size(data: bytes) -> tuple[int, int]:
    """Return width and height, read from a PNG; of other pictures something likely."""
    if data.startswith(_PICTURES[0]) and len(data) >= 24:
        width, height = struct.unpack(">II", data[16:24])
        return width, height
    return 800, 600
