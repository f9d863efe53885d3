"""AppArmor profiles: the annotation of a container that older clients write, and the field that took its place."""

from apiserver_stub.kinds.schema import Tree

ANNOTATION = "container.apparmor.security.beta.kubernetes.io/"
_LOCALHOST = "localhost/"
_LISTS = ("initContainers", "containers", "ephemeralContainers")
_LONGEST = 4095


def profile_of(annotation: str) -> Tree | None:
    """The profile that an annotation stands for; None when it is none."""
    if annotation == "unconfined":
        return {"type": "Unconfined"}
    if annotation == "runtime/default":
        return {"type": "RuntimeDefault"}
    name = annotation.removeprefix(_LOCALHOST).strip()
    if annotation.startswith(_LOCALHOST) and 0 < len(name) <= _LONGEST and name == annotation[len(_LOCALHOST) :]:
        return {"type": "Localhost", "localhostProfile": name}
    return None


def sync_app_armor(pod: Tree) -> None:
    """Give the containers of a new pod the profiles of their annotations, where that says more than the pod's."""
    annotations = pod.get("metadata", {}).get("annotations") or {}
    spec = pod.get("spec") or {}
    if not any(name.startswith(ANNOTATION) for name in annotations):
        return
    if (spec.get("os") or {}).get("name") == "windows":
        return
    whole = (spec.get("securityContext") or {}).get("appArmorProfile")
    for container in (container for field in _LISTS for container in spec.get(field) or ()):
        profile = profile_of(annotations.get(ANNOTATION + container.get("name", ""), ""))
        context = container.get("securityContext") or {}
        if profile is not None and profile != whole and "appArmorProfile" not in context:
            container["securityContext"] = {**context, "appArmorProfile": profile}
