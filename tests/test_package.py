"""The public names of `import uulearn`, and the libraries it does not import."""

import ast
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest

import uulearn
from uulearn.app import diagnostics

ROOT = Path(__file__).resolve().parents[1]


def python(code):
    return subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120)


def test_importing_the_package_does_not_wait_for_torch():
    done = python("import sys, uulearn, uulearn.cli; print('torch' in sys.modules)")
    assert done.stdout.strip() == "False", done.stderr


def test_importing_the_loss_loads_neither_scikit_learn_nor_the_command_line():
    heavy = (
        "sklearn",
        "scipy",
        "pandas",
        "matplotlib",
        "typer",
        "rich",
        "torch._dynamo",
        "torch._inductor",
        "transformers",
    )
    done = python(
        f"import sys, uulearn; uulearn.UURisk((0.8, 0.2), 0.5); print([m for m in {heavy!r} if m in sys.modules])"
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_estimator_loads_on_first_use():
    assert python("import uulearn; print(uulearn.UUClassifier.__name__)").stdout.strip() == "UUClassifier"


def test_public_names_exist():
    for name in uulearn.__all__:
        assert getattr(uulearn, name) is not None
    assert set(uulearn.__all__) <= set(dir(uulearn))
    with pytest.raises(AttributeError, match="no attribute 'UUClasifier'"):
        _ = uulearn.UUClasifier


def test_imported_packages_are_dependencies():
    """A package that another dependency happens to install can be missing in its next version."""
    declared = {*diagnostics.CORE, *chain(*diagnostics.EXTRAS.values())}  # test_doctor.py compares with pyproject.toml
    listed = {name.replace("-", "_") for name in declared}
    # Names that differ from their package, and packages that come with torch (triton) and pooch (requests).
    listed |= {"sklearn", "PIL", "triton", "requests", "uulearn"}
    imported = set()
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imported.add(node.module.split(".")[0])
    assert imported - sys.stdlib_module_names - listed == set()
