"""What is to be posted, as it travels to the loopback network."""

from pathlib import Path

from talaria.contracts.platform import Content
from talaria.core.addresses import Address
from talaria.core.errors import Rejected
from talaria.core.messages import File, Image
from talaria.testing.loopback_platform.wire import Post, Sent


def to_post(to: Address, content: Content, key: str, files: tuple[Sent, ...]) -> Post:
    """Return a message for the network; its files were read before."""
    text = sendable(content.text)
    return Post(address=to, key=key, text=text, reply_to=content.reply_to, buttons=content.buttons, files=files)


def sendable(text: str) -> str:
    """Return a text without halves of characters, which cannot travel."""
    return text.encode(errors="replace").decode()


def to_sent(file: File | Image) -> Sent:
    """Read a file from the disk, or raise `Rejected`."""
    path = Path(file.source)
    try:
        return Sent(file.name if isinstance(file, File) else path.name, file.media_type, path.read_bytes())
    except OSError as error:
        raise Rejected(f"{path.name} cannot be read: {error.strerror}") from error
