"""Set up structured logging for the process; called once, by the command line."""

from __future__ import annotations

import logging
import sys
from typing import Any, TextIO

import structlog

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def configure_logging(level: str = "info", style: str = "auto", stream: TextIO | None = None, color: bool | None = None) -> None:
    """Write events to `stream` (stderr): JSON lines, or text where a person reads them."""
    out = stream or sys.stderr
    as_text = style == "text" or (style == "auto" and out.isatty())
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _text(out, color) if as_text else structlog.processors.JSONRenderer(default=str, ensure_ascii=False),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(out),
        cache_logger_on_first_use=False,
    )
    _adopt_stdlib()


def _text(out: TextIO, color: bool | None) -> Any:
    return structlog.dev.ConsoleRenderer(colors=out.isatty() if color is None else color)


class _Forward(logging.Handler):
    """Hand records of libraries that use the standard logging module to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        log = structlog.get_logger().bind(logger=record.name)
        extra = {"exc_info": record.exc_info} if record.exc_info else {}
        log.log(record.levelno, record.getMessage(), **extra)


def _adopt_stdlib() -> None:
    root = logging.getLogger()
    root.handlers = [_Forward()]
    root.setLevel(logging.WARNING)
