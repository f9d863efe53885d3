"""Structured logs in the formats of Kubernetes: configured once, with one bound logger per component."""

from controller_manager.common.base.log.formats import MASKED, quote, without_secrets
from controller_manager.common.base.log.logger import DEBUG, Levels, Logger
from controller_manager.common.base.log.setup import Buffered, Streams, configure, get_logger

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
