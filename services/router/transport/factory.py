"""Which transport a registration asks for. Registration and the registrar import it."""

from collections.abc import Mapping, Sequence

from services.common.settings import RouterLimits
from services.router.networks import Networks
from services.router.transport.openai_config import OpenAiConfig
from services.router.transport.openai_http import OpenAiTransport
from services.router.transport.port import Transport, TransportConfig
from services.router.transport.triton_config import TritonConfig

CONFIGS: Mapping[str, type[TransportConfig]] = {"openai": OpenAiConfig, "triton": TritonConfig}


def make(
    endpoint: str,
    config: TransportConfig,
    supported_models: Sequence[str],
    runtime: str,
    limits: RouterLimits,
    networks: Networks,
) -> Transport:
    """A transport to one worker; opens nothing yet."""
    if isinstance(config, OpenAiConfig):
        return OpenAiTransport(endpoint, config, supported_models, runtime, limits, networks=networks)
    assert isinstance(config, TritonConfig), "every config has its transport"
    # Imported only where one is registered: it brings a large library along.
    from services.router.transport.triton import TritonTransport

    return TritonTransport(endpoint, config, supported_models, runtime, limits, networks=networks)
