"""Which resource claims are created, reserved and released."""

import pytest

from controller_manager.common.api.core import Pod, PodResourceClaim, PodResourceClaimStatus, PodSpec, PodStatus
from controller_manager.common.api.devices import (
    DELETE_PROTECTION,
    POD_CLAIM,
    AllocationResult,
    ConsumerReference,
    ResourceClaim,
    ResourceClaimStatus,
)
from controller_manager.common.api.model import ObjectMeta, OwnerReference
from controller_manager.common.api.quota.device_claims import EXTENDED_CLAIM
from controller_manager.common.api.resource import Key
from controllers.resource_claim.decide import prefix, released, to_make, to_reserve
from controllers.resource_claim.metrics import source_of
from controllers.shared.device_claims import is_over

MADE = PodResourceClaim(name="made", resource_claim_template_name="t")
GIVEN = PodResourceClaim(name="given", resource_claim_name="c")


def pod(
    *entries: PodResourceClaim, node: str = "", phase: str = "", deleted: bool = False, **claim_names: str | None
) -> Pod:
    statuses = tuple(
        PodResourceClaimStatus(name=name, resource_claim_name=claim) for name, claim in claim_names.items()
    )
    return Pod(
        metadata=ObjectMeta(name="p", namespace="n", uid="u", deletion_timestamp="now" if deleted else None),
        spec=PodSpec(node_name=node, resource_claims=entries),
        status=PodStatus(phase=phase, resource_claim_statuses=statuses),
    )


def claim(*reserved_for: str, owner: str = "", allocated: bool = False, protected: bool = False, **meta: object):
    owners = (OwnerReference(api_version="v1", kind="Pod", name="p", uid=owner, controller=True),) if owner else ()
    return ResourceClaim(
        metadata=ObjectMeta(
            name="c",
            namespace="n",
            owner_references=owners,
            finalizers=("mine", DELETE_PROTECTION) if protected else ("mine",),
            **meta,
        ),
        status=ResourceClaimStatus(
            allocation=AllocationResult() if allocated else None,
            reserved_for=tuple(ConsumerReference(resource="pods", name=uid, uid=uid) for uid in reserved_for),
        ),
    )


@pytest.mark.parametrize(
    ("user", "there", "wanted"),
    [
        (pod(), None, []),
        (pod(GIVEN), None, []),
        (pod(MADE), None, ["made"]),
        (pod(MADE, made="c"), None, ["made"]),
        (pod(MADE, made="c"), claim(owner="u"), []),
        (pod(MADE, made="c"), claim(owner="another"), ["made"]),
        (pod(MADE, made="c"), claim(), ["made"]),
        (pod(MADE, made=None), None, []),
        (pod(GIVEN, MADE, other="c"), claim(owner="u"), ["made"]),
    ],
)
def test_claims_to_create_for_pod(user: Pod, there: ResourceClaim | None, wanted: list[str]) -> None:
    assert [entry.name for entry in to_make(user, {Key("n", "c"): there}.get)] == wanted


@pytest.mark.parametrize(
    ("user", "there", "wanted"),
    [
        (pod(GIVEN), claim(allocated=True), False),
        (pod(GIVEN, node="a"), None, False),
        (pod(GIVEN, node="a"), claim(), False),
        (pod(GIVEN, node="a"), claim(allocated=True), True),
        (pod(GIVEN, node="a"), claim("v", allocated=True), True),
        (pod(GIVEN, node="a"), claim("v", allocated=True, deletion_timestamp="now"), False),
        (pod(GIVEN, node="a"), claim("v", "u", allocated=True), False),
        (pod(MADE, node="a", made="c"), claim(owner="u", allocated=True), True),
        (pod(MADE, node="a", made="c"), claim(owner="another", allocated=True), False),
        (pod(MADE, node="a"), claim(owner="u", allocated=True), False),
    ],
)
def test_claims_to_reserve_for_pod(user: Pod, there: ResourceClaim | None, wanted: bool) -> None:
    assert to_reserve(user, {Key("n", "c"): there}.get) == ([there] if wanted else [])


@pytest.mark.parametrize(
    ("user", "over"),
    [
        (pod(), False),
        (pod(phase="Running", node="a"), False),
        (pod(phase="Succeeded", node="a"), True),
        (pod(phase="Failed"), True),
        (pod(deleted=True), True),
        (pod(deleted=True, node="a"), False),
        (pod(deleted=True, node="a", phase="Succeeded"), True),
    ],
)
def test_which_pods_are_over(user: Pod, over: bool) -> None:
    assert is_over(user) is over


@pytest.mark.parametrize(
    ("before", "remaining", "reserved", "allocated", "protected"),
    [
        (claim("u", "v", allocated=True, protected=True), ["u", "v"], ["u", "v"], True, True),
        (claim("u", "v", allocated=True, protected=True), ["v"], ["v"], True, True),
        (claim("u", allocated=True, protected=True), [], [], False, False),
        # The scheduler did not allocate it.
        (claim("u", allocated=True), [], [], True, False),
        # It was never reserved; a driver may reserve later.
        (claim(allocated=True, protected=True), [], [], True, True),
        (claim(protected=True), [], [], False, True),
        (claim(allocated=True, protected=True, deletion_timestamp="now"), [], [], False, False),
        (claim(protected=True, deletion_timestamp="now"), [], [], False, False),
        (claim("u", allocated=True, protected=True, deletion_timestamp="now"), ["u"], ["u"], True, True),
    ],
)
def test_released_claim_by_remaining_consumers(
    before: ResourceClaim, remaining: list[str], reserved: list[str], allocated: bool, protected: bool
) -> None:
    kept = tuple(one for one in before.status.reserved_for if one.uid in remaining)
    after = released(before, kept)
    assert [one.uid for one in after.status.reserved_for] == reserved
    assert (after.status.allocation is not None) is allocated
    assert after.metadata.finalizers == (("mine", DELETE_PROTECTION) if protected else ("mine",))


@pytest.mark.parametrize(
    ("pod_name", "entry", "wanted"),
    [
        ("p", "gpu", "p-gpu-"),
        ("a" * 50, "b" * 5, "a" * 50 + "-" + "b" * 5 + "-"),
        ("a" * 51, "b" * 5, "a" * 50 + "-" + "b" * 4),
        ("a" * 253, "b" * 63, "a" * 45 + "-" + "b" * 11),
    ],
)
def test_claim_name_prefix_from_pod_and_entry(pod_name: str, entry: str, wanted: str) -> None:
    assert prefix(pod_name, entry) == wanted


@pytest.mark.parametrize(
    ("annotations", "source"),
    [
        (None, ""),
        ({POD_CLAIM: ""}, ""),
        ({POD_CLAIM: "gpu"}, "resource_claim_template"),
        ({EXTENDED_CLAIM: "true"}, "extended_resource"),
        ({EXTENDED_CLAIM: "false"}, ""),
    ],
)
def test_claim_source_from_annotation(annotations: dict[str, str] | None, source: str) -> None:
    assert source_of(claim(annotations=annotations)) == source
