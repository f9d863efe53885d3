"""Pages about the process itself: its metrics and its configuration."""

from collections.abc import Mapping
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from controller_manager.api.wire import Response
from controller_manager.serving.exposition import PLAIN, pieces


def metrics_page(registry: CollectorRegistry) -> Response:
    """Every metric in the Prometheus text format 0.0.4."""
    return Response(200, {"content-type": PLAIN.content_type}, "".join(pieces(registry.collect(), PLAIN)).encode())


def configz_page(name: str, settings: Mapping[str, Any]) -> Response:
    """The options in effect as JSON, below the name of their component."""
    return Response(200, {"content-type": "application/json"}, msgspec.json.encode({name: settings}))
