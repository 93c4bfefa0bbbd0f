"""The runtime of the embedded model, imported at the first call."""

import secrets
from collections.abc import Callable
from pathlib import Path

import xllamacpp

from talaria.core.errors import ModelRefused, ModelUnknown
from talaria.providers.embedded.outgoing import CONTEXT_TOKENS
from talaria.providers.embedded.weights import INSTALL

_TOKENS_AT_ONCE = 64  # of a prompt: half a second between two chances to stop


class Runtime:
    """A loaded model; handles one request at a time, in the calling thread."""

    def __init__(self, weights: Path) -> None:
        try:
            self._server = xllamacpp.Server(_make_parameters(weights))
        except RuntimeError as error:
            raise ModelUnknown(
                f"The built-in model can't be loaded ({error}). Running {INSTALL} may repair it."
            ) from error

    def ask(self, body: bytes, hear: Callable[[bytes], bool]) -> None:
        """Call ``hear`` with each piece of the answer, until it returns true or the answer is over."""
        try:
            self._server.handle_chat_completions(body, hear)
        except ValueError as error:
            raise ModelRefused(f"the built-in model can't handle this request: {error}") from error


def _make_parameters(weights: Path) -> xllamacpp.CommonParams:
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(weights)
    parameters.n_ctx = CONTEXT_TOKENS
    parameters.n_parallel = 1
    parameters.n_batch = parameters.n_ubatch = _TOKENS_AT_ONCE
    parameters.verbosity = 0
    parameters.warmup = False
    # Several spinning threads collapse on a busy machine.
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    parameters.cpuparams.poll = parameters.cpuparams_batch.poll = 0
    parameters.cache_ram_mib = 0
    # The runtime always listens on loopback too; a random key keeps other users of this machine out.
    parameters.api_keys = [secrets.token_urlsafe()]
    parameters.ui = False
    return parameters
