"""Where things are, in a worker's words: addresses, hosts, paths. Pure; imported by `safe_text.py` only.

A number after a word is a port only where the word, what stands before it, or the number itself says so: `trtllm:8000` is a
place, `limit:4096` and `max-tokens:8000` are not. In doubt a reader loses a number rather than an operator an address.
"""

import re
from ipaddress import IPv6Address

MASK = "***"

_NAME = r"[a-z0-9](?:[a-z0-9_-]{0,62}\.){1,10}"
# What may follow an address: the path there.
_REST = r"(?:/[^\s\"',;)\]}]*)?"
_PLACE = re.compile(
    r"\b[a-z][a-z0-9+.-]{0,30}://\S+"
    # gRPC's ways to name a place.
    r"|\b(?:unix(?:-abstract)?|vsock|ipv[46]|dns|ipc|inproc|file):(?=[\w/@\[.])[^\s\"',;)]+"
    # A user's name and password before a host.
    r"|\b[\w.+-]{1,64}:[^\s@/:\"']{1,128}@[\w.-]{1,253}(?::\d{1,5})?" + _REST +
    # Windows' paths, also with their backslashes doubled, and its shares.
    r"|(?<![a-z0-9])[a-z]:(?:\\{1,2}|/)(?:[^\\/\n\"'<>|:*?]{1,100}(?:\\{1,2}|/)){0,20}[^\s\\/\"'<>|:*?,;)]{0,100}"
    r"|(?<!\\)\\{2,4}[a-z0-9][\w.$-]{0,62}\\{1,2}[^\s\"',;)]+"
    # Below somebody's home, or where a variable says.
    r"|(?<![\w~])~(?:[a-z_][\w.-]{0,31})?/[\w.][^\s\"',;)]*"
    r"|\$(?:\{[a-z_]{1,30}\}|[a-z_]{1,30})/[^\s\"',;)]+|%[a-z_]{1,30}%\\[^\s\"',;)]+"
    r"|\b(?:\d{1,3}\.){3}\d{1,3}(?::\d{1,5})?\b"
    + _REST
    + r"|\[[0-9a-f:.]{2,45}(?:%[\w.-]{1,20})?\](?::\d{1,5})?"
    + _REST
    + rf"|\b{_NAME}(?:internal|local|localdomain|lan|intranet|corp|svc)\b(?::\d{{1,5}}\b)?"
    + _REST
    + rf"|\b(?:localhost|{_NAME}[a-z][a-z0-9-]{{0,62}}):\d{{1,5}}\b"
    + _REST
    + r"|\bip-(?:\d{1,3}-){3}\d{1,3}\b"
    # As Python's and Go's clients tell it.
    r"|\b(?:host|hostname|peer|upstream|server|addr|address)=[\"']?[a-z0-9][\w.-]*|(?<=\blookup )[\w.-]{1,253}(?= on\b)"
    # Source files: below a root, or with the number of a line.
    r"|(?<![\w.])(?:/[\w.+@-]{1,100}){2,30}(?::\d{1,6}|\(\d{1,6}\))?"
    r"|(?<![\w.])[\w./+-]{0,200}\w\.(?:pyx?|c|cc|cpp|cxx|cu|cuh|h|hpp|rs|go|so)(?::\d{1,6}|\(\d{1,6}\))",
    re.IGNORECASE,
)
# Whatever might be an IPv6 address without brackets; the library says whether it is.
_COLONS = re.compile(r"(?<![\w:.])[0-9a-f]{0,4}:[0-9a-f.:]{1,42}(?:%[\w.-]{1,20})?(?![\w])", re.IGNORECASE)
# A name without a dot, and what may be its port.
_LABEL = re.compile(
    r"(?<![\w.:/\\-])([a-z][a-z0-9_-]{0,62}):(\d{2,5})(?!\w|[.:]\d)" + _REST, re.IGNORECASE
)  # fmt: skip
_PARTS = re.compile(r"[-_]")

# What a name of a host ends with, and what a quantity's name ends with.
_HOSTS = frozenset({
    "api", "backend", "cluster", "container", "db", "engine", "etcd", "frontend", "gateway", "gpu", "head", "host",
    "inference", "instance", "kafka", "leader", "llama", "llm", "machine", "master", "mongo", "mysql", "nats",
    "nginx", "node", "ollama", "peer", "pod", "postgres", "proxy", "rank", "redis", "replica", "router", "runtime",
    "server", "service", "sglang", "svc", "tensorrt", "triton", "trt", "trtllm", "tritonserver", "upstream", "vllm",
    "vm", "web", "worker",
})  # fmt: skip
_QUANTITIES = frozenset({
    "axis", "batch", "beam", "beams", "bf", "bytes", "capacity", "chars", "code", "col", "column", "columns",
    "context", "count", "dim", "dimension", "dims", "epoch", "errno", "error", "exit", "float", "fp", "got", "height",
    "id", "ids", "index", "int", "item", "items", "layer", "layers", "len", "length", "level", "limit", "line",
    "lines", "max", "min", "ms", "num", "number", "offset", "page", "param", "percent", "pid", "pos", "position",
    "prompt", "rate", "ratio", "retries", "row", "rows", "seconds", "seed", "seq", "sequence", "shape", "size",
    "status", "step", "steps", "tid", "time", "timeout", "token", "tokens", "total", "uint", "used", "value",
    "version", "vocab", "width",
})  # fmt: skip
# After these stands a place, whatever it is called.
_BEFORE = frozenset({
    "addr", "address", "at", "backend", "connect", "connecting", "connection", "dial", "endpoint", "from", "host",
    "peer", "server", "tcp", "to", "udp", "upstream", "via",
})  # fmt: skip
_USUAL_PORTS = frozenset(
    (*range(8000, 8192), *range(8193, 9100), 3000, 5000, 5001, 5432, 6333, 6379, 7860, 9200, 11434, 30000, *range(50051, 50061))
)  # fmt: skip


def without_places(text: str) -> str:
    """The text with everything that tells where something is masked."""
    return _COLONS.sub(_ipv6, _LABEL.sub(_port, _PLACE.sub(MASK, text)))


def _ipv6(found: re.Match[str]) -> str:
    text = found.group()
    address = text.rstrip(".:") if not text.endswith("::") else text
    try:
        IPv6Address(address)
    except ValueError:
        return text
    # Names of code may look so as well (`a::b`), but seldom with a digit.
    return MASK + text[len(address) :] if any(map(str.isdigit, address)) else text


def _port(found: re.Match[str]) -> str:
    label, port = found.group(1).lower(), int(found.group(2))
    parts = [part for part in _PARTS.split(label) if part]
    names = [name for name in (part.rstrip("0123456789") for part in parts) if name]
    last = names[-1]
    if last in _QUANTITIES or parts[-1] in ("k", "n", "p", "x"):
        return found.group()
    before = found.string[max(0, found.start() - 16) : found.start()].lower().rstrip("\"'([<").split()
    likely = port >= 1000 and (last in _HOSTS or "-" in label or any(map(str.isdigit, label)) or port in _USUAL_PORTS)
    return MASK if likely or (before and before[-1] in _BEFORE) else found.group()
