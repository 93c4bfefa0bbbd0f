"""Fuzzing of the API by its OpenAPI description: no request causes a server error."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.api.server_process import serving
from tests.app.program_with_model import scripted_program
from tests.storage.engines import StoreLocation

from talaria.testing.model_server import ModelServer

_FUZZER = Path(sys.executable).parent / "schemathesis"
_CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
_ROUTES = "^/v1/(responses|runs|sessions|chat|models|capabilities)"


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    async with ModelServer() as one:
        yield one


@pytest.mark.one_engine
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_fuzzed_requests_cause_no_server_error(
    tmp_path: Path, model: ModelServer, engine: str, request: pytest.FixtureRequest
) -> None:
    examples = 100 if request.config.getoption("--long") else 5
    settings = ""
    if engine == "postgres":
        store_location: StoreLocation = request.getfixturevalue("postgres_location")
        settings = f'[store]\nurl = "{store_location.address}"\nschema = "{store_location.schema}"\n'
    async with serving(scripted_program(tmp_path, model, settings)) as api:
        fuzzing = await asyncio.create_subprocess_exec(
            _FUZZER,
            "run",
            f"{api.url}/openapi.json",
            "--phases",
            "coverage,fuzzing,stateful",
            "--checks",
            _CHECKS,
            "--include-path-regex",
            _ROUTES,
            "--exclude-path-regex",
            "/events$",  # a stream has no schema
            "--max-examples",
            str(examples),
            "--generation-deterministic",
            "--no-color",
            "--header",
            f"Authorization: Bearer {api.key}",
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await fuzzing.communicate()
        shown = out.decode()
        assert fuzzing.returncode == 0, shown
        assert all(f"✅ {phase}" in shown for phase in ("Coverage", "Fuzzing", "Stateful")), shown
        counts = re.search(r"(\d+) generated, (\d+) passed", shown)
        assert counts is not None, shown
        assert int(counts[1]) == int(counts[2]) > 0
        assert api.process is not None
        assert api.process.returncode is None
    log = (tmp_path / "profiles" / "default" / "logs" / "talaria.log").read_text()
    assert "Traceback" not in log, log
