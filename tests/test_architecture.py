"""Rules of the architecture that the import contract in pyproject.toml cannot express."""

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "cometad"
RESEARCH = ROOT / "bench" / "src" / "cometad_bench"
FILES = sorted(PACKAGE.rglob("*.py"))


@cache
def tree(path):
    return ast.parse(path.read_text(), str(path))


def name(path):
    return path.relative_to(PACKAGE).as_posix()


def imports(path):
    """The modules a file imports, at its top or inside a function; `from a import b` gives a.b."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name(path)}:{node.lineno} is a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imports_package(path, package):
    return any(f"{module}.".startswith(f"{package}.") for module in imports(path))


def float_aliases(path):
    """Names assigned to an array type with a float type in it, such as `Floats = NDArray[np.float64]`."""
    for node in ast.walk(tree(path)):
        match node:
            case ast.Assign(value=ast.Subscript() as value):
                written = ast.unparse(value)
            case ast.AnnAssign(annotation=ast.Name("TypeAlias"), value=ast.Subscript() as value):
                written = ast.unparse(value)
            case _:
                continue
        if written.startswith(("NDArray[", "npt.NDArray[")) and "float" in written:
            yield f"{name(path)}:{node.lineno} {ast.unparse(node)}"


def test_no_class_name_is_used_twice():
    places = defaultdict(list)
    for path in (*FILES, *RESEARCH.rglob("*.py")):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef):
                places[node.name.lstrip("_")].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    twice = [f"{found}: {', '.join(where)}" for found, where in places.items() if len(where) > 1]
    assert not twice, "\n".join(twice)


def test_torch_is_imported_only_by_the_network():
    users = {name(path) for path in FILES if imports_package(path, "torch")}
    users |= {name(path) for path in FILES if imports_package(path, "safetensors.torch")}
    assert {user for user in users if not user.startswith("network/")} == set()


def test_the_aliases_of_float_arrays_are_declared_once():
    assert [found for path in FILES if name(path) != "arrays.py" for found in float_aliases(path)] == []
    assert len(list(float_aliases(PACKAGE / "arrays.py"))) == 2


def test_only_the_entry_point_imports_the_command_line():
    users = {name(path) for path in FILES if imports_package(path, "cometad.cli")}
    assert {user for user in users if not user.startswith("cli/")} == {"__main__.py"}


def in_the_loop(function):
    """What an `async def` does itself: not what it hands to a thread, which is in a function or a lambda of its own."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield node
            yield from in_the_loop(node)


def test_no_event_loop_waits_for_the_database():
    found = [
        f"{name(path)}:{node.lineno} {ast.unparse(node)}"
        for path in FILES
        if path.is_relative_to(PACKAGE / "serve") or path.is_relative_to(PACKAGE / "connect")
        for function in ast.walk(tree(path))
        if isinstance(function, ast.AsyncFunctionDef)
        for node in in_the_loop(function)
        if isinstance(node, ast.Attribute)
        and ast.unparse(node).endswith(("store.read", "store.write", "intake.position"))
    ]
    assert not found, "\n".join(found)


def test_the_committed_results_are_small():
    size = sum(path.stat().st_size for path in (ROOT / "bench" / "results").rglob("*") if path.is_file())
    assert size < 5_000_000
