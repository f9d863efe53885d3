"""The metrics of this process as a page, as its flags describe it."""

from typing import ClassVar

from prometheus_client import CollectorRegistry

from controller_manager.api.wire import Request, Response
from controller_manager.app.pages import Handler
from controller_manager.options import Options
from controller_manager.serving.pages import metrics_page


class MetricsOptions(Options):
    """What the page of metrics shows."""

    title: ClassVar[str] = "Metrics"


def metrics_handler(registry: CollectorRegistry, options: MetricsOptions) -> Handler:
    """Answers /metrics."""

    async def answer(_: Request) -> Response:
        return metrics_page(registry)

    return answer
