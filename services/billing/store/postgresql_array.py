"""Arrays as PostgreSQL writes them: a column of many rows goes in as one text. Pure; the PostgreSQL store's modules import it.

The driver's own way looks at every element several times and gives a list of numbers another type by how large they are, for
which the server would then plan the statement anew.
"""

from collections.abc import Iterable

Element = str | int | bytes | None


class Array(str):
    """An array's text. Its type is that of the place where it is used."""


def array(elements: Iterable[Element]) -> Array:
    """Of texts, of integers or of bytes, some of which may be absent."""
    values = list(elements)
    kind = next((type(value) for value in values if value is not None), int)
    written: Iterable[str]
    if issubclass(kind, int):
        # Of an IntEnum the number, which is what its text is.
        written = ["NULL" if value is None else str(value) for value in values]
    elif kind is bytes:
        written = ["NULL" if value is None else f'"\\\\x{value.hex()}"' for value in values]  # type: ignore[union-attr]
    else:
        if None not in values:
            # Nearly always nothing has to be escaped: no quote is there but those that separate.
            joined = '","'.join(values)  # type: ignore[arg-type]
            if "\\" not in joined and joined.count('"') == 2 * (len(values) - 1):
                return Array(f'{{"{joined}"}}')
        written = map(_text, values)  # type: ignore[arg-type]
    return Array("{" + ",".join(written) + "}")


def _text(text: str | None) -> str:
    if text is None:
        return "NULL"
    if "\\" in text or '"' in text:
        text = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
