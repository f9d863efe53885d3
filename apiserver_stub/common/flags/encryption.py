"""Flags of encryption at rest."""

from typing import Self

from pydantic import model_validator

from controller_manager.common.options.flag import Options, flag


class EncryptionOptions(Options):
    """Encryption of objects in the storage."""

    title = "Encryption at rest"

    encryption_provider_config: str = flag(
        "",
        "File with an EncryptionConfiguration: the resources to encrypt, and the providers.",
    )
    encryption_provider_config_automatic_reload: bool = flag(
        False, "Whether --encryption-provider-config is reloaded when it changes; an invalid file is ignored."
    )

    @model_validator(mode="after")
    def _come_together(self) -> Self:
        if self.encryption_provider_config_automatic_reload and not self.encryption_provider_config:
            raise ValueError("--encryption-provider-config-automatic-reload needs --encryption-provider-config")
        return self
