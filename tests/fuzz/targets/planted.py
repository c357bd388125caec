"""A promise that is broken on purpose, so that the search itself is tested: it must find this."""

INSTRUMENTED = ("tests.fuzz.targets.planted",)


def check(data: bytes) -> None:
    """Fails for a seven after a brace; the search must find it letter by letter."""
    at = data.find(b"{")
    if at >= 0:
        assert b"7" not in data[at:], "planted"
