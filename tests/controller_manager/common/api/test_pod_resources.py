"""The resources that the containers of a pod need at most at any time."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controller_manager.common.api.pod_resources import container_total, largest, parsed, plus

AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory", "a/x"]), st.sampled_from(["0", "1", "2", "1500m", "1Ki"]))
CONTAINER = st.fixed_dictionaries({"asked": AMOUNTS}, optional={"restartPolicy": st.just("Always")})
SPECS = st.fixed_dictionaries({
    "containers": st.lists(CONTAINER, max_size=4), "initContainers": st.lists(CONTAINER, max_size=5),
})  # fmt: skip


@given(SPECS)
def test_pod_resources_are_the_maximum_over_time(spec: dict[str, Any]) -> None:
    """Containers run together with sidecars; before that, each init container runs beside earlier sidecars."""
    sidecars = [parsed(one["asked"]) for one in spec["initContainers"] if one.get("restartPolicy")]
    together: Any = {}
    for amounts in [*(parsed(one["asked"]) for one in spec["containers"]), *sidecars]:
        together = plus(together, amounts)
    moments = [together]
    beside: Any = {}
    for one in spec["initContainers"]:
        own = parsed(one["asked"])
        moments.append(plus(own, beside))
        if one.get("restartPolicy"):
            beside = plus(beside, own)
            moments.append(beside)
    found = container_total(spec, lambda container: parsed(container["asked"]))
    assert {name: one.number for name, one in found.items()} == {
        name: one.number for name, one in largest(*moments).items()
    }
