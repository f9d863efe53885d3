"""TracingConfiguration: fields and validation."""

from pathlib import Path
from urllib.parse import urlsplit

from apiserver_stub.common.config_file import ConfigDocument, read_config, refuse_causes
from apiserver_stub.common.error_list import ErrorList
from controller_manager.common.api.platform import GROUP_DOMAIN

KIND = "TracingConfiguration"
_MILLION = 1_000_000
_SCHEMES = ("dns", "unix", "unix-abstract")
_VERSIONS = ("config.{}/v1", "{}/v1beta1", "{}/v1alpha1")
_DEFAULT = "localhost:4317"


class TracingConfiguration(ConfigDocument):
    """The document. Spans are sent to `endpoint` without TLS. `sampling_rate_per_million` of a million requests without
    a sampled parent are traced.
    """

    endpoint: str = ""
    sampling_rate_per_million: int = 0

    @property
    def target(self) -> str:
        """Return the endpoint as libraries of gRPC call it."""
        scheme, _, rest = self.endpoint.partition("://")
        if not rest:
            return self.endpoint or _DEFAULT
        if scheme == "dns":  # after the DNS authority, which is usually empty
            return rest.partition("/")[2] or rest
        return f"{scheme}:{rest}"


def read_tracing(path: Path) -> TracingConfiguration:
    """Return the configuration in a file. Raises `ConfigFileError`."""
    types = {f"apiserver.{version.format(GROUP_DOMAIN)}": TracingConfiguration for version in _VERSIONS}
    found = read_config(path, KIND, types)
    errors = ErrorList()
    judge(found, errors)
    refuse_causes(path, errors.causes)
    return found


def judge(configuration: TracingConfiguration, errors: ErrorList) -> None:
    """Collect the validation errors of a configuration."""
    rate, endpoint = configuration.sampling_rate_per_million, configuration.endpoint
    if not 0 <= rate <= _MILLION:
        errors.invalid((None, "samplingRatePerMillion"), rate, "must be between 0 and 1000000")
    if "//" not in endpoint:
        endpoint = f"dns://{endpoint}"
    try:
        scheme = urlsplit(endpoint).scheme
    except ValueError as error:
        errors.invalid((None, "endpoint"), endpoint, str(error))
        return
    if scheme not in _SCHEMES:
        errors.invalid((None, "endpoint"), endpoint, "the scheme must be dns, unix, unix-abstract, or none")
