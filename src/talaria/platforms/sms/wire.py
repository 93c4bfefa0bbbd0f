"""Translation between messages of Twilio (REST API 2010-04-01) and the vocabulary, without I/O."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Literal
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import msgspec
from msgspec import Struct

from talaria.contracts.platform import Attachment, Incoming, Sender
from talaria.core.addresses import Address
from talaria.core.errors import BadCredentials, PlatformError, Rejected, Unreachable
from talaria.platforms.content import PLAIN, convert_markdown
from talaria.platforms.http_api import ApiAnswer, describe_error, pause_of
from talaria.platforms.signatures import sign_base64
from talaria.platforms.sms.settings import SmsSettings

TEXT_LIMIT = 1600  # UTF-16 code units
OPTED_OUT_CODE = 21610
_MOST_FIELDS = 200
_MOST_MEDIA = 10
_BAD_CREDENTIALS = 20003
_MEDIA = re.compile(r".*/Messages/((?:MM|SM)[0-9a-f]{32})/Media/(ME[0-9a-f]{32})(?:\.json)?")
_KEYWORDS: Mapping[str, Literal["STOP", "START", "HELP"]] = {
    **dict.fromkeys(("STOP", "STOPALL", "UNSUBSCRIBE", "CANCEL", "END", "QUIT", "REVOKE", "OPTOUT"), "STOP"),
    **dict.fromkeys(("START", "UNSTOP", "YES"), "START"),
    **dict.fromkeys(("HELP", "INFO"), "HELP"),
}

Form = Mapping[str, Sequence[str]]


class SmsMedia(Struct):
    """A file of a message: its address and type."""

    uri: str
    content_type: str = ""


class ReceivedSms(Struct, rename={"sender": "from", "text": "body"}):
    """A message of the list of messages."""

    sid: str
    sender: str
    direction: str = "inbound"
    text: str = ""
    num_media: str = "0"
    date_sent: str | None = None
    date_created: str = ""
    media: tuple[SmsMedia, ...] = ()
    keyword: str = ""


class SmsPage(Struct):
    """A page of the list, newest message first."""

    messages: tuple[ReceivedSms, ...]
    next_page_uri: str | None = None


class MediaPage(Struct):
    """The files of a message."""

    media_list: tuple[SmsMedia, ...] = ()


class SentSms(Struct):
    """The answer to a sent message."""

    sid: str


class PhoneNumber(Struct):
    """A phone number of the account, and where its messages are posted."""

    sid: str
    phone_number: str = ""
    sms_url: str | None = ""
    sms_method: str | None = "POST"


class PhoneNumbers(Struct):
    """The phone numbers of an account."""

    incoming_phone_numbers: tuple[PhoneNumber, ...] = ()


class TwilioError(Struct):
    """The body of a refusal."""

    code: int = 0
    message: str = ""


def read_form(body: bytes) -> dict[str, list[str]]:
    """Return the fields of a post; raises `ValueError` for something else."""
    text = body.decode()
    return parse_qs(text, keep_blank_values=True, strict_parsing=bool(text), max_num_fields=_MOST_FIELDS)


def sign_form(token: str, url: str, form: Form) -> str:
    """Return the signature of a post to a URL."""
    fields = "".join(f"{key}{value}" for key in sorted(form) for value in sorted(set(form[key])))
    return sign_base64(token, f"{url}{fields}".encode(), algorithm="sha1")


def signed_urls(url: str) -> tuple[str, ...]:
    """Return the forms of a URL that Twilio may have signed: with and without its port."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    given = {url, *(parts._replace(netloc=one).geturl() for one in (host, f"{host}:{port}"))}
    return tuple(sorted(given))


