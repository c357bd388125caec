"""Finds the Triton server inside the wheel `nvidia-pytriton`, and says what is missing where it cannot run.

The wheel's Python package is never imported: its dependencies are not installed. Only its server binary, its Python
backend and its libraries are used. Runs in any interpreter; the environment that has the wheel is given by its path.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

# The wheel carries stubs (the processes in which models' Python code runs) for Python 3.8 to 3.13, but all of them were
# built for numpy 1: with numpy 2 the first text tensor kills the process. numpy 1 ends with Python 3.12.
PYTHON_VERSIONS = ("3.11", "3.12")
GLIBC_NEEDED = (2, 35)

# Asked of the environment's own interpreter, since ours may be another one.
_QUESTIONS = """
import json, os, platform, sys, sysconfig
try:
    libc = os.confstr("CS_GNU_LIBC_VERSION")
except (AttributeError, ValueError, OSError):
    libc = None
print(json.dumps({
    "version": "%d.%d" % sys.version_info[:2],
    "system": sys.platform,
    "machine": platform.machine(),
    "libc": libc,
    "site_packages": sysconfig.get_path("platlib"),
    "library_dirs": [d for d in (
        sysconfig.get_config_var("LIBDIR"),
        os.path.join(sysconfig.get_config_var("LIBDIR") or "", sysconfig.get_config_var("MULTIARCH") or ""),
        os.path.join(sys.base_prefix, "lib"),
    ) if d],
}))
"""


@dataclass(frozen=True)
class Interpreter:
    """What Triton needs to know about the Python that will run its models."""

    version: str
    system: str
    machine: str
    libc: str | None
    site_packages: str
    library_dirs: list[str]

    @classmethod
    def of(cls, venv: Path) -> Interpreter:
        answer = subprocess.run(
            [str(venv / "bin" / "python"), "-I", "-c", _QUESTIONS],
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
        return cls(**json.loads(answer.stdout))

    @property
    def libpython(self) -> Path | None:
        """The shared library of this Python, which the stub is linked against."""
        name = f"libpython{self.version}.so.1.0"
        return next((Path(d, name) for d in self.library_dirs if Path(d, name).exists()), None)


@dataclass(frozen=True)
class TritonInstall:
    venv: Path
    interpreter: Interpreter

    @property
    def server(self) -> Path:
        return self._root / "bin" / "tritonserver"

    @property
    def stub(self) -> Path:
        return self._root / "python_backend_stubs" / self.interpreter.version / "triton_python_backend_stub"

    @property
    def caches(self) -> Path:
        return self._root / "caches"

    @property
    def _root(self) -> Path:
        return Path(self.interpreter.site_packages, "pytriton", "tritonserver")

    def environment(self) -> dict[str, str]:
        """Variables for the server: it finds its libraries, and its stubs find this environment's packages."""
        variables = {k: v for k, v in os.environ.items() if k not in {"PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV"}}
        libraries = [str(Path(self.interpreter.site_packages, "nvidia_pytriton.libs"))]
        if self.interpreter.libpython is not None:
            libraries.append(str(self.interpreter.libpython.parent))
        if inherited := variables.get("LD_LIBRARY_PATH"):
            libraries.append(inherited)
        variables["LD_LIBRARY_PATH"] = ":".join(libraries)
        # An embedded interpreter looks up `python3` on PATH to learn which environment it is in.
        variables["PATH"] = f"{self.venv.absolute() / 'bin'}:{variables.get('PATH', os.defpath)}"
        return variables

    def lay_out(self, work_dir: Path) -> Path:
        """A backend directory as Triton wants it, made of links; returns its path. Safe to repeat and to share.

        The wheel keeps the stub away from the backend that needs it, and must not be changed. Three links are made in
        a moment and always point to the installed version, so there is nothing to copy and no version to remember.
        """
        backend = work_dir.absolute() / "backends" / "python"
        backend.mkdir(parents=True, exist_ok=True)
        installed = self._root / "backends" / "python"
        _link(installed / "libtriton_python.so", backend)
        _link(installed / "triton_python_backend_utils.py", backend)
        _link(self.stub, backend)
        return backend.parent


def find_triton(venv: Path) -> TritonInstall:
    """Raises RuntimeError with unavailable_reason()'s text."""
    if reason := unavailable_reason(venv):
        raise RuntimeError(reason)
    return TritonInstall(venv, Interpreter.of(venv))


def unavailable_reason(venv: Path | str | None = None, *, installed: bool = True) -> str | None:
    """Why Triton cannot run with the Python environment `venv` (default: the running one); None if it can.

    With `installed=False` only the machine and the Python are judged: whether it is worth installing the wheel.
    """
    place = Path(venv) if venv is not None else Path(sys.prefix)
    if not (place / "bin" / "python").exists():
        return f"there is no Python environment in {place}"
    try:
        python = Interpreter.of(place)
    except (OSError, subprocess.SubprocessError) as error:
        return f"the Python in {place} does not run: {error}"
    if python.system != "linux" or python.machine != "x86_64":
        return f"Triton's wheel is for Linux on x86_64; this is {python.system} on {python.machine}"
    found = re.fullmatch(r"glibc (\d+)\.(\d+).*", python.libc or "")
    if found is None:
        return "Triton's wheel needs glibc 2.35 or newer; this system has another C library"
    if (int(found[1]), int(found[2])) < GLIBC_NEEDED:
        return f"Triton's wheel needs glibc 2.35 or newer; this system has {found[1]}.{found[2]}"
    if python.version not in PYTHON_VERSIONS:
        return f"Triton's wheel needs Python {' or '.join(PYTHON_VERSIONS)} (numpy 1); {place} has {python.version}"
    install = TritonInstall(place, python)
    if installed and not (install.server.exists() and install.stub.exists()):
        return f"nvidia-pytriton is not installed in {place}: see requirements/demo-triton.txt"
    if python.libpython is None:
        return (
            f"Triton needs the shared library libpython{python.version}.so.1.0, which this Python does not have (looked "
            f"in {', '.join(python.library_dirs)}); a Python built with --enable-shared, uv's or conda's has it"
        )
    return None


def _link(target: Path, folder: Path) -> None:
    # By way of a second name, so that a server that starts at this moment finds the old link or the new one.
    fresh = folder / f".{target.name}.{os.getpid()}"
    fresh.unlink(missing_ok=True)
    if os.access(target, os.X_OK) or target.suffix:
        fresh.symlink_to(target)
    else:  # some installers drop the execute bit, and the wheel's own file is not ours to change
        shutil.copyfile(target, fresh)
        fresh.chmod(0o755)
    fresh.replace(folder / target.name)
