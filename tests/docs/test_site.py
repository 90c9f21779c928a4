"""The documentation site builds without a warning, its links work, and its reference is complete."""

from __future__ import annotations

import html
import importlib
import importlib.util
import inspect
import json
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

EXAMPLE_ELSEWHERE = {
    "UUCoefficients": "uu_coefficients",
    "metrics.Evaluation": "metrics.evaluate",
    "priors.BestBin": "priors.best_bin",
    "priors.Bounds": "priors.estimate_set_priors",
    "priors.CensoredLabels": "priors.to_censoring",
    "priors.DiagnosticAccuracy": "priors.to_sensitivity",
    "priors.LabeledPriors": "priors.priors_from_labels",
    "priors.NoiseRates": "priors.to_noise_rates",
    "priors.PredictiveValues": "priors.to_predictive_values",
    "priors.RatioCurve": "priors.ratio_curve",
    "risk.EstimationCost": "risk.estimation_cost",
    "surrogate.AccuracyWeights": "surrogate.accuracy_weights",
    "theory.BiasBound": "theory.bias_bound",
    "theory.DeviationBound": "theory.deviation_bound",
    "theory.LossConstants": "theory.loss_constants",
    "theory.NegativeTermBound": "theory.negative_term_bound",
    "theory.RowPlan": "theory.plan_rows",
    "data.Rows": "data.DenseRows",
    "data.augmentation.build_augmentation": "data.augmentation.get_augmentation",
    "estimator.FitPlan": "estimator.run_plan",
    "estimator.FitResult": "estimator.run_plan",
    "estimator.TrainedModel": "estimator.Learner",
    "estimator.make_plan": "estimator.run_plan",
    "export.Exported": "export.export_onnx",
    "metrics.MixtureCheck": "metrics.check_mixture",
    "metrics.Rates": "metrics.uu_rates",
    "training.RunOptions": "training.Trainer",
    "selection.Candidate": "selection.UUClassifierCV",
    "selection.Executor": "selection.UUClassifierCV",
    "selection.Sensitivity": "selection.prior_sensitivity",
    "selection.SensitivityRow": "selection.prior_sensitivity",
}
"""Abstract classes and results of training, and the name whose example shows them."""
WITHOUT_EXAMPLE = {"report.render_report", "report.write_report"}
"""They need the facts of a model that was fitted from files; the page start/two-files.md runs ``uulearn report``."""
SEARCHED = [
    "early stopping", "leakage", "domain shift", "covariate shift", "PU learning", "noisy labels", "self-training",
    "categorical", "FAQ", "quickstart", "getting started",
]  # fmt: skip
MAX_WORDS = 1800
MAX_CODE_COLUMNS = 88
FENCED = re.compile(r"^( *)(```+)(\w*)[^\n]*\n(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)

pytest.importorskip("mkdocs")
yaml = pytest.importorskip("yaml")


def load(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "building" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # named tuples look up their module there
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
    """The text of a page, without the marks where a long name may be broken."""
    return page.read_text(encoding="utf-8").replace("<wbr>", "")


def pages_in_nav(entry):
    """Pages of a part of the navigation, each with its label, None if that is the title of the page."""
    if isinstance(entry, str):
        return [(None, entry)]
    if isinstance(entry, list):
        return [page for each in entry for page in pages_in_nav(each)]
    ((label, inside),) = entry.items()
    return [(label, inside)] if isinstance(inside, str) else pages_in_nav(inside)


def read_navigation():
    text = re.sub(r"!!python\S+ \{.*\}", "null", text_of(ROOT / "mkdocs.yml"))
    return yaml.safe_load(text)["nav"]


def source_of(page):
    return ROOT / page.removeprefix("repository/") if page.startswith("repository/") else ROOT / "docs" / page


NAV = read_navigation()
NAV_PAGES = [page for _, page in pages_in_nav(NAV)]
MARKDOWN = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


# ---------------------------------------------------------------------------------------------------- the navigation


def test_there_are_five_tabs_whose_labels_are_titles():
    assert [next(iter(tab)) for tab in NAV] == ["Get started", "User guide", "Examples", "API", "Paper & benchmarks"]
    assert [label for label, _ in pages_in_nav(NAV) if label is not None] == []
    assert len(set(NAV_PAGES)) == len(NAV_PAGES) > 50


@pytest.mark.parametrize("page", NAV_PAGES)
def test_pages_of_the_navigation_are_short(page):
    text = text_of(source_of(page))
    assert text.lstrip().startswith("#")
    prose = re.sub(r"<!--.*?-->|\]\([^)]*\)", " ", FENCED.sub("", text), flags=re.DOTALL)
    words = re.findall(r"\S*\w\S*", prose)  # without the bars of tables
    assert page.startswith("reference/") or len(words) <= MAX_WORDS


@pytest.mark.parametrize("page", MARKDOWN, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_fits_the_page(page):
    lines = [line for block in FENCED.finditer(text_of(page)) for line in block[4].splitlines()]
    assert [line for line in lines if len(line) > MAX_CODE_COLUMNS] == []


@pytest.mark.parametrize("term", SEARCHED)
def test_search_finds(site, term):
    index = json.loads(text_of(site / "search" / "search_index.json"))
    separator = re.compile(index["config"]["separator"])
    found = []
    for section in index["docs"]:
        text = html.unescape(re.sub(r"<[^>]+>", "", f"{section['title']} {section['text']}")).lower()
        words = {word.strip(".,;:()\"'“”!?/*`") for word in separator.split(text)}
        if words >= set(separator.split(term.lower())):
            found.append(section["location"])
    assert [location for location in found if not location.startswith("repository/")]


# ---------------------------------------------------------------------------------------------------------- the build


def test_every_link_anchor_and_image_exists(site, checker):
    assert list(checker.find_faults(site)) == []
    assert checker.count_references(site) > 2000


def test_pages_load_no_external_resources(site, checker):
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
    for name in ("results/table3.html", "CHANGELOG.html"):
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


def test_reference_lists_every_export(site):
    index = text_of(site / "reference" / "index.html")
    assert [name for name in uulearn.__all__ if name != "__version__" and f"<code>{name}</code>" not in index] == []


def test_every_command_is_described(site):
    from uulearn.cli.app import app

    page = re.sub(r'<span class="option">(.*?)</span>', r"\1", text_of(site / "reference" / "command-line.html"))
    named = [command.name or command.callback.__name__ for command in app.registered_commands]
    assert len(named) >= 5
    assert [name for name in named if f'<h2 id="{name}">' not in page] == []
    assert "<code>--set-priors θ θ′</code>" in page
    assert "<code>--early-stopping / --no-early-stopping</code>" in page


def test_inherited_methods_are_described(site):
    page = text_of(site / "reference" / "estimator.html")
    for name in ("fit", "predict_proba", "evaluate", "with_target_prior", "load"):
        assert f'id="uulearn.estimator.UUClassifier.{name}"' in page


def public_names():
    """Classes and functions that the public modules offer, by the shortest name, without errors and warnings."""
    found = {}
    for name in ["", *MODULES]:
        module = importlib.import_module(f"uulearn.{name}".rstrip("."))
        for each in getattr(module, "__all__", vars(module)):
            value = getattr(module, each)
            own = hasattr(module, "__all__") or getattr(value, "__module__", None) == module.__name__
            shown = inspect.isroutine(value) or (inspect.isclass(value) and not issubclass(value, BaseException))
            if own and shown and not each.startswith("_"):
                found.setdefault(value, f"{name}.{each}".lstrip("."))
    return {name: value for value, name in found.items()}


def test_every_public_name_has_an_example():
    names = public_names()
    assert len(names) > 120
    without = {name for name, value in names.items() if ">>> " not in (value.__doc__ or "")}
    assert without == set(EXAMPLE_ELSEWHERE) | WITHOUT_EXAMPLE
    assert set(EXAMPLE_ELSEWHERE.values()) <= names.keys() - without


def test_signatures_show_values(site):
    constant = re.compile(r"=\s*(?:defaults\.)?[A-Z][A-Z_]{2,}\b")
    shown = 0
    for page in (site / "reference").glob("*.html"):
        for signature in re.findall(r'<div class="doc-signature[^>]*>(.*?)</div>', text_of(page), re.DOTALL):
            text = html.unescape(re.sub(r"<[^>]+>", "", signature))
            assert not constant.search(text), text
            shown += "=" in text
    assert shown > 50
    estimator = re.sub(r"<[^>]+>", "", text_of(site / "reference" / "estimator.html"))
    assert "slope=-0.1" in html.unescape(estimator)


def test_parameters_of_the_classifier_are_grouped(site):
    page = text_of(site / "reference" / "estimator.html")
    titles = ["Class priors", "Risk", "Model", "Optimization", "Execution"]
    places = [page.index(f">{title}") for title in titles if f">{title}" in page]
    assert len(places) == len(titles)


def test_help_shows_an_example_and_no_python_types():
    import typer.main
    from typer.testing import CliRunner

    from uulearn.cli.app import app

    for name in typer.main.get_command(app).commands:
        text = " ".join(CliRunner().invoke(app, [name, "--help"]).output.split())
        assert f"Example: uulearn {name}" in text
        assert not re.findall(r"<\w+>", text), name


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
        ('<a href="../outside.html">', "../outside.html is outside the site"),
        ('<img src="missing.png">', "missing.png does not exist"),
        ('<img src="https://example.org/a.png">', "https://example.org/a.png is loaded from another server"),
        ('<script src="//example.org/a.js"></script>', "//example.org/a.js is loaded from another server"),
        (
            '<link rel="stylesheet" href="https://example.org/a.css">',
            "https://example.org/a.css is loaded from another server",
        ),
        ("see [`UURisk`][uulearn.risk.UURisk]", "'][uulearn.risk.UURisk]' was not resolved"),
    ],
)
def test_checker_finds_errors(tmp_path, checker, body, fault):
    site = tmp_path / "site"
    site.mkdir()
    (tmp_path / "outside.html").write_text("")
    (site / "other.html").write_text('<p id="there">')
    (site / "page.html").write_text(f'<p id="here">{body}')
    assert list(checker.find_faults(site)) == ([f"page.html: {fault}"] if fault else [])


# ----------------------------------------------------------------------------------------------------------- the README


def test_readme_is_short_and_starts_with_code_and_one_figure():
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


def test_pages_show_no_markdown_marks(site):
    """A marker in the text is a list item, an escape or a page path that was not converted."""
    marks = re.compile(r"\\\||\. - [A-Z]|<em>[^<]*;|(?<![\w/>])docs/[\w/-]+\.md(?!</a>)")
    shown = {}
    for page in [*site.glob("*.html"), *site.glob("reference/*.html"), *site.glob("repository/results/**/*.html")]:
        article = re.search(r"<article.*?</article>", text_of(page), re.DOTALL)
        text = re.sub(r"<pre>.*?</pre>", "", article[0] if article else "", flags=re.DOTALL)
        if found := marks.findall(text):
            shown[page.name] = found
    assert shown == {}
