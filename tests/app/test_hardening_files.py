"""Unusual files and altered models at the command line: the right result or one sentence, and no leftover files."""

import contextlib
import csv
import gzip
import hashlib
import io
import json
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load, save

from helpers.command_line import SMALL, assert_one_sentence, contents, draw, run, weights_of, write_files
from uulearn.app.model import TableModel
from uulearn.app.output import OutputFolder
from uulearn.estimator import model_directory
from uulearn.io.reading import read_table


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="module")
def model(files):
    assert fit(files / "a.csv", files / "b.csv", files / "model").code == 0
    return files / "model"


@pytest.fixture(scope="module")
def scored(files, model):
    assert run("predict", model, files / "new.csv", "--out", files / "scored.csv").code == 0
    return (files / "scored.csv").read_bytes()


def fit(first, second, out, *options):
    return run("fit", first, second, *SMALL, *options, "--out", out)


# ------------------------------------------------------------------------------- one table, written in many ways


def quoted(text):
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\r\n").writerows(csv.reader(text.splitlines()))
    return out.getvalue().encode()


def parquet(text):
    out = io.BytesIO()
    pd.read_csv(io.StringIO(text)).to_parquet(out)
    return out.getvalue()


def lines(text):
    return pd.read_csv(io.StringIO(text)).to_json(orient="records", lines=True).encode()


