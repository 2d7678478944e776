"""Logging: one event name and its facts per line, for a person on a terminal and as JSON for everything else.

Modules log through `structlog.get_logger(__name__)`, and through `client_log(__name__)` what a client can bring about
at will; what libraries log through the standard library comes out in the same form. An event's name is one word in
snake_case, its facts are keywords with units in their names. Secrets are masked by key, whatever the caller passes.
Texts are escaped and cut, because clients choose some of them.
"""

from __future__ import annotations

import logging
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TextIO

import structlog

from kordon.codecs.shown_text import MOST_CHARACTERS, shown, shown_facts
from kordon.proxy.runtime.log_limits import limits

if TYPE_CHECKING:
    from collections.abc import Generator

    from structlog.typing import EventDict, Processor, WrappedLogger

    from kordon.proxy.config.config import Log

SECRET_KEYS: Final = ("password", "secret", "token", "passphrase", "sasl_auth", "credential")
"""A fact whose key contains one of these is masked."""

_SENTENCES: Final = {"error": 1024, "detail": 1024}
"""Facts that Kordon words, with a client's word in them at times; so many characters are shown of each."""
_OWN: Final = ("cure", "problem")
"""Facts that are Kordon's own or the configuration's; they are shown as they are, line by line."""

_JSON: Final[tuple[Processor, ...]] = (
    structlog.processors.format_exc_info,
    structlog.processors.JSONRenderer(default=str),
)
"""A traceback is one field for a machine; for a person the human renderer puts it below the line."""

LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def configure_logging(log: Log, *, stream: TextIO | None = None, worker: int | None = None) -> None:
    """Sets up logging for the whole process; again, with another level, while it runs.

    Args:
        stream: The stream to which lines go. It is standard error unless given.
        worker: The number of the worker, which stands in every line if there are several.
    """
    target: TextIO = sys.stderr if stream is None else stream
    level = LEVELS[log.level]
    human = target.isatty() if log.format == "auto" else log.format == "human"
    limited: list[Processor] = [limits] if level > logging.DEBUG else []
    shared = [*limited, *_shared_processors(worker)]
    render: list[Processor] = [_human_renderer(target)] if human else [_facts_last, *_JSON]
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, *shared, *render],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(target),
        cache_logger_on_first_use=False,  # a reload may change the level
    )
    _route_standard_library(target, max(level, logging.INFO), shared, render)


@contextmanager
def silence() -> Generator[None, None, None]:
    """Logs nothing meanwhile; for commands that print what they find."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**before)


def _shared_processors(worker: int | None) -> list[Processor]:
    def add_worker(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
        return {**event, "worker": worker}

    return [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        *([add_worker] if worker is not None else []),
        mask_secrets,
        make_fit,
    ]


def _facts_last(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Time, level and event stand first, because people read JSON, too."""
    first = {key: event[key] for key in ("timestamp", "level", "event") if key in event}
    return {**first, **event}


def _human_renderer(stream: TextIO) -> Processor:
    return structlog.dev.ConsoleRenderer(
        colors=stream.isatty(), pad_event_to=30, exception_formatter=structlog.dev.plain_traceback
    )


def _route_standard_library(stream: TextIO, level: int, shared: list[Processor], render: list[Processor]) -> None:
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[_add_logger_name, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *render],
        )
    )
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.captureWarnings(capture=True)


def _add_logger_name(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Says which library a foreign line comes from."""
    record: logging.LogRecord | None = event.get("_record")
    return event if record is None else {**event, "logger": record.name}


def mask_secrets(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Masks the facts of a line whose key says they are secret, nested ones included."""
    return {key: _masked(key, value) for key, value in event.items()}


def make_fit(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Escapes and cuts the texts of a line: many are words of clients, which may be long, or commands to a terminal."""
    return {key: _fit(key, value) for key, value in event.items()}


def _fit(key: str, value: object) -> object:
    if isinstance(value, str) and key in _OWN:
        return shown(value, keeps_lines=True)
    return shown_facts(value, _SENTENCES.get(key, MOST_CHARACTERS))


def _masked(key: str, value: object) -> object:
    if any(secret in key.lower() for secret in SECRET_KEYS):
        return "***"
    if isinstance(value, dict):
        return {str(name): _masked(str(name), entry) for name, entry in value.items()}
    return value
