"""Two albums: tell photographs of animals from vehicles with a network of torchvision. --help shows the options."""

from __future__ import annotations

import csv
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from example import DataMissingError, Example, parser, run_example

ANIMALS = (2, 3, 4, 5, 6, 7)
"""Birds, cats, deer, dogs, frogs and horses; the other classes are airplanes, automobiles, ships and trucks."""
ROWS, NEW = 600, 500


def load(folder: Path | None) -> Any:
    """Return CIFAR-10 from the data folder; nothing is downloaded."""
    from uulearn.datasets import DatasetNotFoundError, load_images

    try:
        return load_images("cifar10", data_dir=folder, download=False)
    except DatasetNotFoundError:
        place = folder or Path(os.environ.get("UULEARN_DATA") or "FOLDER")
        raise DataMissingError(
            f"CIFAR-10 was not found; put data_batch_1.bin to data_batch_5.bin and test_batch.bin into "
            f"{place / 'cifar-10-batches-bin'} and pass --data {place}, or set UULEARN_DATA={place}."
        ) from None


def photographs(images: Any, labels: Any) -> tuple[Any, Any]:
    """Return the photographs sorted by their pixels, since copies of CIFAR-10 differ in order, and the animals."""
    import numpy as np

    order = sorted(range(len(images)), key=lambda number: images[number].tobytes())
    return images[order], np.isin(labels[order], ANIMALS).astype(int)


def write_images(data: Any, work: Path) -> None:
    """Write the photographs of two albums and new ones as PNG; a separate file has the labels of the new ones."""
    import numpy as np

    from uulearn.datasets import make_sets

    images, animal = photographs(data.train_images, data.train_labels)
    albums = make_sets(images, animal, (0.8, 0.2), (ROWS, ROWS), random_state=0)
    for name, drawn in zip(("farm", "street"), albums, strict=True):
        save(drawn, work / "albums" / name)
    images, animal = photographs(data.test_images, data.test_labels)
    chosen = np.random.default_rng(0).permutation(len(images))[:NEW]
    names = save(images[chosen], work / "new")
    with (work / "truth.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["path", "shows"])
        writer.writerows(
            [f"new/{name}", "animal" if is_animal else "vehicle"]
            for name, is_animal in zip(names, animal[chosen], strict=True)
        )


def save(images: Any, folder: Path) -> list[str]:
    """Write images as numbered PNG files; return their names."""
    from PIL import Image

    folder.mkdir(parents=True)
    names = [f"{number:04d}.png" for number in range(len(images))]
    for name, image in zip(names, images, strict=True):
        Image.fromarray(image.transpose(1, 2, 0)).save(folder / name)
    return names


def main() -> None:
    """Run the example."""
    arguments = parser(__doc__ or "")
    arguments.add_argument("--data", type=Path, help="folder of cifar-10-batches-bin/ (default: $UULEARN_DATA)")
    options = arguments.parse_args()
    data = load(options.data)
    example = Example.start(__file__, options)
    write_images(data, example.work)
    truth = example.run_all(
        "uulearn fit albums/farm albums/street --set-priors 0.8 0.2 --target-prior 0.6 --model torchvision:resnet18 "
        "--augment shift+flip --batch-size 300 --epochs 15 --out model",
        "new",
        "uulearn evaluate model truth.csv --labels shows --positive animal",
    )
    example.finish(truth, "Two albums", options.write)


if __name__ == "__main__":
    run_example(main)
