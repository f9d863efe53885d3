"""Flags of tracing."""

from controller_manager.common.options import Options, flag


class TracingOptions(Options):
    """Traces of requests."""

    title = "Traces"

    tracing_config_file: str = flag(
        "",
        "File of a TracingConfiguration, which says where spans of requests go (OpenTelemetry, OTLP over gRPC) and how "
        "many; no request is traced without it.",
    )
