"""Settings of the sandbox: accepted and refused values."""

import pytest

from talaria.settings.sections.checks import are_absolute_paths, are_host_patterns, is_image_name, is_ssh_target


@pytest.mark.parametrize("text", ["pypi.org", "*.debian.org", "127.0.0.1", "::1", "localhost"])
def test_valid_host_patterns_are_accepted(text: str) -> None:
    assert are_host_patterns((text,))


@pytest.mark.parametrize("text", ["", "http://pypi.org", "pypi.org:443", "*", "a*b.org", "a b"])
def test_invalid_host_patterns_are_refused(text: str) -> None:
    assert not are_host_patterns((text,))


@pytest.mark.parametrize("text", ["", "host", "me@host", "me@host.test", "10.0.0.1", "build_box"])
def test_valid_ssh_targets_are_accepted(text: str) -> None:
    assert is_ssh_target(text)


@pytest.mark.parametrize("text", ["-oProxyCommand=x", "me@-host", "host;rm", "a b", "$(x)", "@host"])
def test_ssh_targets_with_options_or_shell_syntax_are_refused(text: str) -> None:
    assert not is_ssh_target(text)


def test_relative_paths_and_image_names_like_options_are_refused() -> None:
    assert are_absolute_paths(("/srv", "~/x"))
    assert not are_absolute_paths(("srv",))
    assert is_image_name("docker.io/library/python:3-slim")
    assert not is_image_name("--privileged")