WAYS = {
    "with a byte-order mark": (".csv", lambda text: text.encode("utf-8-sig")),
    "UTF-16": (".csv", lambda text: text.encode("utf-16")),
    "carriage returns alone": (".csv", lambda text: text.replace("\n", "\r").encode()),
    "quotes around everything": (".csv", quoted),
    "semicolons": (".csv", lambda text: text.replace(",", ";").encode()),
    "tabs": (".csv", lambda text: text.replace(",", "\t").encode()),
    "bars": (".csv", lambda text: text.replace(",", "|").encode()),
    "blank lines before": (".csv", lambda text: f"\n\n{text}".encode()),
    "gzip": (".csv.gz", lambda text: gzip.compress(text.encode())),
    "Parquet": (".parquet", parquet),
    "JSON lines": (".jsonl", lines),
    "spaces and accents in its path": (" with é .csv", str.encode),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_same_table_makes_the_same_model(files, model, scored, tmp_path, way):
    suffix, encode = WAYS[way]
    folder = tmp_path / "more spaces"
    folder.mkdir()
    paths = [folder / f"{name}{suffix}" for name in ("a", "b", "new")]
    for path, name in zip(paths, ("a", "b", "new"), strict=True):
        path.write_bytes(encode((files / f"{name}.csv").read_text()))
    result = fit(paths[0], paths[1], folder / "a model")
    assert result.code == 0, result
    assert weights_of(folder / "a model") == weights_of(model)
    assert run("predict", folder / "a model", paths[2], "--out", folder / "scored.csv").code == 0
    assert (folder / "scored.csv").read_bytes() == scored


# ------------------------------------------------------------------------------------------ files that are refused


def first_half(data):
    return data[: len(data) // 2]


REFUSED = {
    "nothing": (".csv", lambda text: b"", "is empty"),
    "names alone": (".csv", lambda text: b"age,dose\n", "has 0 rows; each file needs at least two"),
    "one row": (".csv", lambda text: b"age,dose\n1,2\n", "has 1 rows; each file needs at least two"),
    "two columns of one name": (".csv", lambda text: text.replace("age", "dose").encode(), "more than one column"),
    "blanks for commas": (".csv", lambda text: text.replace(",", " ").encode(), "only ", "both files need the same"),
    "a line cut short": (".csv", lambda text: f"{text}7\n".encode(), "line 62 of", "expected 2 fields, found 1"),
    "Latin-1": (".csv", lambda text: text.replace("age", "âge").encode("latin-1"), "is not UTF-8", "0xe2"),
    "null bytes": (".csv", lambda text: f"{text}\0,1\n".encode(), "contains a null byte"),
    "a quote that never ends": (".csv", lambda text: f'{text}"1,2\n'.encode(), "quote"),
    "half a gzip": (".csv.gz", lambda text: first_half(gzip.compress(text.encode())), "is damaged gzip data"),
    "no gzip": (".csv.gz", str.encode, "is not compressed with gzip"),
    "half a Parquet": (".parquet", lambda text: first_half(parquet(text)), "is not a readable Parquet file"),
    "half a line of JSON": (".jsonl", lambda text: lines(text)[:-9], "line 60 of", "is not JSON"),
    "words for numbers": (".csv", lambda text: text.replace("1.", "one").encode(), "column 'age' is a number in a.csv"),
    "another column": (".csv", lambda text: text.replace("age", "edge").encode(), "only ", "both files need the same"),
    "an array": (".npy", lambda text: b"\x93NUMPY", "is not a readable"),
    "no sheet": (".xlsx", str.encode, "is not a readable .xlsx file"),
    "an unknown format": (".xls", str.encode, "has no supported suffix"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_rejects_files_that_are_not_tables(files, model, tmp_path, what):
    suffix, encode, *parts = REFUSED[what]
    path = tmp_path / f"odd{suffix}"
    path.write_bytes(encode((files / "b.csv").read_text()))
    before = contents(tmp_path)
    for paths in ((files / "a.csv", path), (path, files / "a.csv")):
        assert_one_sentence(fit(*paths, tmp_path / "m"), *parts)
    if what not in ("one row", "words for numbers"):
        scored = run("predict", model, path, "--out", tmp_path / "scored.csv")
        assert scored.code == 2
        assert len(scored.said) == 1
    assert contents(tmp_path) == before
    assert [path.name for path in tmp_path.iterdir()] == [f"odd{suffix}"]


# ------------------------------------------------------------------------------------------------ odd but right


def test_accepts_numbers_of_any_size(tmp_path):
    """Beyond 64 bits, beyond floats, and in unusual spellings."""
    odd = ["9" * 30, "-" + "9" * 400, "1e400", "1e-400", "-0", "0.1" + "0" * 300, "18446744073709551616", "1E5"]
    for name, share, seed in (("a", 0.8, 0), ("b", 0.2, 1)):
        rows = draw(60, share, seed).astype(str).tolist()
        cells = [f"{odd[number % len(odd)]},{dose}" for number, (_, dose) in enumerate(rows)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["huge,dose", *cells]))
    result = fit(tmp_path / "a.csv", tmp_path / "b.csv", tmp_path / "m")
    assert result.code == 0, result
    assert {column.name: column.kind for column in TableModel.load(tmp_path / "m").schema.columns} == {
        "huge": "number",
        "dose": "number",
    }
    assert run("predict", tmp_path / "m", tmp_path / "a.csv", "--out", tmp_path / "s.csv").code == 0
    assert np.isfinite(read_table(tmp_path / "s.csv").astype(float)).all(axis=None)


def test_accepts_cells_of_all_types_in_one_column(tmp_path):
    cells = [1, "1", 1.5, True, None, "word", -(10**30), ""]
    for name, share, seed in (("a", 0.8, 0), ("b", 0.2, 1)):
        rows = draw(64, share, seed).tolist()
        text = [json.dumps({"mixed": cells[n % 8], "dose": dose}) for n, (_, dose) in enumerate(rows)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(text))
    result = fit(tmp_path / "a.jsonl", tmp_path / "b.jsonl", tmp_path / "m")
    assert result.code == 0, result
    assert run("predict", tmp_path / "m", tmp_path / "a.jsonl", "--out", tmp_path / "s.csv").code == 0
    assert len(read_table(tmp_path / "s.csv")) == 64


def test_only_used_columns_must_be_clear_next_to_decimal_commas(tmp_path):
    for name, share, seed in (("a", 0.8, 0), ("b", 0.2, 1)):
        rows = [(f"{age:.2f}", f"{dose:.2f}", f"1.{n % 3}34") for n, (age, dose) in enumerate(draw(64, share, seed))]
        text = "\n".join(
            "\t".join(row[:2]).replace(".", ",") + f"\t{row[2]}\t12,{n + 100}" for n, row in enumerate(rows)
        )
        (tmp_path / f"{name}.tsv").write_text(f"age\tdose\tversion\tcost\n{text}\n")
    files = (tmp_path / "a.tsv", tmp_path / "b.tsv", tmp_path / "m")
    assert "'cost' of a.tsv has numbers such as '12,100'" in fit(*files).said[-1]
    assert "has decimal commas, but also '1.034' in column 'version'" in fit(*files, "--drop", "cost").said[-1]
    result = fit(*files, "--drop", "cost", "--drop", "version")
    assert result.code == 0, result
    assert run("predict", tmp_path / "m", tmp_path / "a.tsv", "--out", tmp_path / "s.csv").code == 0
    (tmp_path / "new.tsv").write_text("age\tdose\n41,5\t1.234\n")
    assert "also '1.234' in column 'dose'" in run("predict", tmp_path / "m", tmp_path / "new.tsv").said[-1]


def test_accepts_ten_thousand_columns(files, model, tmp_path):
    """Use two columns among 9,998 others."""
    names = [f"c{number}" for number in range(9_998)]
    rest = ",".join(map(str, range(9_998)))
    for name in ("a", "b"):
        header, *rows = (files / f"{name}.csv").read_text().splitlines()
        wide = [f"{header},{','.join(names)}", *(f"{row},{rest}" for row in rows)]
        (tmp_path / f"{name}.csv").write_text("\n".join(wide))
    only = ("--only", "age", "--only", "dose")
    assert fit(tmp_path / "a.csv", tmp_path / "b.csv", tmp_path / "m", *only).code == 0
    assert weights_of(tmp_path / "m") == weights_of(model)
    scored = run("predict", tmp_path / "m", tmp_path / "a.csv")
    assert (scored.code, len(scored.out.splitlines())) == (0, 61)


def test_errors_are_safe_for_a_terminal(files, tmp_path):
    """Names from files may contain control sequences and have any length."""
    text = (files / "b.csv").read_text().replace("age", "a\x1b[2J\u202ege")
    (tmp_path / "b.csv").write_text(text)
    result = fit(files / "a.csv", tmp_path / "b.csv", tmp_path / "m")
    assert_one_sentence(result, "only ")
    assert result.said[0].isprintable()
    (tmp_path / "b.csv").write_text((files / "b.csv").read_text().replace("age", "a" * 50_000))
    result = fit(files / "a.csv", tmp_path / "b.csv", tmp_path / "m")
    assert result.code == 2
    assert len(result.said[0]) < 2100


@pytest.mark.parametrize("name", ["score", "probability", "class"])
def test_rejects_id_with_the_name_of_a_result(files, tmp_path, name):
    result = fit(files / "a.csv", files / "b.csv", tmp_path / "m", "--id", name)
    assert_one_sentence(result, f"predict writes a column named '{name}'; rename that column in the files.")


# ----------------------------------------------------------------------------------------------- any table at all

WORDS = st.sampled_from(
    ["", "NA", "yes", "no", "0", "1", "-1.5", "1e400", "9" * 40, "2024-02-29", "31/12/1999", "1,5", 'q"q', "a\nb", "é"]
)
CELLS = st.one_of(WORDS, st.integers().map(str), st.floats().map(repr), st.text(max_size=3))
NAMES = st.sampled_from(["age", "x y", "é", "a,b", 'q"', "0", "class", "<b>", "π", "../x", "__class__"])


@st.composite
def two_tables(draw):
    """Draw two tables: one informative column of numbers, and columns filled from a few cells each."""
    names = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    stocks = [draw(st.lists(CELLS, min_size=1, max_size=4)) for _ in names]
    rng = np.random.default_rng(draw(st.integers(0, 9)))
    sizes = draw(st.tuples(st.integers(40, 60), st.sampled_from([2, 50, 60, 70, 80])))
    sets = [
        [[f"{rng.normal(mean):.2f}", *(rng.choice(stock) for stock in stocks)] for _ in range(size)]
        for size, mean in zip(sizes, (1, 0), strict=True)
    ]
    return ["dose", *names], sets


@settings(max_examples=12)
@given(two_tables(), st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "latin-1"]), st.sampled_from([",", ";", "|"]))
def test_any_two_tables_give_a_model_or_one_sentence(tables, encoding, separator):
    names, sets = tables
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path, rows in zip(("a.csv", "b.csv"), sets, strict=True):
            text = io.StringIO()
            csv.writer(text, delimiter=separator).writerows([names, *rows])
            (folder / path).write_bytes(text.getvalue().encode(encoding, errors="replace"))
        result = fit(folder / "a.csv", folder / "b.csv", folder / "m", "--allow-leakage")
        if result.code:
            assert_one_sentence(result)
            assert {path.name for path in folder.iterdir()} == {"a.csv", "b.csv"}
            return
        scored = run("predict", folder / "m", folder / "a.csv", "--out", folder / "s.csv")
        assert scored.code == 0, scored
        frame = read_table(folder / "s.csv").astype(float)
        assert len(frame) == len(sets[0])
        assert np.isfinite(frame).all(axis=None)
        assert run("report", folder / "m").code == 0


# ------------------------------------------------------------------------------------- models that were altered


def replace_file(folder, stem, change):
    """Replace the content of one of the files and fix all checksums, as an attacker would."""
    manifest = json.loads((folder / "model.json").read_text())
    manifest.pop("checksum")
    entry = manifest["files"][stem]
    content = change((folder / entry["name"]).read_bytes())
    digest = hashlib.sha256(content).hexdigest()
    name = f"{stem}-{digest[:16]}.{entry['name'].split('.')[1]}"
    entry.update({"name": name, "bytes": len(content), "sha256": digest})
    (folder / name).write_bytes(content)
    sign(folder, manifest)


def sign(folder, manifest):
    manifest["checksum"] = model_directory.checksum(manifest)
    (folder / "model.json").write_text(json.dumps(manifest))


def alter(folder, *keys_and_value):
    *keys, last, value = keys_and_value
    manifest = node = json.loads((folder / "model.json").read_text())
    manifest.pop("checksum")
    for key in keys:
        node = node[key]
    node[last] = value
    sign(folder, manifest)


def link(folder):
    path = next(folder.glob("facts-*"))
    path.rename(folder.parent / "elsewhere.json")
    path.symlink_to(folder.parent / "elsewhere.json")


ATTACKS = {
    "an encoder for other columns": (
        lambda folder: replace_file(folder, "encoder", lambda data: save({"evil": np.zeros(3)})),
        "the encoder does not match its schema",
    ),
    "a pickle for an encoder": (
        lambda folder: replace_file(folder, "encoder", lambda data: b"\x80\x04\x95."),
        "the encoder does not match its schema or is damaged",
    ),
    "a path for a name": (
        lambda folder: alter(folder, "files", "facts", "name", "../../secret.json"),
        "lists the unexpected file",
    ),
    "a path from the root": (
        lambda folder: alter(folder, "files", "schema", "name", "/etc/passwd"),
        "lists the unexpected file",
    ),
    "a link": (link, "is missing or is a link"),
    "ten thousand models": (
        lambda folder: alter(folder, "learner", "config", {"n_models": 10**4}),
        "cannot be loaded",
    ),
    "feature names that do not fit": (
        lambda folder: alter(folder, "fitted", "feature_names", []),
        "feature names do not fit",
    ),
    "weights for a giant": (
        lambda folder: alter(folder, "fitted", "row_shape", [10**12]),
        "features, but its encoder has 2",
    ),
    "a header that promises": (
        lambda folder: replace_file(folder, "weights", lambda data: data.replace(b'"shape":[1,2]', b'"shape":[9,9]')),
        "cannot be loaded",
    ),
    "a file that grew": (
        lambda folder: os.truncate(next(folder.glob("encoder-*")), 10**6),
        "truncated or was replaced",
    ),
    "facts that never end": (
        lambda folder: replace_file(folder, "facts", lambda data: b"[" * 100_000),
        "the schema in ",
    ),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_every_command_rejects_an_altered_model(files, model, tmp_path, attack):
    shutil.copytree(model, tmp_path / "m")
    change, part = ATTACKS[attack]
    change(tmp_path / "m")
    before = contents(tmp_path)
    for arguments in (
        ("predict", tmp_path / "m", files / "new.csv", "--out", tmp_path / "scored.csv"),
        ("evaluate", tmp_path / "m", files / "a.csv", files / "b.csv"),
        ("report", tmp_path / "m"),
        ("export", tmp_path / "m", "--out", tmp_path / "m.onnx"),
    ):
        assert_one_sentence(run(*arguments), part)
    assert contents(tmp_path) == before


def test_predict_rejects_an_encoder_that_overflows(files, model, tmp_path):
    shutil.copytree(model, tmp_path / "m")

    def overflow(data):
        return save({name: np.full_like(array, -1e308) for name, array in load(data).items()})

    replace_file(tmp_path / "m", "encoder", overflow)
    assert_one_sentence(run("predict", tmp_path / "m", files / "new.csv"), "nfinit")


ODD = st.sampled_from([None, True, -1, 0, 10**30, 0.5, 1e308, "", "x", "../x", "auto", [], {}, [[]], {"code": "x"}])


def places(node, path=()):
    """Return the paths of all values in nested data."""
    inside = node.items() if isinstance(node, dict) else enumerate(node[:4]) if isinstance(node, list) else ()
    return [path, *(place for key, value in inside for place in places(value, (*path, key)))]


@settings(max_examples=30)
@given(st.sampled_from(["manifest", "schema", "facts", "history"]), st.data())
def test_any_change_is_rejected_or_harmless(model, which, data):
    """Change one value and fix all checksums."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "m"
        shutil.copytree(model, folder)

        def changed(content):
            tree = json.loads(content)
            *path, last = data.draw(st.sampled_from(places(tree)[1:]))
            node = tree
            for key in path:
                node = node[key]
            node[last] = data.draw(ODD)
            return json.dumps(tree).encode()

        if which == "manifest":
            manifest = json.loads((folder / "model.json").read_text())
            manifest.pop("checksum")
            sign(folder, json.loads(changed(json.dumps(manifest))))
        else:
            replace_file(folder, which, changed)
        for arguments in (("predict", folder, model.parent / "new.csv"), ("report", folder)):
            result = run(*arguments)
            if result.code:
                assert_one_sentence(result._replace(out=""))


def test_second_fit_to_the_same_folder_is_refused_while_the_first_runs(tmp_path):
    folder = OutputFolder.at(tmp_path / "model")
    with contextlib.ExitStack() as first:
        folder.prepare(False, first)
        with contextlib.ExitStack() as second, pytest.raises(TimeoutError, match="another fit is writing to .*model"):
            folder.prepare(False, second)
    with contextlib.ExitStack() as third:
        assert folder.prepare(False, third) is None
    assert list(tmp_path.iterdir()) == []
