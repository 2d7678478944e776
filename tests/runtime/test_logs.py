"""What a log line looks like, to a person and to a machine."""

import io
import json
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from pydantic import SecretStr

from kordon.proxy.config.config import Log
from kordon.proxy.runtime.log_limits import LINES, client_log
from kordon.proxy.runtime.logs import configure_logging


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Gives back the logging that pytest has set up."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    logging.captureWarnings(capture=False)
    root.handlers[:], root.level = handlers, level
    structlog.reset_defaults()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    """JSON lines as objects."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_machine_gets_json_by_default() -> None:
    """Not on a terminal, each event is one JSON object with its facts, level and UTC time."""
    stream = io.StringIO()
    configure_logging(Log(), stream=stream)
    structlog.get_logger("x").info("broker_down", node_id=2, address="kafka:9092")
    (line,) = lines(stream)
    assert line.pop("timestamp").endswith("Z")
    assert line == {"event": "broker_down", "level": "info", "node_id": 2, "address": "kafka:9092"}


def test_person_gets_text_on_a_terminal() -> None:
    """On a terminal a line is for reading."""
    stream = Terminal()
    configure_logging(Log(), stream=stream)
    structlog.get_logger().warning("broker_down", node_id=2)
    assert "broker_down" in stream.getvalue()
    with pytest.raises(json.JSONDecodeError):
        lines(stream)


@pytest.mark.parametrize(("form", "stream"), [("human", io.StringIO()), ("json", Terminal())])
def test_form_can_be_chosen(form: str, stream: io.StringIO) -> None:
    """The configured form wins over what the stream is."""
    configure_logging(Log.model_validate({"format": form}), stream=stream)
    structlog.get_logger().info("stopped")
    assert stream.getvalue().startswith("{") == (form == "json")


def test_level_may_change_while_running() -> None:
    """A logger made before a reload obeys the level after it."""
    stream = io.StringIO()
    configure_logging(Log(level="warning"), stream=stream)
    log = structlog.get_logger("early")
    log.info("unheard")
    configure_logging(Log(level="debug"), stream=stream)
    log.debug("heard")
    assert [line["event"] for line in lines(stream)] == ["heard"]


def test_libraries_log_in_the_same_form() -> None:
    """What comes through the standard library, warnings included, is an object with the library's name."""
    stream = io.StringIO()
    configure_logging(Log(), stream=stream, worker=3)
    logging.getLogger("asyncio").error("it took %d s", 5)
    logging.getLogger("asyncio").debug("unheard")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old ways", stacklevel=1)
    asyncio_line, warning = lines(stream)
    assert (asyncio_line["event"], asyncio_line["logger"], asyncio_line["worker"]) == ("it took 5 s", "asyncio", 3)
    assert warning["logger"] == "py.warnings"


def test_worker_is_named_when_there_are_several() -> None:
    """Lines of workers on one standard error can be told apart."""
    stream = io.StringIO()
    configure_logging(Log(), stream=stream, worker=0)
    structlog.get_logger().info("stopped")
    assert lines(stream)[0]["worker"] == 0


@pytest.mark.parametrize("form", ["human", "json"])
def test_secrets_are_masked(form: str) -> None:
    """Whatever a caller passes under a secret's name, or as a secret value, stays out of the log."""
    stream = io.StringIO()
    configure_logging(Log.model_validate({"format": form}), stream=stream)
    structlog.get_logger().info(
        "oops",
        password="hunter2",
        sasl={"username": "u", "Password": "hunter2", "deep": {"api_token": "hunter2"}},
        config=SecretStr("hunter2"),
    )
    assert "hunter2" not in stream.getvalue()
    assert "***" in stream.getvalue()


@pytest.mark.parametrize("form", ["human", "json"])
def test_traceback_is_logged_with_its_event(form: str) -> None:
    """A fault can be found: its traceback is in the log, in one JSON line for machines."""
    stream = io.StringIO()
    configure_logging(Log.model_validate({"format": form}), stream=stream)
    try:
        raise LookupError("broken")
    except LookupError:
        structlog.get_logger().exception("admin_page_failed")
    assert "LookupError: broken" in stream.getvalue()
    if form == "json":
        assert "Traceback" in lines(stream)[0]["exception"]


@pytest.mark.parametrize("form", ["human", "json"])
def test_words_of_clients_are_cut_and_escaped(form: str) -> None:
    """A client's id neither commands the terminal, nor forges a line, nor fills the disk."""
    stream = io.StringIO()
    configure_logging(Log.model_validate({"format": form}), stream=stream)
    structlog.get_logger().warning(
        "group_refused", group="\x1b]0;owned\x07\x1b[2A\x9b2K\nforged\r" + "g" * 20_000, topics=["t\n"] * 10_000
    )
    text = stream.getvalue()
    assert len(text) < 1_500
    assert text.count("\n") == 1
    assert not set(text[:-1]) & {"\x1b", "\x07", "\x9b", "\r"}
    assert "u001b]0;owned" in text
    assert "9,968 more" in text


def test_problems_of_a_configuration_keep_their_lines() -> None:
    """What Kordon says to its operator is shown whole, line by line."""
    stream = Terminal()
    configure_logging(Log(), stream=stream)
    structlog.get_logger().error("reload_refused", problem="one\n" + "two " * 200)
    assert "one\ntwo two" in stream.getvalue() or "one\\ntwo two" in stream.getvalue()


def test_a_flood_of_one_cause_is_a_few_lines_and_at_debug_level_all() -> None:
    """`log.level: debug` lists each of the lines that are counted otherwise."""
    shown = {}
    for level in ("info", "debug"):
        stream = io.StringIO()
        configure_logging(Log.model_validate({"level": level}), stream=stream)
        for _ in range(500):
            client_log("test").warning("flood_of_this_test", group="g")
        shown[level] = len(lines(stream))
    assert shown == {"info": LINES, "debug": 500}
