"""The flags of the horizontal pod autoscaler controller."""

from controller_manager.options import Duration, Int32, Options, flag


class AutoscalerOptions(Options):
    """Times and limits of scaling."""

    title = "Horizontal pod autoscaler controller"

    concurrent_horizontal_pod_autoscaler_syncs: Int32 = flag(
        5, "autoscalers that write at the same time; metrics are fetched for many more", minimum=1
    )
    horizontal_pod_autoscaler_sync_period: Duration = flag(
        "15s", "how often the number of pods is looked at", minimum=0.001
    )
    horizontal_pod_autoscaler_downscale_stabilization: Duration = flag(
        "5m", "how long back the highest number that was recommended holds off a smaller one", minimum=0
    )
    horizontal_pod_autoscaler_cpu_initialization_period: Duration = flag(
        "5m", "how long after a pod's start its use of CPU may be left out", minimum=0
    )
    horizontal_pod_autoscaler_initial_readiness_delay: Duration = flag(
        "30s", "how long after a pod's start a change of its readiness counts as its first", minimum=0
    )
    horizontal_pod_autoscaler_tolerance: float = flag(
        0.1, "how far the ratio of actual to wanted may be from 1.0 before anything is scaled", minimum=0
    )
