"""Settings of the sandbox: what is accepted, and what is refused."""

import pytest

from talaria.settings.sections.checks import are_absolute_paths, are_host_patterns, is_image_name, is_ssh_target


@pytest.mark.parametrize("text", ["pypi.org", "*.debian.org", "127.0.0.1", "::1", "localhost"])
def test_hosts_that_can_be_allowed(text: str) -> None:
    assert are_host_patterns((text,))


@pytest.mark.parametrize("text", ["", "http://pypi.org", "pypi.org:443", "*", "a*b.org", "a b"])
def test_hosts_that_are_refused(text: str) -> None:
    assert not are_host_patterns((text,))


@pytest.mark.parametrize("text", ["", "host", "me@host", "me@host.test", "10.0.0.1", "build_box"])
def test_targets_for_ssh(text: str) -> None:
    assert is_ssh_target(text)


@pytest.mark.parametrize("text", ["-oProxyCommand=x", "me@-host", "host;rm", "a b", "$(x)", "@host"])
def test_targets_that_ssh_would_take_for_something_else_are_refused(text: str) -> None:
    assert not is_ssh_target(text)


def test_paths_are_absolute_and_images_are_no_options() -> None:
    assert are_absolute_paths(("/srv", "~/x"))
    assert not are_absolute_paths(("srv",))
    assert is_image_name("docker.io/library/python:3-slim")
    assert not is_image_name("--privileged")
