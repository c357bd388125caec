"""Makes the gRPC stubs in gen/ from proto/; --check says whether they are stale, --lint runs buf over the protos."""

import argparse
import filecmp
import subprocess
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

import google.type
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTO = ROOT / "proto"
GEN = ROOT / "gen"


def sources() -> list[str]:
    return sorted(str(path.relative_to(PROTO)) for path in PROTO.rglob("*.proto"))


def includes() -> list[str]:
    well_known = files("grpc_tools") / "_proto"
    # A namespace package: its folder is in its path, not in a file of its own.
    google_apis = Path(next(iter(google.type.__path__))).parent.parent
    return [f"-I{PROTO}", f"-I{well_known}", f"-I{google_apis}"]


def compile_to(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    outputs = [f"--{kind}_out={folder}" for kind in ("python", "grpc_python")]
    outputs += [f"--{kind}_out=quiet:{folder}" for kind in ("mypy", "mypy_grpc")]
    # Typed stubs come from a plugin, which stands beside the interpreter and not always on PATH.
    beside = Path(sys.executable).parent
    plugins = [f"--plugin=protoc-gen-{name}={beside / f'protoc-gen-{name}'}" for name in ("mypy", "mypy_grpc")]
    if protoc.main(["protoc", *includes(), *plugins, *outputs, *sources()]) != 0:
        raise SystemExit("protoc failed")
    packages = {path.parent for path in folder.rglob("*.py")}
    for package in {parent for path in packages for parent in (path, *path.parents) if folder in parent.parents}:
        (package / "__init__.py").touch()


def stale(fresh: Path) -> list[str]:
    names = {
        str(path.relative_to(root))
        for root in (fresh, GEN)
        for path in root.rglob("*.py*")
        if path.suffix in (".py", ".pyi")
    }
    return sorted(
        name
        for name in names
        if not (fresh / name).exists()
        or not (GEN / name).exists()
        or not filecmp.cmp(fresh / name, GEN / name, shallow=False)
    )


def lint() -> int:
    with tempfile.TemporaryDirectory() as folder:
        image = Path(folder) / "protos.binpb"
        arguments = ["protoc", *includes(), "--include_imports", "--include_source_info", f"-o{image}", *sources()]
        if protoc.main(arguments) != 0:
            return 1
        buf = Path(sys.executable).parent / "buf"
        return subprocess.run([buf, "lint", image, "--config", ROOT / "buf.yaml"], check=False).returncode  # noqa: S603


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--lint", action="store_true")
    arguments = parser.parse_args()
    if arguments.lint:
        return lint()
    if arguments.check:
        with tempfile.TemporaryDirectory() as folder:
            compile_to(Path(folder))
            if names := stale(Path(folder)):
                sys.stderr.write(f"stale stubs, run `make proto`: {', '.join(names)}\n")
                return 1
        return 0
    compile_to(GEN)
    return 0


if __name__ == "__main__":
    sys.exit(main())
