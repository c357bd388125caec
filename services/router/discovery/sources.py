"""`[[discover]]` of the settings: for each the template of its workers, and the source that finds them. The app imports it."""

from collections.abc import Mapping, Sequence
from typing import Any

from services.common.errors import ConfigurationError
from services.router.discovery.names import NameSource
from services.router.discovery.port import Source
from services.router.discovery.template import Template
from services.router.registration import InvalidRegistration
from services.router.transport.name_lookup import LOOKUP


def read_all(documents: Sequence[Mapping[str, Any]], interval_s: float) -> list[tuple[Template, Source]]:
    """`interval_s`: how often is looked where nobody says that something changed. ConfigurationError names what is wrong."""
    made: list[tuple[Template, Source]] = []
    for number, document in enumerate(documents):
        try:
            made.append(_read(document, interval_s))
        except InvalidRegistration as error:
            raise ConfigurationError(f"discover[{number}]: {error}") from None
    return made


def _read(document: Mapping[str, Any], interval_s: float) -> tuple[Template, Source]:
    template = Template(document)
    return template, NameSource(template.name, template.port, interval_s, LOOKUP)
