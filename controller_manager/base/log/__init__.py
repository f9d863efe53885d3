"""Structured logs in the forms users of Kubernetes know: configured once, one bound logger a component."""

from controller_manager.base.log.formats import quote
from controller_manager.base.log.logger import DEBUG, Levels, Logger
from controller_manager.base.log.mask import MASKED, without_secrets
from controller_manager.base.log.setup import configure, get_logger
from controller_manager.base.log.streams import Buffered, Streams

__all__ = [
    "DEBUG",
    "MASKED",
    "Buffered",
    "Levels",
    "Logger",
    "Streams",
    "configure",
    "get_logger",
    "quote",
    "without_secrets",
]
