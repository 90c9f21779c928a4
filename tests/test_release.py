"""What a release consists of agrees: versions, dates, lower bounds, workflow files and policies."""

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

from uulearn import __version__

ROOT = Path(__file__).resolve().parents[1]
yaml = pytest.importorskip("yaml")


def load_tool(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_version_and_date_agree():
    heading = re.search(r"^## (\S+) \((\S+)\)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert heading.groups() == (__version__, citation["date-released"])
    assert citation["version"] == __version__
    assert f"uulearn {__version__}\n" in (ROOT / "docs" / "start" / "install.md").read_text("utf-8")


# ------------------------------------------------------------------------------------------------------ lower bounds


def bounds():
    """The lower bounds of the core and of the extras for users."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = ("plot", "data", "images", "boosting", "onnx", "ray", "huggingface")
    listed = project["dependencies"] + [each for extra in extras for each in project["optional-dependencies"][extra]]
    return dict(each.lower().split(">=") for each in listed)


def pins(name):
    lines = (ROOT / name).read_text("utf-8").lower().splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


@pytest.mark.parametrize("package", sorted(bounds().keys() - {"torch"}))
def test_lowest_version_is_the_lower_bound(package):
    """The oldest release of the bound, such as 2.0.1 for 2, if 2.0.0 has no wheel."""
    pinned, bound = pins("constraints-lowest.txt")[package], bounds()[package]
    assert f"{pinned}.".startswith(f"{bound}."), f"{package} {pinned} is tested, but the bound is {bound}"


def test_torch_is_pinned_to_the_tested_build():
    """Older CPU builds were not available for the tests, which the file says."""
    assert pins("constraints-lowest.txt")["torch"] == pins("constraints.txt")["torch"]
    assert "versions from 2.6 to 2.12 are NOT tested" in (ROOT / "constraints-lowest.txt").read_text("utf-8")
    assert bounds()["torch"] == "2.6"


def test_newest_tested_versions_satisfy_the_bounds():
    newest = pins("constraints.txt")
    for package, bound in bounds().items():
        assert [int(part) for part in newest[package].split(".")] >= [int(part) for part in bound.split(".")]


# ------------------------------------------------------------------------------------------------------ workflow files

MINIMAL = "on: push\njobs:\n  a:\n    runs-on: x\n    timeout-minutes: 5\n    steps: [{step}]\n"


def test_workflows_are_valid_and_marked_as_not_run():
    assert load_tool("check_workflows").main() == 0
    files = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    assert [file.name for file in files] == ["docs.yml", "release.yml", "tests.yml"]
    assert [file.name for file in files if not file.read_text("utf-8").startswith("# NOT RUN YET")] == []


def test_every_supported_python_and_system_is_tested():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    supported = [each.split()[-1] for each in project["classifiers"] if re.search(r":: 3\.\d+$", each)]
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text("utf-8"))
    matrix = workflow["jobs"]["tests"]["strategy"]["matrix"]
    assert matrix["python"] == supported
    assert [name.split("-")[0] for name in matrix["os"]] == ["ubuntu", "macos", "windows"]


def test_publishing_needs_no_password():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8"))
    assert workflow["jobs"]["publish"]["permissions"] == {"id-token": "write"}
    assert workflow["jobs"]["publish"]["needs"] == "build"
    assert "secrets." not in str(workflow)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (MINIMAL.format(step="{run: make test}"), None),
        (MINIMAL.format(step="{run: make test PYTHON=python}"), None),
        (MINIMAL.format(step="{uses: actions/checkout@v4}"), None),
        (MINIMAL.format(step="{run: make tests}"), "make has no target 'tests'"),
        (MINIMAL.format(step="{run: pytest tests}"), "'pytest' is not in the list of programs"),
        (MINIMAL.format(step="{uses: actions/checkout}"), "is not an action with a version"),
        (MINIMAL.format(step="{name: nothing}"), "needs either 'run' or 'uses'"),
        (MINIMAL.format(step="{uses: a/b@v1, with: {cache-dependency-path: pins.txt}}"), "'pins.txt' does not exist"),
        ("on: push\njobs: {a: {runs-on: x, steps: [], timeout-minutes: 5, needs: b}}", "needs the job 'b'"),
        ("on: push\njobs: {a: {runs-on: x, steps: []}}", "has no 'timeout-minutes'"),
        ("jobs: {}", "needs the keys 'on' and 'jobs'"),
        ("on: [", "is not valid YAML"),
        ("on: push\njobs: {a: }", "job a is empty"),
        (MINIMAL.format(step='{run: "make test\\n\\nmake test"}'), None),
        (MINIMAL.format(step='{run: "make test; curl x"}'), "has several commands"),
    ],
)
def test_checker_finds_errors_in_workflows(text, problem):
    found = list(load_tool("check_workflows").check_workflow(text, {"test"}))
    assert [problem in each for each in found] == ([True] if problem else [])


# ------------------------------------------------------------------------------------------------------ other files


@pytest.mark.parametrize("name", ["bug_report.yml", "feature_request.yml", "config.yml"])
def test_issue_templates_are_valid(name):
    template = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / name).read_text("utf-8"))
    if name == "config.yml":
        assert template == {"blank_issues_enabled": True}
        return
    fields = [each for each in template["body"] if each["type"] != "markdown"]
    assert template["name"]
    assert len({each["id"] for each in fields}) == len(fields) > 1
    assert all(each["attributes"]["label"] for each in fields)


def test_files_of_the_sdist_exist():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    listed = project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert all(name.startswith("/") for name in listed)  # "LICENSE" would also match files in environments
    assert [name for name in listed if not (ROOT / name.lstrip("/")).exists()] == []
