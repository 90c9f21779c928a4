"""The package structure of uulearn: imports point down, packages keep their private names, one name has one meaning.

Each test collects every violation and reports all of them in one message. Imports inside functions and under
``TYPE_CHECKING`` count like any other.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

# From the bottom to the top. A package may import its own layer and the layers below it.
LAYERS: list[tuple[str, set[str]]] = [
    ("base", {"_version", "defaults", "exceptions", "markup", "storage"}),
    ("core", {"risk"}),
    ("networks", {"models"}),
    ("statistics", {"metrics", "priors", "theory"}),
    ("training", {"data", "datasets", "training"}),
    ("files", {"io", "streaming", "tabular"}),
    ("estimators", {"estimator"}),
    ("practice", {"selection", "surrogate"}),
    ("applications", {"app", "engines", "export", "integrations", "report", "reproduction"}),
    ("interface", {"__main__", "cli"}),
]
# Names that several packages define on purpose, with the same meaning; each entry needs a reason.
SAME_MEANING: dict[str, str] = {}

ROOT = Path(__file__).resolve().parents[1] / "src" / "uulearn"


@dataclass(frozen=True)
class Module:
    """One source file: its dotted name, the package that it belongs to, and its syntax tree."""

    name: str
    path: str
    package: str
    tree: ast.Module = field(repr=False)


@dataclass(frozen=True)
class Import:
    """One imported name, with absolute module names."""

    source: Module
    line: int
    target: str
    """The module that is imported, or that the name is imported from."""
    name: str | None
    """The imported name for ``from target import name``; None for ``import target``."""
    local: str | None
    """The local name that the import binds."""

    @property
    def where(self) -> str:
        return f"{self.source.path}:{self.line}"


def read_modules(root: Path) -> list[Module]:
    modules = []
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if parts == ("__init__",):  # the public facade, which re-exports lazily from every layer
            continue
        dotted = parts[:-1] if parts[-1] == "__init__" else parts
        name = ".".join((root.name, *dotted))
        shown = f"src/{root.name}/{path.relative_to(root)}"
        modules.append(Module(name, shown, parts[0], ast.parse(path.read_text("utf-8"))))
    return modules


def imports_of(module: Module, known: set[str]) -> Iterator[Import]:
    """Every import of a uulearn module, including relative ones and ``importlib.import_module`` with a literal."""
    is_package = module.path.endswith("/__init__.py")
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(module, node.lineno, alias.name, None, alias.asname)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                own = module.name.split(".") if is_package else module.name.split(".")[:-1]
                base = ".".join([*own[: len(own) - node.level + 1], *filter(None, [node.module])])
            for alias in node.names:
                target = f"{base}.{alias.name}"
                bound = alias.asname or alias.name
                if target in known:
                    yield Import(module, node.lineno, target, None, bound)
                else:
                    yield Import(module, node.lineno, base, alias.name, bound)
        elif isinstance(node, ast.Call) and _called_name(node) == "import_module" and node.args:
            first = node.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield Import(module, node.lineno, first.value, None, None)


def _called_name(call: ast.Call) -> str | None:
    return getattr(call.func, "attr", getattr(call.func, "id", None))


def package_of(module: str, root: str = "uulearn") -> str | None:
    """The package or top-level file of a dotted module name; "" for uulearn itself, None for other libraries."""
    first, _, rest = module.partition(".")
    return rest.split(".")[0] if first == root else None


def is_private(name: str) -> bool:
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__"))


def upward_imports(modules: Iterable[Module]) -> list[str]:
    modules = list(modules)
    known = {module.name for module in modules}
    rank = {package: number for number, (_, packages) in enumerate(LAYERS) for package in packages}
    layer = {package: name for name, packages in LAYERS for package in packages}
    found = [
        f"{module.path}: package {module.package!r} is in no layer; add it to LAYERS"
        for module in modules
        if module.package not in rank
    ]
    for module in modules:
        for imported in imports_of(module, known):
            package = package_of(imported.target)
            if package is None or package == module.package or module.package not in rank:
                continue
            if package == "":
                found.append(
                    f"{imported.where}: imports {imported.name or 'uulearn'} from the facade; name its package"
                )
            elif package in rank and rank[package] > rank[module.package]:
                found.append(
                    f"{imported.where}: {module.package} ({layer[module.package]}) imports {imported.target} "
                    f"({layer[package]}), a higher layer"
                )
    return found


def package_cycles(modules: Iterable[Module]) -> list[str]:
    modules = list(modules)
    known = {module.name for module in modules}
    edges: dict[str, dict[str, str]] = defaultdict(dict)
    for module in modules:
        for imported in imports_of(module, known):
            package = package_of(imported.target)
            if package and package != module.package:
                edges[module.package].setdefault(package, imported.where)

    def path_between(start: str, end: str) -> list[str] | None:
        """The packages of the shortest import path, both ends included."""
        paths = [[start]]
        seen = {start}
        for path in paths:
            for following in edges[path[-1]]:
                if following == end:
                    return [*path, end]
                if following not in seen:
                    seen.add(following)
                    paths.append([*path, following])
        return None

    cycles = {}
    for package in list(edges):
        cycle = path_between(package, package)
        if cycle is not None:
            steps = [f"{first} -> {second} ({edges[first][second]})" for first, second in pairwise(cycle)]
            cycles[frozenset(cycle)] = "; ".join(steps)
    return sorted(cycles.values())


def private_uses(modules: Iterable[Module]) -> list[str]:
    """Uses of a name that starts with an underscore and belongs to another package."""
    modules = list(modules)
    known = {module.name for module in modules}
    owners: dict[str, set[str]] = defaultdict(set)
    for module in modules:
        for name in private_attributes(module.tree):
            owners[name].add(module.package)
    found = []
    for module in modules:
        foreign = {}  # local name -> module of another package
        for imported in imports_of(module, known):
            package = package_of(imported.target)
            if not package or package == module.package:
                continue
            names = [*imported.target.split(".")[2:], *filter(None, [imported.name])]
            found += [
                f"{imported.where}: {module.package} imports {name} of {package}" for name in names if is_private(name)
            ]
            if imported.name is None and imported.local is not None:
                foreign[imported.local] = imported.target
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.Attribute) or not is_private(node.attr) or _is_own_object(node.value):
                continue
            where = f"{module.path}:{node.lineno}"
            target = foreign.get(node.value.id) if isinstance(node.value, ast.Name) else None
            if target is not None:
                found.append(f"{where}: {module.package} uses {target}.{node.attr}")
            elif owners[node.attr] and module.package not in owners[node.attr]:
                found.append(f"{where}: {module.package} uses .{node.attr} of {', '.join(sorted(owners[node.attr]))}")
    return found


def _is_own_object(node: ast.expr) -> bool:
    """Whether an attribute is read from ``self``, ``cls`` or ``super()``."""
    if isinstance(node, ast.Call):
        return _called_name(node) == "super"
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def private_attributes(tree: ast.Module) -> set[str]:
    """Private methods, properties, class attributes and ``self._name`` assignments of the classes in a module."""
    found = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        for item in node.body:
            if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
                found.add(item.name)
            found |= {target.id for target in _assigned(item) if isinstance(target, ast.Name)}
        for item in ast.walk(node):
            found |= {
                target.attr
                for target in _assigned(item)
                if isinstance(target, ast.Attribute) and _is_own_object(target.value)
            }
    return {name for name in found if is_private(name)}


def _assigned(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return [
            item for target in node.targets for item in (target.elts if isinstance(target, ast.Tuple) else [target])
        ]
    return [node.target] if isinstance(node, ast.AnnAssign | ast.AugAssign) else []


def name_collisions(modules: Iterable[Module]) -> list[str]:
    """Public classes of one name, and upper-case constants of one name and different values, in several packages."""
    classes: dict[str, dict[str, str]] = defaultdict(dict)
    constants: dict[str, dict[str, tuple[str, str]]] = defaultdict(dict)
    for module in modules:
        for node in module.tree.body:
            where = f"{module.path}:{node.lineno}"
            if isinstance(node, ast.ClassDef) and not is_private(node.name):
                classes[node.name].setdefault(module.package, where)
            targets, value = _assigned(node), getattr(node, "value", None)
            matched = isinstance(value, ast.Tuple) and len(targets) == len(value.elts) > 1
            for target, part in zip(targets, value.elts if matched else [value] * len(targets), strict=True):
                if isinstance(target, ast.Name) and _is_constant(target.id) and part is not None:
                    constants[target.id].setdefault(module.package, (where, ast.unparse(part)))
    found = [
        f"class {name} is defined in {len(places)} packages: {', '.join(places.values())}"
        for name, places in sorted(classes.items())
        if len(places) > 1 and name not in SAME_MEANING
    ]
    for name, definitions in sorted(constants.items()):
        if len({value for _, value in definitions.values()}) > 1 and name not in SAME_MEANING:
            places = [f"{where} ({value[:40]})" for where, value in definitions.values()]
            found.append(f"constant {name} has several values: {', '.join(places)}")
    return found


def _is_constant(name: str) -> bool:
    return not name.startswith("_") and name.isupper() and len(name) > 1


CHECKS = {
    "upward imports": upward_imports,
    "package cycles": package_cycles,
    "private names of other packages": private_uses,
    "names with several meanings": name_collisions,
}


@cache
def source_modules() -> list[Module]:
    return read_modules(ROOT)


@pytest.mark.parametrize("check", CHECKS)
def test_source_has_no_violations(check: str) -> None:
    violations = CHECKS[check](source_modules())
    assert not violations, f"{len(violations)} {check}:\n" + "\n".join(violations)


def test_every_layer_names_existing_packages() -> None:
    existing = {module.package for module in source_modules()} | {"defaults"}
    assert {package for _, packages in LAYERS for package in packages} <= existing


def small_project(root: Path, **files: str) -> list[Module]:
    """Modules of a made-up package ``uulearn``; a file name has ``__`` for a slash."""
    for name, text in files.items():
        path = root / "uulearn" / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return read_modules(root / "uulearn")


@pytest.mark.parametrize(
    "text",
    [
        "from uulearn.estimator import UUClassifier",
        "import uulearn.estimator.classifier",
        "from uulearn import estimator",
        "from ..estimator import UUClassifier",
        "def fit():\n    from uulearn.estimator import UUClassifier",
        "if TYPE_CHECKING:\n    from uulearn.estimator import UUClassifier",
        "importlib.import_module('uulearn.estimator')",
        "from uulearn import UUClassifier",
    ],
)
def test_finds_upward_import(tmp_path: Path, text: str) -> None:
    modules = small_project(tmp_path, risk__losses=text, estimator__classifier="from uulearn.risk import losses")
    assert len(upward_imports(modules)) == 1


def test_finds_package_outside_the_layers(tmp_path: Path) -> None:
    assert "'helpers' is in no layer" in upward_imports(small_project(tmp_path, helpers__text=""))[0]


def test_finds_cycle_within_a_layer(tmp_path: Path) -> None:
    modules = small_project(
        tmp_path,
        app__fit="from uulearn.report import page",
        report__page="from uulearn.export import graph",
        export__graph="def f():\n    import uulearn.app.fit",
        cli__fit="import uulearn.app.fit",
    )
    (cycle,) = package_cycles(modules)
    assert all(f"{a} -> {b}" in cycle for a, b in [("app", "report"), ("report", "export"), ("export", "app")])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from uulearn.risk.losses import _check", True),
        ("from uulearn.risk import losses\nlosses._check()", True),
        ("import uulearn.risk.losses as module\nmodule._check()", True),
        ("from uulearn.risk._private import check", True),
        ("def f(loss):\n    return loss._value", True),
        ("def f(fit):\n    return fit.loss._compute()", True),
        ("class A:\n    def f(self):\n        return self._value", False),
        ("class A:\n    _value = 1\ndef f(loss):\n    return loss._value", False),
        ("def f(rows):\n    return rows._replace(n=1)", False),
        ("from uulearn._version import __version__", False),
    ],
)
def test_finds_private_names_of_other_packages(tmp_path: Path, text: str, found: bool) -> None:
    losses = (
        "class Loss:\n    def __init__(self):\n        self._value = 1\n    def _compute(self): ...\ndef _check(): ..."
    )
    modules = small_project(tmp_path, risk__losses=losses, risk___private="", _version="", models__mlp=text)
    assert bool(private_uses(modules)) is found


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ("class Column: ...", "class Column: ...", True),
        ("class _Column: ...", "class _Column: ...", False),
        ("HELD_OUT = 0.1", "HELD_OUT = 0.2", True),
        ("HELD_OUT: float = 0.1", "HELD_OUT = 0.1", False),
        ("LOW, HIGH = 0.1, 0.9", "HIGH = 0.9", False),
        ("LOW, HIGH = 0.1, 0.9", "HIGH = 0.8", True),
        ("HELD_OUT = 0.1", "from uulearn.risk.a import HELD_OUT", False),
    ],
)
def test_finds_names_with_several_meanings(tmp_path: Path, first: str, second: str, found: bool) -> None:
    assert bool(name_collisions(small_project(tmp_path, risk__a=first, models__b=second))) is found
