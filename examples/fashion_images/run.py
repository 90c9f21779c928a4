"""Two shops: tell photographs of warm clothes from light ones without labels. Run it with --help for options."""

from __future__ import annotations

import csv
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from example import DataMissingError, Example, parser, run_example

WARM, LIGHT = (2, 4), (0, 3, 6)
"""Pullovers and coats; T-shirts, dresses and shirts."""
FILES = [f"{part}-{kind}-ubyte.gz" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")]
NEW = 2000
COLUMNS = 8
SHEET = "contact_sheet.png"


def load(folder: Path | None) -> Any:
    """Return Fashion-MNIST from the data folder; nothing is downloaded."""
    from uulearn.datasets import DatasetNotFoundError, load_images

    try:
        return load_images("fashion_mnist", data_dir=folder, download=False)
    except DatasetNotFoundError:
        place = folder or Path(os.environ.get("UULEARN_DATA") or "FOLDER")
        raise DataMissingError(
            f"Fashion-MNIST was not found; put {', '.join(FILES)} into {place / 'fashion-mnist'} and pass "
            f"--data {place}, or set UULEARN_DATA={place}."
        ) from None


def clothes(images: Any, labels: Any) -> tuple[Any, Any]:
    """Return the images of the five kinds, and which of them are warm."""
    import numpy as np

    chosen = np.isin(labels, WARM + LIGHT)
    return images[chosen], np.isin(labels[chosen], WARM).astype(int)


def write_images(data: Any, work: Path) -> None:
    """Write the photographs of two shops and new ones as PNG; a separate file has the labels of the new ones."""
    import numpy as np

    from uulearn.datasets import make_sets

    images, warm = clothes(data.train_images, data.train_labels)
    for name, drawn in zip(
        ("north", "south"), make_sets(images, warm, (0.7, 0.2), (2000, 2000), random_state=0), strict=True
    ):
        save(drawn, work / name)
    images, warm = clothes(data.test_images, data.test_labels)
    chosen = np.random.default_rng(0).permutation(len(images))[:NEW]
    names = save(images[chosen], work / "new")
    with (work / "truth.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["path", "clothes"])
        writer.writerows(
            [f"new/{name}", "warm" if is_warm else "light"] for name, is_warm in zip(names, warm[chosen], strict=True)
        )


def save(images: Any, folder: Path) -> list[str]:
    """Write images as numbered PNG files; return their names."""
    from PIL import Image

    folder.mkdir()
    names = [f"{number:04d}.png" for number in range(len(images))]
    for name, image in zip(names, images, strict=True):
        Image.fromarray(image).save(folder / name)
    return names


def draw_sheet(work: Path, path: Path) -> None:
    """Draw the images with the most and least certain predictions, and the most certain errors."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt
    import pandas as pd
    from PIL import Image

    scored = pd.read_csv(work / "scored.csv")
    warm = (pd.read_csv(work / "truth.csv")["clothes"] == "warm").to_numpy()
    order = scored["score"].sort_values().index
    doubtful = scored["score"].abs().sort_values().index
    wrong = (scored["class"].to_numpy() == 1) != warm
    sure_but_wrong = scored["score"].abs()[wrong].sort_values(ascending=False).index
    rows = {
        "most certainly warm": order[::-1],
        "most certainly light": order,
        "least certain": doubtful,
        "most certain errors (by the labels)": sure_but_wrong,
    }
    figure = plt.figure(figsize=(5, 4.6), dpi=160, layout="constrained")
    for part, (title, chosen) in zip(figure.subfigures(len(rows)), rows.items(), strict=True):
        part.suptitle(title, fontsize=10)
        for place, axis in enumerate(part.subplots(1, COLUMNS)):
            axis.set_axis_off()
            if place < len(chosen):
                row = scored.loc[chosen[place]]
                with Image.open(work / "new" / row["path"]) as image:
                    axis.imshow(image, cmap="gray_r", interpolation="nearest")
                axis.set_title(f"{100 * row['probability']:.0f}%", fontsize=9, pad=2)
    figure.savefig(path, metadata={"Software": None})
    plt.close(figure)


def main() -> None:
    """Run the example."""
    arguments = parser(__doc__ or "")
    arguments.add_argument("--data", type=Path, help="folder that holds fashion-mnist/ (default: $UULEARN_DATA)")
    options = arguments.parse_args()
    data = load(options.data)
    example = Example.start(__file__, options)
    write_images(data, example.work)
    truth = example.run_all(
        "uulearn fit north south --set-priors 0.7 0.2 --target-prior 0.4 --model mlp --epochs 60 --out model",
        "new",
        "uulearn evaluate model truth.csv --labels clothes --positive warm",
    )
    draw_sheet(example.work, (example.folder if options.write else example.work) / SHEET)
    example.finish(truth, "Two shops", options.write)


if __name__ == "__main__":
    run_example(main)
