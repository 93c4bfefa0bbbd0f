"""Setup of Google Chat: the key file of a service account, the project, and the address that Google calls."""

from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct, structs

from talaria.contracts.setup import NetworkSetup, NetworkTrial, SetupQuestion
from talaria.core.errors import BadKey
from talaria.http_client.bearer_tokens import GOOGLE_TOKEN_URL
from talaria.platforms.googlechat.settings import PORT, GoogleChatSettings, read_settings
from talaria.platforms.setup_checks import (
    PLACEHOLDER,
    ProbeRequest,
    TokenCheck,
    TokenRejected,
    decode_answer,
    endpoint_questions,
    expect_200,
    refusals_of,
)

_CREDENTIALS = "GOOGLE_CHAT_CREDENTIALS"


class _Granted(Struct):
    access_token: str


def _read(trial: NetworkTrial) -> GoogleChatSettings:
    return read_settings(trial.account or "googlechat", trial.options, trial.secrets.get(_CREDENTIALS, ""))


def _make_request(base: str, trial: NetworkTrial) -> ProbeRequest:
    request = _read(structs.replace(trial, options={**PLACEHOLDER, **trial.options})).token_request
    try:
        form = request.encode(datetime.now(UTC))
        url = trial.base_url or request.url()
    except BadKey as error:
        raise TokenRejected from error
    return ProbeRequest("POST", url, {"Content-Type": request.content_type}, form)


def _check_answer(status: int, body: bytes) -> str:
    if status == 400:  # Google's answer to an unknown account or key
        raise TokenRejected
    expect_200(status)
    decode_answer(body, _Granted)
    return ""


def _find_file_problem(path: str) -> str:
    return "" if Path(path).expanduser().is_file() else f"There is no file {path}."


def _find_problems(trial: NetworkTrial) -> tuple[str, ...]:
    problem = _find_file_problem(trial.secrets.get(_CREDENTIALS, ""))
    return (*_find_refusals(trial), *filter(None, [problem]))


_find_refusals = refusals_of(_read)

SETUP = NetworkSetup(
    title="Google Chat",
    questions=(
        SetupQuestion(
            name=_CREDENTIALS,
            prompt="Key file",
            hint="Path of the JSON key of a service account in the Google Cloud project of your app.",
            public=True,
            problem=_find_file_problem,
            check=TokenCheck(
                title="Google",
                secret="",
                address=lambda trial: GOOGLE_TOKEN_URL,
                request=_make_request,
                owner=_check_answer,
                remedy="Create another JSON key on the page of the service account, and name its file.",
            ),
        ),
        SetupQuestion(
            name="project_number",
            prompt="Project number",
            hint="The number of the project, if the app's authentication audience is Project Number.",
            required=False,
        ),
        *endpoint_questions("Google", "googlechat", PORT),
    ),
    next_step="Enter the public address as HTTP endpoint URL on the app's Configuration page, then start the gateway.",
    doctor=_find_problems,
)
