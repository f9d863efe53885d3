"""The SELinux labels that a pod wants for its volumes; pure.

Container options override those of the pod. A label is user, role, type and level, joined by colons. Missing parts
stay empty, since only nodes know their defaults.
"""

from collections.abc import Iterator, Mapping

from controller_manager.common.api.core import Pod
from controller_manager.common.api.model import Model, Object


class SELinuxOptions(Model):
    user: str = ""
    role: str = ""
    type: str = ""
    level: str = ""


class _ContainerSecurity(Model):
    se_linux_options: SELinuxOptions | None = None


class _PodSecurity(Model):
    se_linux_options: SELinuxOptions | None = None
    se_linux_change_policy: str | None = None


class _Mount(Model):
    name: str = ""


class _Container(Model):
    volume_mounts: tuple[_Mount, ...] = ()
    security_context: _ContainerSecurity | None = None


class _Spec(Model):
    containers: tuple[_Container, ...] = ()
    init_containers: tuple[_Container, ...] = ()
    ephemeral_containers: tuple[_Container, ...] = ()
    security_context: _PodSecurity | None = None


class SecuredPod(Object):
    """The SELinux fields of a pod, decoded from its bytes so that other controllers do not store them."""

    spec: _Spec = _Spec()

    @classmethod
    def of(cls, pod: Pod) -> "SecuredPod":
        """Return the SELinux fields of a pod."""
        return cls.decode(pod.raw, keep=False)

    @property
    def change_policy(self) -> str:
        """Return the policy by which volumes get their label: by mount option or recursively."""
        context = self.spec.security_context
        return (context.se_linux_change_policy if context is not None else None) or MOUNT_OPTION

    def labels(self) -> Mapping[str, frozenset[str]]:
        """Return the labels of the containers that mount each volume, by volume name."""
        found: dict[str, set[str]] = {}
        for container in self._containers():
            options = self._options(container)
            for mount in container.volume_mounts:
                labels = found.setdefault(mount.name, set())
                if options is not None:
                    labels.add(label_of(options))
        return {name: frozenset(labels) for name, labels in found.items()}

    def _containers(self) -> Iterator[_Container]:
        spec = self.spec
        yield from (*spec.init_containers, *spec.containers, *spec.ephemeral_containers)

    def _options(self, container: _Container) -> SELinuxOptions | None:
        own = container.security_context.se_linux_options if container.security_context is not None else None
        if own is not None:
            return own
        return self.spec.security_context.se_linux_options if self.spec.security_context is not None else None


MOUNT_OPTION, RECURSIVE = "MountOption", "Recursive"


def label_of(options: SELinuxOptions) -> str:
    """Return the label of options, or an empty string."""
    label = f"{options.user}:{options.role}:{options.type}:{options.level}"
    return label if label != ":::" else ""


def conflict(one: str, other: str) -> bool:
    """Return whether two labels conflict on a volume.

    Levels must be equal. An empty user, role or type matches any.
    """
    (*first, level), (*second, other_level) = _parts(one), _parts(other)
    return level != other_level or any(a and b and a != b for a, b in zip(first, second, strict=True))


def _parts(label: str) -> tuple[str, ...]:
    parts = label.split(":", 3)
    return (*parts, *[""] * (4 - len(parts)))
