"""Names of hosts that no domain gives away, and ports, in a worker's words. Pure; imported by `safe_text_places.py` only.

A number after a word is a port only where the word, what stands before it, or the number itself says so: `trtllm:8000` is a
place, `limit:4096` and `max-tokens:8000` are not. A word with a number is a host where it is made like one: `gpu-node-17` and
`vllm-0` are machines, `gpt-4` and `llama-3` models, `node_1` may be a client's own name. Behind a slash stands a model's name.
In doubt a reader loses a number rather than an operator an address.
"""

import re

from services.common.visible_text import MASK

# What may follow an address: the path there.
REST = r"(?:/[^\s\"',;)\]}]*)?"
# A name without a dot, and what may be its port.
_LABEL = re.compile(
    r"(?<![\w.:/\\-])([a-z][a-z0-9_-]{0,62}):(\d{2,5})(?!\w|[.:]\d)" + REST, re.IGNORECASE
)  # fmt: skip
# A name that may be a machine's, and its domain.
_MACHINE = re.compile(
    r"(?<![\w./-])([a-z0-9]{1,40}(?:[-_][a-z0-9]{1,40}){0,8})(?:\.[a-z][a-z0-9-]{0,62}){0,8}(?![\w-]|\.\d)" + REST,
    re.IGNORECASE,
)
# Kubernetes' letters: no vowels, so that no word comes of them.
_LETTERS = "[bcdfghjklmnpqrstvwxz2456789]"
_TOLD = re.compile(
    r"\b(?:[a-z0-9]{1,20}_){0,3}ports?[\"']?(?:\s{1,3}number)?(?:\s{0,3}[:=#]\s{0,3}|\s{1,3}(?:(?:is|was)\s{1,3})?)[\"']?\d{1,5}\b"
    r"(?:\s{0,2}(?:-|,|to|and|or)\s{0,2}\d{1,5}\b){0,8}"
    r"|(?:(?<=\bon )|(?<=\bat )|(?<=\bto )|(?<=\*)):\d{2,5}\b"
    rf"|(?<![\w./-])[a-z][a-z0-9-]{{0,200}}-{_LETTERS}{{8,10}}-{_LETTERS}{{5}}(?![\w-])"
    # Instances of clouds.
    r"|\bi-[0-9a-f]{8}(?:[0-9a-f]{9})?\b|\bip-(?:\d{1,3}-){3}\d{1,3}\b"
    # Whatever is called a host.
    r"|(?:(?<=\bhost )|(?<=\bnode )|(?<=\bmachine )|(?<=\bpod )|(?<=\bhostname ))[\"']?(?=[a-z-]{1,60}\d)[a-z][\w.-]{0,252}"
    r"|(?:(?<=\bto host )|(?<=\bhost: )|(?<=\bhostname: )|(?<=\bhost ')|(?<=\bhost \"))[\w.-]{1,253}",
    re.IGNORECASE,
)
_PARTS = re.compile(r"[-_]")
_NUMBERED = re.compile(r"[a-z]?\d{1,5}\Z", re.IGNORECASE)
_DIGITS = "0123456789"

# Machines and what runs on them; with a number, one of several.
_MACHINES = frozenset({
    "backend", "container", "dgx", "envoy", "etcd", "frontend", "gateway", "gpu", "hgx", "host", "inference", "instance",
    "kafka", "leader", "machine", "master", "mongo", "mysql", "nats", "nginx", "node", "ollama", "pod", "postgres", "proxy",
    "rank", "redis", "replica", "runtime", "server", "sglang", "triton", "tritonserver", "trtllm", "upstream", "vllm", "vm",
    "worker",
})  # fmt: skip
# What else a host's name may end with where a port follows.
_HOSTS = _MACHINES | {
    "api", "cluster", "db", "engine", "head", "llama", "llm", "peer", "router", "service", "svc", "tensorrt", "trt", "web",
}  # fmt: skip
# What a quantity's name ends with.
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
# After these, a word with a number is a machine.
_WHERE = _BEFORE | {"by", "on", "reach"}
# After these stands a word of the client's.
_CLIENTS = frozenset({"argument", "field", "function", "parameter", "property", "role", "tool", "tools"})
_USUAL_PORTS = frozenset(
    (*range(8000, 8192), *range(8193, 9100), 3000, 5000, 5001, 5432, 6333, 6379, 7860, 9200, 11434, 30000, *range(50051, 50061))
)  # fmt: skip


def without_hosts(text: str) -> str:
    """The text with every host and port masked that is told without a domain."""
    return _MACHINE.sub(_machine, _TOLD.sub(MASK, _LABEL.sub(_port, text)))


def _port(found: re.Match[str]) -> str:
    label, port = found.group(1).lower(), int(found.group(2))
    parts = [part for part in _PARTS.split(label) if part]
    names = _bare(parts)
    last = names[-1]
    if last in _QUANTITIES or parts[-1] in ("k", "n", "p", "x"):
        return found.group()
    likely = port >= 1000 and (last in _HOSTS or "-" in label or any(map(str.isdigit, label)) or port in _USUAL_PORTS)
    return MASK if likely or _word_before(found) in _BEFORE else found.group()


def _machine(found: re.Match[str]) -> str:
    label = found.group(1).lower()
    parts = _PARTS.split(label)
    names = _bare(parts)
    if not _NUMBERED.match(parts[-1]) and parts[-1].rstrip(_DIGITS) not in _MACHINES:
        return found.group()
    if label[-1] not in _DIGITS or _QUANTITIES.intersection(names) or not _MACHINES.intersection(names):
        return found.group()
    before = _word_before(found)
    if "-" in label:
        return found.group() if before in _CLIENTS else MASK
    # Names in JSON and in code look like these as well.
    several = len(_HOSTS.intersection(names)) > 1
    return MASK if several or (len(parts) == 1 and before in _WHERE) else found.group()


def _bare(parts: list[str]) -> list[str]:
    return [name for name in (part.rstrip(_DIGITS) for part in parts) if name]


def _word_before(found: re.Match[str]) -> str:
    before = found.string[max(0, found.start() - 16) : found.start()].lower().rstrip("\"'([<").split()
    return before[-1] if before else ""
