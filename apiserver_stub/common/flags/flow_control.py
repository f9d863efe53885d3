"""Flags of flow control: limits of concurrent requests."""

from typing import Self

from pydantic import model_validator

from controller_manager.common.options.flag import Options, flag


class FlowControlOptions(Options):
    """Limits of concurrent requests."""

    title = "Flow control"

    enable_priority_and_fairness: bool = flag(
        True,
        "Whether FlowSchemas and PriorityLevelConfigurations control the order and concurrency of requests.",
    )
    max_requests_inflight: int = flag(
        400,
        "With priority and fairness, the sum of this and --max-mutating-requests-inflight is the number of seats "
        "of the server. Without it, the maximum number of concurrent reading requests; 0 disables the limit.",
        minimum=0,
    )
    max_mutating_requests_inflight: int = flag(
        200,
        "With priority and fairness, the sum of this and --max-requests-inflight is the number of seats of the "
        "server. Without it, the maximum number of concurrent mutating requests; 0 disables the limit.",
        minimum=0,
    )

    @property
    def seats(self) -> int:
        """The seats of the server."""
        return self.max_requests_inflight + self.max_mutating_requests_inflight

    @model_validator(mode="after")
    def _has_seats(self) -> Self:
        if self.enable_priority_and_fairness and not self.seats:
            raise ValueError(
                "--max-requests-inflight and --max-mutating-requests-inflight must not both be 0 with "
                "--enable-priority-and-fairness"
            )
        return self