def read_post(form: Form) -> ReceivedSms | None:
    """Return the received message of a post, ``None`` for a status report; raises `ValueError` for something else."""
    fields = {key: values[0] for key, values in form.items()}
    if not fields.get("MessageSid"):
        raise ValueError("the post has no MessageSid")
    if fields.get("MessageStatus"):
        return None
    number = fields.get("NumMedia", "")
    count = min(int(number), _MOST_MEDIA) if number.isascii() and number.isdigit() else 0
    return ReceivedSms(
        sid=fields["MessageSid"],
        sender=fields.get("From", ""),
        text=fields.get("Body", ""),
        media=tuple(
            SmsMedia(fields.get(f"MediaUrl{one}", ""), fields.get(f"MediaContentType{one}", "")) for one in range(count)
        ),
        keyword=fields.get("OptOutType", ""),
    )


def find_keyword(message: ReceivedSms) -> str:
    """Return what a message asks the network for: STOP, START or HELP; empty for other messages."""
    return message.keyword.upper() or _KEYWORDS.get(message.text.strip().upper(), "")


def to_incoming(message: ReceivedSms, settings: SmsSettings, now: datetime) -> Incoming:
    """Return what a person wrote; a post has no time, so that it is written ``now``."""
    return Incoming(
        external_id=message.sid,
        address=Address(settings.name, message.sender),
        sender=Sender(message.sender, message.sender),
        at=read_time(message) or now,
        text=message.text,
        attachments=tuple(filter(None, map(_to_attachment, message.media))),
        message_id=message.sid,
    )


def read_time(message: ReceivedSms) -> datetime | None:
    """Return when a listed message arrived at Twilio."""
    try:
        return parsedate_to_datetime(message.date_sent or message.date_created).astimezone(UTC)
    except ValueError:
        return None


def _to_attachment(media: SmsMedia) -> Attachment | None:
    found = _MEDIA.fullmatch(urlsplit(media.uri).path)
    if found is None:
        return None
    family = media.content_type.partition("/")[0]
    kind: Literal["picture", "voice", "document"] = (
        "picture" if family == "image" else "voice" if family == "audio" else "document"
    )
    return Attachment(f"{found[1]}/Media/{found[2]}", kind, "", media.content_type)


def list_query(number: str, since: datetime) -> str:
    """Return the query for messages to a number that arrived at a time or later."""
    return urlencode({"To": number, "DateSent>": f"{since.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}", "PageSize": "100"})


def make_forms(to: str, text: str, media: Sequence[str], links: Sequence[str], settings: SmsSettings) -> list[bytes]:
    """Return the forms of the messages for a text and addresses of files; raises `Rejected` for one without both."""
    text = convert_markdown(text, PLAIN)
    if (size := len(text.encode("utf-16-le")) // 2) > TEXT_LIMIT:
        raise Rejected(f"a message has at most {TEXT_LIMIT} characters, and this one {size}")
    origin = {"MessagingServiceSid": settings.messaging_service} if settings.messaging_service else {}
    common = {"To": to, **(origin or {"From": settings.credentials.number})}
    messages: list[dict[str, str | Sequence[str]]] = [
        {**common, "MediaUrl": media[part : part + _MOST_MEDIA]} for part in range(0, len(media), _MOST_MEDIA)
    ]
    if text.strip():
        messages = messages or [dict(common)]
        messages[0]["Body"] = text
    messages += [{**common, "Body": link} for link in links]
    if not messages:
        raise Rejected("a message without text can't be sent")
    return [urlencode(message, doseq=True, quote_via=quote).encode() for message in messages]


def error_code(answer: ApiAnswer) -> int:
    """Return Twilio's code of a refusal; 0 if there is none."""
    try:
        return msgspec.json.decode(answer.body, type=TwilioError).code
    except msgspec.DecodeError:
        return 0


def to_error(answer: ApiAnswer) -> PlatformError:
    """Return the error for a refused call."""
    code = error_code(answer)
    if answer.status == 401 or code == _BAD_CREDENTIALS:
        return BadCredentials("Twilio doesn't accept the account SID and the auth token")
    if answer.status == 429:
        return pause_of(answer)
    if code == OPTED_OUT_CODE:
        return Rejected("this person has opted out with STOP; they can send START to get messages again")
    if 400 <= answer.status < 500:
        return Rejected(f"Twilio refuses it with {describe_error(answer)}")
    return Unreachable(f"Twilio failed with {describe_error(answer)}")
