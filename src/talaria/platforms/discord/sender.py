"""Post, edit and mark messages on Discord, with files and choices."""

import asyncio
import base64
import binascii
import io
import struct
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path, PurePath

import msgspec
from discord import File as Sent
from discord.http import MultipartParameters
from msgspec import Struct

from talaria.contracts.platform import Content, MessageRef
from talaria.core.addresses import Address
from talaria.core.errors import Rejected
from talaria.core.messages import File, Image
from talaria.platforms.content import safe_file_name
from talaria.platforms.discord.client import CANNOT_REPLY, INVALID_FORM, UNKNOWN_EMOJI, ApiClient, Refusal
from talaria.platforms.discord.outgoing import (
    MOST_FILES,
    TEXT_LIMIT,
    Payload,
    build_components,
    format_text,
    make_nonce,
)
from talaria.platforms.discord.settings import DiscordSettings
from talaria.platforms.discord.wire import Message, parse

_SAMPLE_RATE = 48_000  # of Opus, whatever was recorded
_MOST_BARS = 64
_PAGE_HEADER = struct.Struct("<4sBBqIIIB")
_NO_MENTIONS: Payload = {"parse": [], "replied_user": False}  # mentions in a text don't notify anyone
_VOICE_FLAG = 1 << 13
_FALLBACK_REACTION = "👀"
_MOST_CACHED_REACTIONS = 2000


class VoiceNote(Struct, frozen=True):
    """Properties of a voice note that Discord requires."""

    seconds: float
    waveform: str


def read_voice(data: bytes) -> VoiceNote | None:
    """Return the properties of a voice note; ``None`` for anything but Opus in Ogg.

    The waveform is estimated: a louder packet takes more bytes.
    """
    if b"OpusHead" not in data[:200]:
        return None
    sizes: list[int] = []
    offset, last_granule = 0, 0
    while offset + _PAGE_HEADER.size <= len(data):
        magic, _, _, position, _, _, _, segments = _PAGE_HEADER.unpack_from(data, offset)
        if magic != b"OggS":
            break
        lacing = data[offset + _PAGE_HEADER.size : offset + _PAGE_HEADER.size + segments]
        sizes += _split_packet_sizes(lacing)
        last_granule = max(last_granule, position)
        offset += _PAGE_HEADER.size + segments + sum(lacing)
    audio_packets = sizes[2:]  # the first two packets are headers
    if not audio_packets or last_granule <= 0:
        return None
    return VoiceNote(round(last_granule / _SAMPLE_RATE, 3), _build_waveform(audio_packets))


def _split_packet_sizes(lacing: bytes) -> list[int]:
    """Return the sizes of the packets on a page: each continues while its segments are full."""
    sizes, size = [], 0
    for part in lacing:
        size += part
        if part < 255:
            sizes.append(size)
            size = 0
    return [*sizes, size] if size else sizes


