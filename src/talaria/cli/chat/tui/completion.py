"""Completion of commands, their arguments, and files after ``@``."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from talaria.cli.output.text import cut
from talaria.core.errors import TalariaError
from talaria.core.mentions import complete_files

_MAX_COMPLETIONS = 60
_USAGE_COLUMNS = 24  # one long usage must not crowd out all descriptions

CommandEntry = tuple[str, str, str]
ArgumentProvider = Callable[[str, str], Awaitable[Sequence[tuple[str, str]]]]


class ChatCompleter(Completer):
    """Completer for the input line.

    ``commands`` returns name, usage and help of each command, ``offers`` the completions of one.
    """

    def __init__(
        self, commands: Callable[[], Sequence[CommandEntry]], offers: ArgumentProvider, folder: Callable[[], Path]
    ) -> None:
        self._commands = commands
        self._offers = offers
        self._folder = folder

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """Return nothing: completions are asynchronous here."""
        yield from ()

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        """Yield completions for the text before the cursor."""
        before = document.text_before_cursor
        word = before.rpartition(" ")[2].rpartition("\n")[2]
        if word.startswith("@"):
            for completion in self._complete_files(word[1:]):
                yield completion
        elif before.startswith("/") and " " not in before:
            for name, usage, about in self._commands():
                if name.startswith(before[1:]):
                    yield Completion(f"/{name}", -len(before), display=cut(usage, _USAGE_COLUMNS), display_meta=about)
        elif before.startswith("/"):
            async for completion in self._complete_arguments(before):
                yield completion

    async def _complete_arguments(self, before: str) -> AsyncGenerator[Completion, None]:
        name, _, arguments = before.partition(" ")
        try:
            choices = await self._offers(name, arguments)
        except TalariaError:
            return
        prefix = arguments.lower()
        matches = [(text, about) for text, about in choices if prefix in text.lower()]
        for text, about in sorted(matches, key=lambda one: not one[0].lower().startswith(prefix))[:_MAX_COMPLETIONS]:
            yield Completion(text, -len(arguments), display_meta=about)

    def _complete_files(self, typed: str) -> Iterator[Completion]:
        for path in complete_files(typed, self._folder()):
            name = path.rstrip("/").rpartition("/")[2] + ("/" if path.endswith("/") else "")
            yield Completion(f'@"{path}"' if " " in path else f"@{path}", -len(typed) - 1, display=name)
