"""The far side of the loopback network, for the contract suite."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec import structs

from talaria.contracts.platform import Attachment
from talaria.core.addresses import Address
from talaria.testing.loopback_platform import CHATTY, Fault, LoopbackNetwork
from talaria.testing.loopback_platform.wire import Record
from talaria.testing.platform_suite import FailureKind, VisibleMessage

_NOWHERE = (Fault("post", "refuse", 0, "nowhere"), Fault("thread", "refuse", 0, "nowhere"))


class LoopbackFarSide:
    """Ann's chats on the loopback network, where every message is addressed to the agent."""

    def __init__(self, network: LoopbackNetwork, secret: str) -> None:
        self.platform = network.platform(patience=2.0)
        self.secret = secret
        self._network = network
        self.private = Address("loopback", "1")
        self.group: Address | None = None
        self.thread: Address | None = Address("loopback", "2", "thread", "7")
        self.nowhere = Address("loopback", "nowhere")
        network.disrupt(*_NOWHERE)

    async def says(self, at: Address, text: str, *, addressed: bool = True) -> None:
        self._network.say(at, text)

    async def sends_file(self, at: Address, name: str, data: bytes) -> None:
        self._network.say_with_file(at, Attachment("f1", "document", name, size=len(data)), data)

    async def presses(self, at: Address, message_id: str, label: str) -> None:
        post = next(one for one in self._network.posts if one.message_id == message_id)
        self._network.press(at, message_id, next(one.value for one in post.buttons if one.label == label))

    async def reacts(self, at: Address, message_id: str, emoji: str) -> None:
        self._network.press(at, message_id, reaction=emoji)

    async def own_reactions(self, at: Address, message_id: str) -> list[str]:
        own_reactions = [
            one.text for one in self._network.records if (one.kind, one.message_id) == ("reaction", message_id)
        ]
        return list(filter(None, own_reactions[-1:]))

    async def redelivers(self) -> bool:
        return False

    async def seen(self, at: Address) -> list[VisibleMessage]:
        posts = [one for one in self._network.posts if one.address == at]
        shown = self._network.shown(at.chat_id, at.thread_id)
        return [
            VisibleMessage(
                message_id=one.message_id,
                text=text,
                reply_to=one.reply_to,
                buttons=tuple(button.label for button in self._last_version(one).buttons),
                files=one.files,
            )
            for one, text in zip(posts, shown, strict=True)
        ]

    def _last_version(self, post: Record) -> Record:
        edits = [one for one in self._network.records if (one.kind, one.message_id) == ("edit", post.message_id)]
        return edits[-1] if edits else post

    async def disrupt(self, failure: FailureKind) -> bool:
        match failure:
            case "slow_down":
                self._network.disrupt(Fault("post", "slow_down", 0, seconds=3))
            case "failing":
                self._network.disrupt(Fault("post", "unreachable", 0))
            case "silent":
                self._network.disrupt(Fault("post", "hang", 0))
            case "deaf":
                self._network.disrupt(Fault("receiving", "hang", 1))
            case "cut":
                self._network.drop()
            case "revoked":
                self._network.disrupt(Fault("login", "bad_credentials", 0))
        return True

    async def calm(self) -> None:
        self._network.disrupt()


@asynccontextmanager
async def loopback_far_side(*, idempotent: bool = False) -> AsyncIterator[LoopbackFarSide]:
    """Open the network and its adapter."""
    secret = "loopback-secret"
    async with LoopbackNetwork(structs.replace(CHATTY, idempotent=idempotent), token=secret) as network:
        yield LoopbackFarSide(network, secret)
