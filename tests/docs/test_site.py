"""The documentation site builds without a warning, its links lead somewhere, and its reference is complete."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

import uulearn

ROOT = Path(__file__).resolve().parents[2]
MODULES = [name for name in uulearn.__all__ if isinstance(getattr(uulearn, name), types.ModuleType)]
MODULES += ["estimator", "report", "metrics.calibration", "data.augmentation", "training.batched"]

pytest.importorskip("mkdocs")


def load(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "building" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # which named tuples look themselves up in
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def checker():
    yield load("check_links")
    del sys.modules["check_links"]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    # Without --quiet, which would also hide the warnings from --strict.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def text_of(page):
    return page.read_text(encoding="utf-8")


# ---------------------------------------------------------------------------------------------------------- the build


def test_every_link_anchor_and_image_leads_somewhere(site, checker):
    assert list(checker.find_faults(site)) == []
    assert checker.count_references(site) > 2000


def test_pages_fetch_nothing_from_elsewhere(site, checker):
    fetched = {
        reference.target
        for page in site.rglob("*.html")
        for reference in checker.read_page(text_of(page)).references
        if reference.is_fetched
    }
    assert fetched
    assert not [target for target in fetched if "//" in target]
    styles = "".join(text_of(sheet) for sheet in site.rglob("*.css"))
    assert not re.findall(r"url\(['\"]?https?:|@import", styles)
    assert "javascripts/iframe-worker.js" in text_of(site / "index.html")


def test_pages_outside_of_docs_are_copied(site):
    for name in ("results/table3.html", "results/figure1.png", "CHANGELOG.html"):
        assert (site / "repository" / name).is_file()
    assert 'href="repository/results/table3.html"' in text_of(site / "reproduction.html")


def test_prompts_are_distinguished_from_code(site):
    assert '<span class="gp">&gt;&gt;&gt; </span>' in text_of(site / "start" / "notebook.html")


# ------------------------------------------------------------------------------------------------------- the reference


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_is_described(site, name):
    module = importlib.import_module(f"uulearn.{name}")
    offered = getattr(module, "__all__", None) or [
        each
        for each, value in vars(module).items()
        if not each.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]
    assert offered
    described = {
        anchor
        for page in (site / "reference").glob("*.html")
        for anchor in re.findall(r'id="(uulearn\.[^"]+)"', text_of(page))
    }
    assert {f"uulearn.{name}.{each}" for each in offered} - described == set()


def test_the_reference_names_all_that_the_package_exports(site):
    index = text_of(site / "reference" / "index.html")
    assert [name for name in uulearn.__all__ if name != "__version__" and f"<code>{name}</code>" not in index] == []


def test_every_command_is_described(site):
    from uulearn.cli.app import app

    page = text_of(site / "reference" / "command-line.html")
    named = [command.name or command.callback.__name__ for command in app.registered_commands]
    assert len(named) >= 5
    assert [name for name in named if f'<h2 id="{name}">' not in page] == []
    assert "<code>--set-priors</code>" in page


def test_methods_that_are_inherited_are_described(site):
    page = text_of(site / "reference" / "estimator.html")
    for name in ("fit", "predict_proba", "evaluate", "with_target_prior", "load"):
        assert f'id="uulearn.estimator.UUClassifier.{name}"' in page


# --------------------------------------------------------------------------------------------------------- the checker


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ('<a href="other.html">', None),
        ('<a href="other.html#there">', None),
        ('<a href="#here">', None),
        ('<a href="https://example.org/a">', None),
        ('<a href="mailto:a@b.c">', None),
        ('<a href="missing.html">', "missing.html does not exist"),
        ('<a href="other.html#nowhere">', "other.html#nowhere has no such anchor"),
        ('<a href="#nowhere">', "#nowhere has no such anchor"),
        ('<a href="../outside.html">', "../outside.html leads out of the site"),
        ('<img src="missing.png">', "missing.png does not exist"),
        ('<img src="https://example.org/a.png">', "https://example.org/a.png is fetched from elsewhere"),
        ('<script src="//example.org/a.js"></script>', "//example.org/a.js is fetched from elsewhere"),
        (
            '<link rel="stylesheet" href="https://example.org/a.css">',
            "https://example.org/a.css is fetched from elsewhere",
        ),
        ("see [`UURisk`][uulearn.risk.UURisk]", "'][uulearn.risk.UURisk]' was not understood"),
    ],
)
def test_faults_are_found(tmp_path, checker, body, fault):
    site = tmp_path / "site"
    site.mkdir()
    (tmp_path / "outside.html").write_text("")
    (site / "other.html").write_text('<p id="there">')
    (site / "page.html").write_text(f'<p id="here">{body}')
    assert list(checker.find_faults(site)) == ([f"page.html: {fault}"] if fault else [])


# ----------------------------------------------------------------------------------------------------------- the README


def test_the_readme_is_short_and_begins_with_code_its_output_and_one_picture():
    text = text_of(ROOT / "README.md")
    top, *details = re.split(r"^## ", text, flags=re.MULTILINE)
    assert len(details) >= 3
    assert top.index("pip install") < top.index("estimated: 0.") < top.index("<picture>")
    pictures = re.findall(r'(?:src|srcset)="([^"]+)"', text)
    assert [name for name in pictures if not (ROOT / name).is_file()] == []
    assert len(re.findall(r"!\[|<picture>", top)) == 1
    words = re.sub(r"```.*?```|<picture>.*?</picture>|<!--.*?-->", "", top, flags=re.DOTALL).split()
    assert len(words) < 200
    assert text.count("\n") < 135
