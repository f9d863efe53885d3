"""Flags of tracing."""

from controller_manager.common.options.flag import Options, flag


class TracingOptions(Options):
    """Traces of requests."""

    title = "Traces"

    tracing_config_file: str = flag(
        "",
        "File with a TracingConfiguration: the collector of request spans (OpenTelemetry, OTLP over gRPC) and the"
        " sampling rate; without it requests are not traced.",
    )
