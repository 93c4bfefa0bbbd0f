"""Post, edit and mark: texts with files, choices below, each part under a key of its own."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress

import msgspec
from discord.http import MultipartParameters

from talaria.contracts.platform import Content, MessageRef
from talaria.core.addresses import Address
from talaria.core.errors import Rejected
from talaria.platforms.discord.calls import Calls
from talaria.platforms.discord.failures import CANNOT_REPLY, INVALID_FORM, UNKNOWN_EMOJI, Refusal
from talaria.platforms.discord.files import Parcel, is_remote, pack
from talaria.platforms.discord.outgoing import FILES_AT_ONCE, TEXT_LIMIT, Payload, components, format_text, nonce
from talaria.platforms.discord.settings import DiscordSettings
from talaria.platforms.discord.wire import Message, read

_NOBODY: Payload = {"parse": [], "replied_user": False}  # whoever is named in a text is not called by it
_VOICE = 1 << 13
_NEUTRAL_MARK = "👀"
_KNOWN_MARKS = 2000


class Posting:
    """What a bot writes."""

    def __init__(self, calls: Calls, settings: DiscordSettings) -> None:
        self._calls = calls
        self._settings = settings
        self._marks: OrderedDict[tuple[str, str], tuple[str, ...]] = OrderedDict()

    async def send(self, to: Address, content: Content, key: str) -> MessageRef:
        """Post a text with up to ten files, further ones and voice notes behind it.

        Everything is looked at before the first message leaves. Returns the first.
        """
        channel = channel_of(to)
        below = components(content.buttons)
        limit = self._settings.file_limit
        parcels = [await asyncio.to_thread(pack, file, limit) for file in content.files if not is_remote(file)]
        first, *others = _messages(_text(content), parcels)
        if below:
            first[0]["components"] = below
        if content.reply_to.isdecimal():
            first[0]["message_reference"] = {"message_id": content.reply_to, "fail_if_not_exists": False}
        posted = await self._post(channel, first[0], first[1], nonce(key, 0))
        for part, (payload, files) in enumerate(others, 1):
            await self._post(channel, payload, files, nonce(key, part))
        return MessageRef(to, posted)

    async def edit(self, ref: MessageRef, content: Content) -> None:
        """Replace the text and the choices of a message of ours."""
        channel, message = channel_of(ref.address), message_of(ref)
        payload = {
            "content": format_text(content.text),
            "components": components(content.buttons),
            "allowed_mentions": _NOBODY,
        }
        params = MultipartParameters(payload=payload, multipart=None, files=None)
        await self._calls.ask(lambda api: api.edit_message(channel, message, params=params))

    async def react(self, ref: MessageRef, emoji: str) -> None:
        """Put a mark on a message in place of ours, or take ours away; one that Discord does not know is neutral."""
        channel, message = channel_of(ref.address), message_of(ref)
        wanted = emoji
        ours = await self._own_marks(channel, message)
        if wanted and wanted not in ours:
            try:
                await self._calls.ask(lambda api: api.add_reaction(channel, message, wanted))
            except Refusal as refusal:
                if refusal.code != UNKNOWN_EMOJI:
                    raise
                wanted = _NEUTRAL_MARK
                await self._calls.ask(lambda api: api.add_reaction(channel, message, wanted))
        for mark in ours:
            if mark != wanted:
                with suppress(Refusal):  # it is gone already
                    await self._calls.ask(lambda api, mark=mark: api.remove_own_reaction(channel, message, mark))  # type: ignore[misc]
        self._marks[channel, message] = (wanted,) if wanted else ()
        if len(self._marks) > _KNOWN_MARKS:
            self._marks.popitem(last=False)

    async def _own_marks(self, channel: str, message: str) -> tuple[str, ...]:
        known = self._marks.get((channel, message))
        if known is not None:
            return known
        found = read(await self._calls.ask(lambda api: api.get_message(channel, message)), Message)
        return tuple(one.emoji.name for one in found.reactions if one.me and one.emoji.name and not one.emoji.id)

    async def _post(self, channel: str, payload: Payload, parcels: Sequence[Parcel], key: str) -> str:
        payload |= {"nonce": key, "enforce_nonce": True, "allowed_mentions": _NOBODY}
        try:
            return await self._send(channel, payload, parcels)
        except Refusal as refusal:
            if payload.get("flags"):  # voice notes may be forbidden where files are not
                del payload["flags"]
                payload |= _named(parcels)
            elif "message_reference" in payload and refusal.code in (INVALID_FORM, CANNOT_REPLY):
                del payload["message_reference"]  # better without saying what it answers than not at all
            else:
                raise
        return await self._send(channel, payload, parcels)

    async def _send(self, channel: str, payload: Payload, parcels: Sequence[Parcel]) -> str:
        if not parcels:
            params = MultipartParameters(payload=payload, multipart=None, files=None)
            return str((await self._calls.ask(lambda api: api.send_message(channel, params=params)))["id"])
        files = [parcel.sent() for parcel in parcels]
        form = [{"name": "payload_json", "value": msgspec.json.encode(payload).decode()}]
        form += [
            {"name": f"files[{place}]", "value": one.fp, "filename": one.filename}  # type: ignore[dict-item]
            for place, one in enumerate(files)
        ]
        params = MultipartParameters(payload=None, multipart=form, files=files)
        patience = self._settings.file_patience
        return str((await self._calls.ask(lambda api: api.send_message(channel, params=params), patience))["id"])


def channel_of(address: Address) -> str:
    """Return the id that Discord knows a place by: a thread is a channel there. Raises `Rejected`."""
    channel = address.thread_id or address.chat_id
    if not (channel.isascii() and channel.isdecimal()):
        raise Rejected(f"there is no channel {channel!r} on Discord")
    return channel


def message_of(ref: MessageRef) -> str:
    """Return the id of a message. Raises `Rejected` for what cannot be one."""
    if not (ref.message_id.isascii() and ref.message_id.isdecimal()):
        raise Rejected(f"there is no message {ref.message_id!r} on Discord")
    return ref.message_id


def _text(content: Content) -> str:
    """Return the text with the addresses of files that are on the web; Discord shows them below."""
    links = [file.source for file in content.files if is_remote(file)]
    if not content.text.strip() and content.files and not links:
        return ""
    whole = "\n".join([content.text, *links]).strip("\n")
    return format_text(whole if len(whole) <= TEXT_LIMIT else content.text)


def _messages(text: str, parcels: Sequence[Parcel]) -> list[tuple[Payload, Sequence[Parcel]]]:
    """Return what each message holds: voice notes stand alone, all other files up to ten together."""
    voices = [parcel for parcel in parcels if parcel.voice]
    files = [parcel for parcel in parcels if not parcel.voice]
    batches = [files[begin : begin + FILES_AT_ONCE] for begin in range(0, len(files), FILES_AT_ONCE)]
    messages: list[tuple[Payload, Sequence[Parcel]]] = [(_named(batch), batch) for batch in batches]
    if text:
        if not messages:
            messages = [({}, ())]
        messages[0][0]["content"] = text
    return [*messages, *((_spoken(voice), [voice]) for voice in voices)]


def _named(parcels: Sequence[Parcel]) -> Payload:
    return {"attachments": [{"id": str(place), "filename": one.name} for place, one in enumerate(parcels)]}


def _spoken(parcel: Parcel) -> Payload:
    assert parcel.voice is not None
    told = {"duration_secs": parcel.voice.seconds, "waveform": parcel.voice.waveform}
    return {"flags": _VOICE, "attachments": [{"id": "0", "filename": parcel.name, **told}]}
