"""The wish to stop, and the limit of open files."""

import asyncio
import resource
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from kordon.proxy.process import lifecycle
from kordon.proxy.process.lifecycle import Stop, explain_os_error, naming, raise_file_limit


async def test_second_wish_hurries(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first wish drains, a later one stops at once."""
    monkeypatch.setattr(lifecycle, "SAME_WISH_SECONDS", -1.0)
    stop = Stop()
    stop.ask("SIGTERM")
    assert (stop.asked.is_set(), stop.at_once.is_set()) == (True, False)
    stop.ask("SIGTERM")
    assert stop.at_once.is_set()


async def test_same_wish_twice_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """`timeout` signals a process and then its group: the two signals of one moment do not cut the drain."""
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: 100.0)
    stop = Stop()
    stop.ask("SIGTERM")
    stop.ask("SIGTERM")
    assert not stop.at_once.is_set()


@pytest.fixture
def file_limit() -> Iterator[tuple[int, int]]:
    """The limit of open files, given back afterwards."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield limit
    resource.setrlimit(resource.RLIMIT_NOFILE, limit)


def test_file_limit_is_raised_to_what_connections_need(file_limit: tuple[int, int]) -> None:
    """Two sockets for each connection and some more may be open afterwards."""
    _, hard = file_limit
    resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))
    raise_file_limit(100)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (2 * 100 + lifecycle.SPARE_FILES, hard)


def test_file_limit_that_is_too_low_is_said(file_limit: tuple[int, int]) -> None:
    """What the system does not allow is a warning that names the cure."""
    _, hard = file_limit
    with capture_logs() as logs:
        raise_file_limit(hard)
    assert [(line["event"], line["limit"]) for line in logs] == [("few_files", hard)]
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)


def test_error_of_an_address_is_named_and_of_a_file_is_not() -> None:
    """Where the system's words lack the address, the option and its value are put before them."""
    with (
        pytest.raises(OSError, match=r"listen\.address x:1: Address already in use") as raised,
        naming("listen.address x:1"),
    ):
        raise OSError(98, "Address already in use")
    assert explain_os_error(raised.value) == "listen.address x:1: Address already in use"
    with pytest.raises(FileNotFoundError) as missing, naming("listen.address x:1"):
        raise FileNotFoundError(2, "No such file or directory", "k.pem")
    assert explain_os_error(missing.value) == "No such file or directory: k.pem"
