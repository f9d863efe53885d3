"""Flags of encryption at rest."""

from typing import Self

from pydantic import model_validator

from controller_manager.common.options import Options, flag


class EncryptionOptions(Options):
    """Encryption of objects in the storage."""

    title = "Encryption at rest"

    encryption_provider_config: str = flag(
        "",
        "File with an EncryptionConfiguration: which resources are kept encrypted, and by which providers.",
    )
    encryption_provider_config_automatic_reload: bool = flag(
        False, "Whether --encryption-provider-config is read again when it changes; one that is broken changes nothing."
    )

    @model_validator(mode="after")
    def _come_together(self) -> Self:
        if self.encryption_provider_config_automatic_reload and not self.encryption_provider_config:
            raise ValueError("--encryption-provider-config-automatic-reload needs --encryption-provider-config")
        return self