def _build_waveform(audio_packets: list[int]) -> str:
    bars = min(_MOST_BARS, len(audio_packets))
    means = []
    for bar in range(bars):
        part = audio_packets[bar * len(audio_packets) // bars : (bar + 1) * len(audio_packets) // bars]
        means.append(sum(part) / len(part))
    loudest = max(means) or 1.0
    return base64.b64encode(bytes(round(255 * mean / loudest) for mean in means)).decode()


class OutgoingFile(Struct, frozen=True):
    """A file ready to send; a voice note is sent alone."""

    name: str
    data: bytes
    voice: VoiceNote | None = None

    def to_discord_file(self) -> Sent:
        """Return it in the library's form."""
        return Sent(io.BytesIO(self.data), filename=self.name)


def read_outgoing_file(file: File | Image, limit: int) -> OutgoingFile:
    """Read a file, or raise `Rejected` if Discord wouldn't accept it."""
    data = _read_bytes(file.source, limit)
    name = _choose_file_name(file)
    if not data:
        raise Rejected(f"{name} is empty, and Discord doesn't accept empty files")
    return OutgoingFile(name, data, read_voice(data) if file.media_type.startswith("audio/") else None)


def is_remote(file: File | Image) -> bool:
    """Return whether a file is on the web, where Discord finds it by its URL."""
    return file.source.startswith(("http://", "https://"))


def _choose_file_name(file: File | Image) -> str:
    if isinstance(file, File) and file.name:
        return safe_file_name(file.name)
    if file.source.startswith("data:"):
        return f"picture.{file.media_type.rpartition('/')[2]}"
    return safe_file_name(PurePath(file.source).name)


def _read_bytes(source: str, limit: int) -> bytes:
    try:
        if source.startswith("data:"):
            data = base64.b64decode(source.partition(",")[2], validate=True)
            _check_size(len(data), limit)
            return data
        path = Path(source.removeprefix("file://"))
        _check_size(path.stat().st_size, limit)
        return path.read_bytes()
    except (OSError, binascii.Error) as error:
        raise Rejected(f"can't read a file: {error}") from error


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        raise Rejected(f"the file has {size / 1024**2:.1f} MB; Discord accepts {limit / 1024**2:g} MB")


class MessagePoster:
    """The bot's messages."""

    def __init__(self, client: ApiClient, settings: DiscordSettings) -> None:
        self._client = client
        self._settings = settings
        self._own_reactions: OrderedDict[tuple[str, str], tuple[str, ...]] = OrderedDict()

    async def send(self, to: Address, content: Content, key: str) -> MessageRef:
        """Post a text with up to ten files; further ones and voice notes follow.

        Everything is checked before the first message is sent. Returns the first.
        """
        channel = channel_id_of(to)
        rows = build_components(content.buttons)
        limit = self._settings.file_limit
        uploads = [
            await asyncio.to_thread(read_outgoing_file, file, limit) for file in content.files if not is_remote(file)
        ]
        first, *others = _split_into_messages(_build_message_text(content), uploads)
        if rows:
            first[0]["components"] = rows
        if content.reply_to.isdecimal():
            first[0]["message_reference"] = {"message_id": content.reply_to, "fail_if_not_exists": False}
        posted = await self._post(channel, first[0], first[1], make_nonce(key, 0))
        for part, (payload, files) in enumerate(others, 1):
            await self._post(channel, payload, files, make_nonce(key, part))
        return MessageRef(to, posted)

    async def edit(self, ref: MessageRef, content: Content) -> None:
        """Replace the text and the choices of a message of ours."""
        channel, message = channel_id_of(ref.address), message_id_of(ref)
        payload = {
            "content": format_text(content.text),
            "components": build_components(content.buttons),
            "allowed_mentions": _NO_MENTIONS,
        }
        params = MultipartParameters(payload=payload, multipart=None, files=None)
        await self._client.ask(lambda api: api.edit_message(channel, message, params=params))

    async def react(self, ref: MessageRef, emoji: str) -> None:
        """Replace our mark on a message, or remove it; an emoji unknown to Discord is ignored."""
        channel, message = channel_id_of(ref.address), message_id_of(ref)
        chosen = emoji
        current = await self._get_own_reactions(channel, message)
        if chosen and chosen not in current:
            try:
                await self._client.ask(lambda api: api.add_reaction(channel, message, chosen))
            except Refusal as refusal:
                if refusal.code != UNKNOWN_EMOJI:
                    raise
                chosen = _FALLBACK_REACTION
                await self._client.ask(lambda api: api.add_reaction(channel, message, chosen))
        for reaction in current:
            if reaction != chosen:
                with suppress(Refusal):  # it is already gone
                    await self._remove_reaction(channel, message, reaction)
        self._own_reactions[channel, message] = (chosen,) if chosen else ()
        if len(self._own_reactions) > _MOST_CACHED_REACTIONS:
            self._own_reactions.popitem(last=False)

    async def _remove_reaction(self, channel: str, message: str, reaction: str) -> None:
        await self._client.ask(lambda api: api.remove_own_reaction(channel, message, reaction))

    async def _get_own_reactions(self, channel: str, message: str) -> tuple[str, ...]:
        cached = self._own_reactions.get((channel, message))
        if cached is not None:
            return cached
        found = parse(await self._client.ask(lambda api: api.get_message(channel, message)), Message)
        return tuple(one.emoji.name for one in found.reactions if one.me and one.emoji.name and not one.emoji.id)

    async def _post(self, channel: str, payload: Payload, uploads: Sequence[OutgoingFile], key: str) -> str:
        payload |= {"nonce": key, "enforce_nonce": True, "allowed_mentions": _NO_MENTIONS}
        try:
            return await self._send(channel, payload, uploads)
        except Refusal as refusal:
            if payload.get("flags"):  # voice notes may be forbidden where files are not
                del payload["flags"]
                payload |= _build_attachments_payload(uploads)
            elif "message_reference" in payload and refusal.code in (INVALID_FORM, CANNOT_REPLY):
                del payload["message_reference"]  # better without the reference than not at all
            else:
                raise
        return await self._send(channel, payload, uploads)

    async def _send(self, channel: str, payload: Payload, uploads: Sequence[OutgoingFile]) -> str:
        if not uploads:
            params = MultipartParameters(payload=payload, multipart=None, files=None)
            return str((await self._client.ask(lambda api: api.send_message(channel, params=params)))["id"])
        files = [upload.to_discord_file() for upload in uploads]
        form = [{"name": "payload_json", "value": msgspec.json.encode(payload).decode()}]
        form += [
            {"name": f"files[{index}]", "value": one.fp, "filename": one.filename}  # type: ignore[dict-item]
            for index, one in enumerate(files)
        ]
        params = MultipartParameters(payload=None, multipart=form, files=files)
        patience = self._settings.file_patience
        return str((await self._client.ask(lambda api: api.send_message(channel, params=params), patience))["id"])


def channel_id_of(address: Address) -> str:
    """Return Discord's id of a chat: a thread is a channel there. Raises `Rejected`."""
    channel = address.thread_id or address.chat_id
    if not (channel.isascii() and channel.isdecimal()):
        raise Rejected(f"there is no channel {channel!r} on Discord")
    return channel


def message_id_of(ref: MessageRef) -> str:
    """Return the id of a message. Raises `Rejected` for an invalid one."""
    if not (ref.message_id.isascii() and ref.message_id.isdecimal()):
        raise Rejected(f"there is no message {ref.message_id!r} on Discord")
    return ref.message_id


def _build_message_text(content: Content) -> str:
    """Return the text with the URLs of files on the web; Discord shows them below."""
    links = [file.source for file in content.files if is_remote(file)]
    if not content.text.strip() and content.files and not links:
        return ""
    full_text = "\n".join([content.text, *links]).strip("\n")
    return format_text(full_text if len(full_text) <= TEXT_LIMIT else content.text)


def _split_into_messages(text: str, uploads: Sequence[OutgoingFile]) -> list[tuple[Payload, Sequence[OutgoingFile]]]:
    """Return the files of each message: voice notes alone, all others up to ten together."""
    voices = [upload for upload in uploads if upload.voice]
    files = [upload for upload in uploads if not upload.voice]
    batches = [files[begin : begin + MOST_FILES] for begin in range(0, len(files), MOST_FILES)]
    messages: list[tuple[Payload, Sequence[OutgoingFile]]] = [
        (_build_attachments_payload(batch), batch) for batch in batches
    ]
    if text:
        if not messages:
            messages = [({}, ())]
        messages[0][0]["content"] = text
    return [*messages, *((_build_voice_payload(voice), [voice]) for voice in voices)]


def _build_attachments_payload(uploads: Sequence[OutgoingFile]) -> Payload:
    return {"attachments": [{"id": str(index), "filename": one.name} for index, one in enumerate(uploads)]}


def _build_voice_payload(upload: OutgoingFile) -> Payload:
    assert upload.voice is not None
    voice_fields = {"duration_secs": upload.voice.seconds, "waveform": upload.voice.waveform}
    return {"flags": _VOICE_FLAG, "attachments": [{"id": "0", "filename": upload.name, **voice_fields}]}
