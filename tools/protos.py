"""Makes the gRPC stubs in gen/ from proto/; --check says whether they are stale, --lint runs buf over the protos, --breaking
has it compare them with those of the last release, whose wheel stands in tests/releases."""

import argparse
import ast
import filecmp
import re
import subprocess
import sys
import tempfile
import zipfile
from importlib import import_module
from importlib.resources import files
from pathlib import Path

import google.type
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
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


def buf(command: str, *arguments: str | Path) -> int:
    """Run buf over the protos."""
    with tempfile.TemporaryDirectory() as folder:
        image = Path(folder) / "protos.binpb"
        compiling = ["protoc", *includes(), "--include_imports", "--include_source_info", f"-o{image}", *sources()]
        if protoc.main(compiling) != 0:
            return 1
        program = Path(sys.executable).parent / "buf"
        asked = [program, command, image, "--config", ROOT / "buf.yaml", *arguments]
        return subprocess.run(asked, check=False).returncode  # noqa: S603


def released() -> FileDescriptorSet:
    """The protos of the last release, from the stubs in its wheel, with what they import."""
    found: dict[str, FileDescriptorProto] = {}
    with zipfile.ZipFile(next((ROOT / "tests/releases").glob("speedinfer-*.whl"))) as wheel:
        for name in wheel.namelist():
            if name.startswith("speedinfer/") and name.endswith("_pb2.py"):
                literal = re.search(r"AddSerializedFile\((b'.*')\)", wheel.read(name).decode())
                assert literal, f"{name} is no generated stub"
                file = FileDescriptorProto.FromString(ast.literal_eval(literal[1]))
                found[file.name] = file
    assert found, "the release has no stubs"
    waiting = [name for file in found.values() for name in file.dependency]
    while waiting:
        if (name := waiting.pop()) not in found:
            found[name] = FileDescriptorProto()
            stub = import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
            stub.DESCRIPTOR.CopyToProto(found[name])
            waiting += found[name].dependency
    for file in found.values():
        for message in file.message_type:
            name_for_json(message)
    return FileDescriptorSet(file=found.values())


def name_for_json(message: DescriptorProto) -> None:
    """What generated stubs leave out: every field's name in JSON, where it is the usual one."""
    for field in message.field:
        first, *rest = field.name.split("_")
        field.json_name = field.json_name or first + "".join(word.capitalize() for word in rest)
    for nested in message.nested_type:
        name_for_json(nested)


def breaking() -> int:
    with tempfile.TemporaryDirectory() as folder:
        image = Path(folder) / "released.binpb"
        image.write_bytes(released().SerializeToString())
        return buf("breaking", "--against", image)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--lint", action="store_true")
    parser.add_argument("--breaking", action="store_true")
    arguments = parser.parse_args()
    if arguments.lint:
        return buf("lint")
    if arguments.breaking:
        return breaking()
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
