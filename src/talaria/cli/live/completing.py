"""Completion of commands, of what may follow them, and of files behind ``@``."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from talaria.cli.cells import cut
from talaria.core.errors import TalariaError

_MOST = 60
_USAGE_COLUMNS = 24  # one long usage must not take the room of all descriptions

Named = tuple[str, str, str]
Offers = Callable[[str, str], Awaitable[Sequence[tuple[str, str]]]]


class ChatCompleter(Completer):
    """``commands`` gives name, usage and help of each command, ``offers`` what may follow one of them."""

    def __init__(self, commands: Callable[[], Sequence[Named]], offers: Offers, folder: Callable[[], Path]) -> None:
        self._commands = commands
        self._offers = offers
        self._folder = folder

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """Give nothing: everything here is asked for asynchronously."""
        yield from ()

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        """Give what fits what was typed so far."""
        before = document.text_before_cursor
        word = before.rpartition(" ")[2].rpartition("\n")[2]
        if word.startswith("@"):
            for completion in self._files(word[1:]):
                yield completion
        elif before.startswith("/") and " " not in before:
            for name, usage, about in self._commands():
                if name.startswith(before[1:]):
                    yield Completion(f"/{name}", -len(before), display=cut(usage, _USAGE_COLUMNS), display_meta=about)
        elif before.startswith("/"):
            async for completion in self._arguments(before):
                yield completion

    async def _arguments(self, before: str) -> AsyncGenerator[Completion, None]:
        name, _, words = before.partition(" ")
        try:
            offered = await self._offers(name, words)
        except TalariaError:
            return
        wanted = words.lower()
        fitting = [(text, about) for text, about in offered if wanted in text.lower()]
        for text, about in sorted(fitting, key=lambda one: not one[0].lower().startswith(wanted))[:_MOST]:
            yield Completion(text, -len(words), display_meta=about)

    def _files(self, typed: str) -> Iterator[Completion]:
        head, slash, tail = typed.rpartition("/")
        folder = self._folder() / Path(head + slash).expanduser() if head or slash else self._folder()
        try:
            entries = sorted(folder.iterdir(), key=lambda entry: (entry.is_file(), entry.name.lower()))
        except OSError:
            return
        found = [entry for entry in entries if _fits(entry.name, tail)]
        for entry in found[:_MOST]:
            name = f"{entry.name}/" if entry.is_dir() else entry.name
            path = f"{head}{slash}{name}"
            yield Completion(f'@"{path}"' if " " in path else f"@{path}", -len(typed) - 1, display=name)


def _fits(name: str, typed: str) -> bool:
    hidden = name.startswith(".") and not typed.startswith(".")
    return not hidden and name.lower().startswith(typed.lower())
