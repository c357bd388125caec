"""Makes an input that breaks a promise smaller, as long as the same kind of exception comes of it. Pure."""

from collections.abc import Callable

Check = Callable[[bytes], None]
MAX_TRIES = 3_000


def failure_of(check: Check, data: bytes) -> BaseException | None:
    """What comes of an input, if anything."""
    try:
        check(data)
    except Exception as error:
        return error
    return None


def minimised(check: Check, data: bytes) -> bytes:
    """The input without the parts that do not matter; itself if it breaks nothing."""
    wanted = failure_of(check, data)
    if wanted is None:
        return data
    tries = 0
    size = max(1, len(data) // 2)
    while size:
        at = 0
        while at < len(data) and tries < MAX_TRIES:
            tries += 1
            shorter = data[:at] + data[at + size :]
            if type(failure_of(check, shorter)) is type(wanted):
                data = shorter
            else:
                at += size
        size //= 2
    return data
