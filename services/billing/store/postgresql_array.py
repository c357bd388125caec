"""Arrays as PostgreSQL writes them: a column of many rows goes in as one text. Pure; the PostgreSQL store's modules import it.

The driver's own way looks at every element several times and gives a list of numbers another type by how large they are, for
which the server would then plan the statement anew.
"""

from collections.abc import Iterable

Element = str | int | bytes | None


class Array(str):
    """An array's text. Its type is that of the place where it is used."""


def array(elements: Iterable[Element]) -> Array:
    """Of texts, integers or bytes, some of which may be absent."""
    return Array("{" + ",".join(map(_element, elements)) + "}")


def _element(element: Element) -> str:
    if element is None:
        return "NULL"
    if isinstance(element, int):
        return str(int(element))
    if isinstance(element, bytes):
        return '"\\\\x' + element.hex() + '"'
    return '"' + element.replace("\\", "\\\\").replace('"', '\\"') + '"'
