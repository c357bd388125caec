"""A worker's script, spoilt at random: bytes dropped, doubled, swapped, cut, changed or sent in other pieces. Pure but for the
`Random` that is given.

Two kinds: `inside` spoils what is in a well-formed HTTP answer, `outside` the answer's own bytes, framing included. Either way
the worker closes at the end, so that nobody waits for bytes that were dropped.
"""

import json
import re
from collections.abc import Sequence
from random import Random

from tests.fakes import scripts
from tests.fakes.scenarios import table
from tests.fakes.scripts import Close, HalfClose, Reset, Step

_CHUNK = re.compile(rb"([0-9a-f]+)\r\n")
MAX_BYTES = 64 * 1024
# What is put into a text at some place.
_WORDS = (
    b"\n", b"\r", b"\n\n", b"data: ", b"data: [DONE]\n\n", b"event: error\n", b": c\n\n", b"\x00", b"\xff", b"\xef\xbb\xbf",
    b'"', b"{", b"}", b"null", b"-1", b'"usage":null,', b'"usage":{"prompt_tokens":3,"completion_tokens":1},',
    b'"finish_reason":"abort",', b'"error":"x",', b"9", b"\\ud83d", b'"mod\\u0065l":"w",',
)  # fmt: skip


def base(name: str, chance: Random) -> list[Step]:
    """A stream that is well and good, in one of the ways that workers have."""
    words = ["Hello", ", world", " 那😀"][: chance.randint(1, 3)]
    counts = scripts.usage(12, len(words), cached=chance.choice((None, 0, 5, 12)))
    if chance.random() < 0.4:
        frames = [
            {**scripts.delta(name, content=word), "usage": chance.choice((None, scripts.usage(12, number), counts))}
            for number, word in enumerate(words, 1)
        ]
        return scripts.stream(*frames, {**scripts.delta(name, finish_reason="stop"), "usage": counts})
    return scripts.chat_stream(name, words, counts, done=chance.random() < 0.8)


def known(chance: Random) -> list[Step]:
    """The script of a scenario of the table, if it is one that ends by itself and soon."""
    scripted = [
        list(scenario.script)
        for scenario in table.ALL.values()
        if scenario.stream and not callable(scenario.script) and not scenario.request
    ]
    short = [
        steps
        for steps in scripted
        if all(isinstance(step, bytes | Close | Reset) for step in steps)
        and sum(len(step) for step in steps if isinstance(step, bytes)) < MAX_BYTES
    ]
    return chance.choice(short)


def whole(name: str, chance: Random) -> list[Step]:
    """A whole answer, its JSON and sometimes its HTTP spoilt."""
    body = json.dumps(scripts.chat_whole(name, "Hello", scripts.usage(12, 2, cached=chance.choice((None, 3))))).encode()
    pieces = [body]
    for _ in range(chance.randint(0, 2)):
        pieces = _changed(pieces, chance)
    pieces = [scripts.answer(200, b"".join(pieces).removeprefix(b"data: ").strip())]
    if chance.random() < 0.2:
        pieces = _changed(pieces, chance)
    return _ended(pieces, chance)


def spoilt(steps: Sequence[Step], chance: Random) -> list[Step]:
    """The script with a few things wrong, perhaps none."""
    pieces = [step for step in steps if isinstance(step, bytes)]
    if chance.random() < 0.6:
        return _inside(pieces, chance)
    for _ in range(chance.randint(0, 3)):
        pieces = _changed(pieces, chance)
    return _ended(pieces, chance)


def show(steps: Sequence[Step]) -> str:
    """The script as text that Python reads again."""
    return "[\n" + "".join(f"    {step!r},\n" for step in steps) + "]"


def _inside(pieces: list[bytes], chance: Random) -> list[Step]:
    events = [each for piece in pieces[1:] if (each := _unchunked(piece))]
    for _ in range(chance.randint(0, 3)):
        events = _changed(events, chance)
    body = b"".join(events)[:MAX_BYTES]
    cut = _pieces(body, chance)
    if chance.random() < 0.5:
        return _ended([scripts.SSE_HEAD_UNTIL_CLOSE, *cut], chance)
    end = [scripts.LAST_CHUNK] if chance.random() < 0.8 else []
    return _ended([scripts.SSE_HEAD, *(scripts.chunk(part) for part in cut if part), *end], chance)


def _unchunked(piece: bytes) -> bytes:
    """The event in a chunk of its own, as scripts make them."""
    found = _CHUNK.match(piece)
    return piece[found.end() :][: int(found.group(1), 16)] if found else b""


def _changed(pieces: list[bytes], chance: Random) -> list[bytes]:
    pieces = list(pieces)
    if not pieces:
        return pieces
    at = chance.randrange(len(pieces))
    piece = pieces[at]
    place = chance.randint(0, len(piece))
    kind = chance.randrange(7)
    if kind == 0:
        del pieces[at]
    elif kind == 1:
        pieces.insert(at, piece)
    elif kind == 2:
        other = chance.randrange(len(pieces))
        pieces[at], pieces[other] = pieces[other], piece
    elif kind == 3:
        pieces[at] = piece[:place]
    elif kind == 4:
        pieces[at] = piece[:place] + bytes([chance.randrange(256)]) + piece[place + 1 :]
    elif kind == 5:
        pieces[at] = piece[:place] + chance.choice(_WORDS) + piece[place:]
    else:
        pieces[at] = _member(piece, chance)
    return pieces


def _member(piece: bytes, chance: Random) -> bytes:
    """The event with one member of its JSON set anew, where it is JSON."""
    try:
        frame = json.loads(piece.removeprefix(b"data: "))
    except ValueError:
        return piece
    if not isinstance(frame, dict):
        return piece
    name = chance.choice(("usage", "choices", "model", "error", "x"))
    number = chance.choice((0, 1, -1, 2**31, "7", None, 3.5, 2**31 - 1))
    frame[name] = chance.choice((None, {}, [], number, {"prompt_tokens": number, "completion_tokens": 4}))
    return b"data: " + json.dumps(frame).encode() + b"\n\n"


def _pieces(body: bytes, chance: Random) -> list[bytes]:
    places = sorted(chance.randint(0, len(body)) for _ in range(chance.randint(0, 12)))
    return [body[start:end] for start, end in zip([0, *places], [*places, len(body)], strict=True)]


def _ended(pieces: Sequence[bytes], chance: Random) -> list[Step]:
    ends: tuple[Step, ...] = (Close(), Close(), Close(), Reset())
    half: list[Step] = [HalfClose()] if chance.random() < 0.1 else []
    return [*pieces, *half, chance.choice(ends)]
