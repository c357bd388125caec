"""Where in its code a worker was, in its words: places in memory, objects, libraries, lines of source files. Pure; imported by
`safe_text.py` only.

A file's name alone may be the client's own word (a tool's, an attachment's) and stays; with the number of a line it is a place
in somebody's program. Small hexadecimal numbers are values; long ones are addresses.
"""

import re

from services.common.visible_text import MASK

_ENDING = (
    r"\.(?:py[xic]?|c|cc|cpp|cxx|cu|cuh|h|hh|hpp|hxx|inl|rs|go|so|java|kt|scala|cs|js|mjs|cjs|ts|tsx|rb|php|jinja2?|j2)"
)
_FILE = r"[\w./+-]{0,200}\w" + _ENDING
# As Python, compilers, C#, forges and people tell it.
_LINE = (
    r"(?::\d{1,6}(?::\d{1,6})?|\(\d{1,6}(?:[,:]\s?\d{1,6})?\)|#L\d{1,6}"
    r"|[\"']?(?:,|:)?\s{0,3}[\[(]?(?:(?:at|on|in)\s{1,3})?lines?[:#]?\s{0,3}#?\d{1,6}[\])]?)"
)
# The function there: after a comma always, else only what looks like no word.
_FUNCTION = (
    r"(?:,\s{1,3}in\s{1,3}[^\s,;]{1,200}"
    r"|\s{1,3}in\s{1,3}(?:<\w{1,60}>|[\w.:~]{1,200}\([^()\n]{0,200}\)|[a-z0-9.:~]{0,60}_[\w.:~]{0,200}))?"
)
_CODE = re.compile(
    # An object as Python shows it.
    r"<[\w.<>]{1,100}(?:\s[\w.<>]{1,100}){0,6} at 0x[0-9a-f]{1,16}>{1,3}"
    # Bounds of numbers are none.
    r"|\b0x(?!7?f{1,16}\b|[18]0{1,16}\b)[0-9a-f]{7,16}\b" + _FUNCTION +
    # An offset in a function, in a library.
    r"|(?<![\w:~.])\w[\w:~.]{0,200}(?:\([^()\n]{0,200}\))?\s?\+\s?0x[0-9a-f]{1,16}(?:/0x[0-9a-f]{1,8})?"
    r"|\blib[\w+-][\w+.-]{0,100}\.so(?:\.\d{1,4}){0,4}\b(?:\s?\(\+0x[0-9a-f]{1,16}\))?"
    r"|(?<![\w.+-])" + _FILE + _LINE + _FUNCTION +
    r"|\blines?[:#]?\s{0,3}\d{1,6}\s{1,3}(?:of|in|at)\s{1,3}(?:file\s{1,3})?[\"']?" + _FILE + r"\b"
    # A function and its line.
    r"|(?<![\w:~.])\w[\w:~.]{0,200}\([^()\n]{0,200}\)[,:]?\s{1,3}(?:(?:at|on)\s{1,3})?line\s{1,3}\d{1,6}\b"
    # Below a package that runtimes are made of.
    r"|(?<![\w./-])(?:vllm|sglang|tensorrt_llm|torch|transformers|tritonserver|uvicorn|starlette|fastapi|pydantic(?:_core)?)"
    r"(?:/[\w+-][\w.+-]{0,100}){1,20}" + _ENDING + r"\b"
    # Their modules and namespaces.
    r"|(?<![\w./:-])(?:vllm|sglang|tensorrt_llm|torch|transformers|tritonserver|uvicorn|starlette|fastapi)(?:\.\w{1,80}){2,12}"
    r"|(?<![\w:])(?:tensorrt_llm|nvinfer1|torch|c10|triton)(?:::[\w~]{1,80}){2,12}(?:\([^()\n]{0,200}\))?"
    r"|\b(?:pid|tid|process id|thread id)[ :=#]{0,3}\d{1,10}\b"
    # "To process 12 images" is nobody's process.
    r"|\bprocess\s{1,3}\d{1,10}(?=\s{1,3}(?:has|had|is|was|exited|died|crashed|failed|finished|received|terminated|uses)\b)",
    re.IGNORECASE,
)  # fmt: skip


def without_code(text: str) -> str:
    """The text with every place in a program masked."""
    return _CODE.sub(MASK, text)
