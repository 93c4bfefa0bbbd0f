"""The runtime of the embedded model: loaded by name, by the first call that needs it."""

import secrets
from collections.abc import Callable
from pathlib import Path

import xllamacpp

from talaria.core.errors import ModelRefused, ModelUnknown
from talaria.providers.embedded.outgoing import CONTEXT_TOKENS
from talaria.providers.embedded.weights import INSTALL

_TOKENS_AT_ONCE = 64  # of a prompt: half a second between two chances to stop


class Runtime:
    """One loaded model; takes one request at a time, in whatever thread asks."""

    def __init__(self, weights: Path) -> None:
        try:
            self._server = xllamacpp.Server(_parameters(weights))
        except RuntimeError as error:
            raise ModelUnknown(f"The embedded model cannot be loaded ({error}); {INSTALL} may repair it.") from error

    def ask(self, body: bytes, hear: Callable[[bytes], bool]) -> None:
        """Call ``hear`` with each piece of the answer, until it returns true or the answer is over."""
        try:
            self._server.handle_chat_completions(body, hear)
        except ValueError as error:
            raise ModelRefused(f"the embedded model cannot follow this request: {error}") from error


def _parameters(weights: Path) -> xllamacpp.CommonParams:
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(weights)
    parameters.n_ctx = CONTEXT_TOKENS
    parameters.n_parallel = 1
    parameters.n_batch = parameters.n_ubatch = _TOKENS_AT_ONCE
    parameters.verbosity = 0
    parameters.warmup = False
    # Several threads that spin collapse on a busy machine.
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    parameters.cpuparams.poll = parameters.cpuparams_batch.poll = 0
    parameters.cache_ram_mib = 0
    # The runtime always listens on loopback too; with a key that nobody knows, nobody else on this machine gets in.
    parameters.api_keys = [secrets.token_urlsafe()]
    parameters.ui = False
    return parameters
