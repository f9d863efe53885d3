"""The page of metrics, whole in one piece."""

from prometheus_client import CollectorRegistry

from controller_manager.api.wire import Response
from controller_manager.serving.exposition import PLAIN, pieces


def metrics_page(registry: CollectorRegistry) -> Response:
    """Every metric in the Prometheus text format 0.0.4."""
    return Response(200, {"content-type": PLAIN.content_type}, "".join(pieces(registry.collect(), PLAIN)).encode())
