"""Files: sent by upload or by id, alone or in an album, and downloaded."""

from typing import Any

from talaria.testing.telegram_server.checks import Parameters
from talaria.testing.telegram_server.files import LARGEST_DOWNLOAD, Kind, Upload
from talaria.testing.telegram_server.methods.base import (
    AnySending,
    Captioned,
    Method,
    Sending,
    author_of,
    destination,
    post,
    read_caption,
)
from talaria.testing.telegram_server.parts import InputMedia, Wire
from talaria.testing.telegram_server.refusals import bad_request
from talaria.testing.telegram_server.world import World

_LARGEST_ALBUM = 10


class SendPhoto(Captioned, frozen=True, kw_only=True):
    """A picture."""

    photo: Upload | str
    show_caption_above_media: bool = False
    has_spoiler: bool = False


class SendDocument(Captioned, frozen=True, kw_only=True):
    """A file."""

    document: Upload | str
    thumbnail: Upload | str | None = None
    disable_content_type_detection: bool = False


class SendVoice(Captioned, frozen=True, kw_only=True):
    """A voice message; ``duration`` is in seconds."""

    voice: Upload | str
    duration: int = 0


class SendSticker(Sending, frozen=True, kw_only=True):
    """A sticker."""

    sticker: Upload | str
    emoji: str = ""


class SendMediaGroup(AnySending, frozen=True, kw_only=True):
    """An album."""

    media: list[InputMedia]
    attached: dict[str, Upload]

    def file(self, one: InputMedia) -> Upload | str:
        """Return the file that an item means: one of this request, or the id of a former one."""
        if not one.media.startswith("attach://"):
            return one.media
        name = one.media.removeprefix("attach://")
        if name not in self.attached:
            raise bad_request(f"there is no file with the name {name} in the request")
        return self.attached[name]


class GetFile(Parameters, frozen=True, kw_only=True):
    """Which file."""

    file_id: str


def send_photo(world: World, parameters: SendPhoto) -> Wire:
    """Post a picture."""
    return _send(world, parameters, "photo", parameters.photo)


def send_document(world: World, parameters: SendDocument) -> Wire:
    """Post a file."""
    return _send(world, parameters, "document", parameters.document)


def send_voice(world: World, parameters: SendVoice) -> Wire:
    """Post a voice message."""
    return _send(world, parameters, "voice", parameters.voice, duration=parameters.duration)


def send_sticker(world: World, parameters: SendSticker) -> Wire:
    """Post a sticker."""
    return _send(world, parameters, "sticker", parameters.sticker, emoji=parameters.emoji)


def send_media_group(world: World, parameters: SendMediaGroup) -> list[Wire]:
    """Post an album of two to ten files of one kind."""
    world.writable(parameters.chat_id)
    if not 2 <= len(parameters.media) <= _LARGEST_ALBUM:
        raise bad_request("media must include 2-10 items")
    if len({one.type for one in parameters.media}) != 1:
        raise bad_request("documents can't be mixed with other media types")
    files = world.office.files
    read = [(files.given(one.type, parameters.file(one)), one.type, *read_caption(one)) for one in parameters.media]
    room, place = destination(world, parameters)
    album = f"14{len(room.log):015}"
    return [
        room.add(
            author_of(world, room),
            by_bot=True,
            media=files.media(kind, file),
            text=text,
            entities=entities,
            album=album,
            **place,
        ).wire()
        for file, kind, text, entities in read
    ]


def get_file(world: World, parameters: GetFile) -> Wire:
    """Return where a file can be fetched."""
    file = world.office.files.find(parameters.file_id)
    if file is None:
        raise bad_request("invalid file_id")
    if len(file.data) > LARGEST_DOWNLOAD:
        raise bad_request("file is too big")
    return file.wire() | {"file_path": file.path}


def _send(world: World, parameters: Sending, kind: Kind, given: Upload | str, **more: Any) -> Wire:
    world.writable(parameters.chat_id)
    files = world.office.files
    text, entities = read_caption(parameters) if isinstance(parameters, Captioned) else ("", ())
    media = files.media(kind, files.given(kind, given), **more)
    return post(world, parameters, media=media, text=text, entities=entities).wire()


MEDIA = [
    Method("sendPhoto", SendPhoto, send_photo),
    Method("sendDocument", SendDocument, send_document),
    Method("sendVoice", SendVoice, send_voice),
    Method("sendSticker", SendSticker, send_sticker),
    Method("sendMediaGroup", SendMediaGroup, send_media_group),
    Method("getFile", GetFile, get_file),
]
