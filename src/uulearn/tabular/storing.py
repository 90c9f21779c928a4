"""A fitted pipeline as bytes, and back, without running anything that the bytes say.

The format is that of skops: a zip archive of JSON and NumPy arrays. skops itself trusts every estimator of
scikit-learn; here only what a pipeline of this library consists of is let in, the archive may not be packed (so it
cannot unpack to more than its size), and no array may claim to be larger than it is. A loaded pipeline must give the
numbers that it gave when it was saved, on rows made up for that: another version of scikit-learn is fine if it does.
"""

from __future__ import annotations

import importlib
import io
import json
import re
import warnings
import zipfile
from typing import Any

import numpy as np
import sklearn
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline

from uulearn.exceptions import ModelFormatError

OWN = "uulearn.tabular.blocks"
OWN_CLASSES = ("Numbers", "Booleans", "Categories", "Dates", "Text")
PARTS = {
    ("ObjectNode", "sklearn.pipeline", "Pipeline"),
    ("ObjectNode", "sklearn.compose._column_transformer", "ColumnTransformer"),
    *(("ObjectNode", OWN, name) for name in OWN_CLASSES),
    ("DictNode", "builtins", "dict"),
    ("ListNode", "builtins", "list"),
    ("TupleNode", "builtins", "tuple"),
    ("SliceNode", "builtins", "slice"),
    ("JsonNode", "builtins", "str"),
    ("TypeNode", "builtins", "str"),
    ("NdArrayNode", "numpy", "ndarray"),
}
"""All that may occur: how skops reads it, and its type."""
MEMBER = re.compile(r"schema\.json|[0-9]{1,32}\.npy")
MOST_BYTES = 2**30
CLOSE = 1e-3
"""Numbers on the made-up rows may differ by so much: libraries of linear algebra do."""


def save_pipeline(pipeline: Pipeline) -> bytes:
    """A fitted pipeline of `build_pipeline` as bytes, with no row that it was fitted on."""
    saved = {"pipeline": pipeline, "probe": _probed(pipeline), "scikit-learn": sklearn.__version__}
    return bytes(_skops().dumps(saved))


def load_pipeline(data: bytes) -> Pipeline:
    """The pipeline in such bytes; anything else is a ModelFormatError that says what is wrong."""
    _audit(data)
    skops = _skops()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of another version of scikit-learn: the probe below decides
            saved = skops.loads(data, trusted=[f"{OWN}.{name}" for name in OWN_CLASSES])
        pipeline, expected, version = saved["pipeline"], saved["probe"], saved["scikit-learn"]
        _check_parts(pipeline)
    except Exception as error:
        raise _damaged(f"{type(error).__name__}: {error}") from error
    try:
        same = np.allclose(_probed(pipeline), expected, rtol=0, atol=CLOSE)
    except Exception:  # whatever a pipeline does whose state another version reads differently
        same = False
    if not same:
        raise ModelFormatError(
            f"the pipeline does not give the numbers that it gave when it was saved (with scikit-learn {version}, here "
            f"is {sklearn.__version__}); install that version, or fit again."
        )
    return pipeline


def check_can_be_saved() -> None:
    """Find out before any work whether a pipeline can be kept."""
    _skops()


def _skops() -> Any:
    try:
        return importlib.import_module("skops.io")
    except ImportError as error:
        raise ImportError("a pipeline is kept by skops; install it with pip install 'uulearn[files]'.") from error


def _audit(data: bytes) -> None:
    """Look at everything in the archive before anything is made of it."""
    if len(data) > MOST_BYTES:
        raise _damaged(f"{len(data):,} bytes are more than any pipeline has")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            names = [member.filename for member in members]
            odd = [name for name in names if not MEMBER.fullmatch(name)]
            if odd or len(set(names)) < len(names):
                raise _damaged(f"it holds {odd[0]!r}" if odd else "two of its members have one name")
            packed = [m for m in members if m.compress_type != zipfile.ZIP_STORED or m.file_size != m.compress_size]
            if packed or sum(member.file_size for member in members) > len(data):
                raise _damaged("its members are packed, and it is written without packing")
            for name in names:
                if name.endswith(".npy"):
                    _audit_array(name, archive.read(name))
            _audit_nodes(json.loads(archive.read("schema.json")))
    except ModelFormatError:
        raise
    except Exception as error:  # zipfile and json raise many kinds for damaged data
        raise _damaged(str(error) or type(error).__name__) from error


def _audit_array(name: str, content: bytes) -> None:
    stream = io.BytesIO(content)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    shape, _, dtype = read[np.lib.format.read_magic(stream)](stream)
    size = int(dtype.itemsize)
    for length in shape:
        size *= int(length)
    if dtype.kind not in "biuf" or size != len(content) - stream.tell():
        raise _damaged(f"{name} is no array of numbers of the size that it claims")


def _audit_nodes(root: Any) -> None:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting.extend(node)
        if isinstance(node, dict):
            waiting.extend(node.values())
            if node.keys() & {"__class__", "__module__", "__loader__"}:
                found = (node.get("__loader__"), node.get("__module__"), node.get("__class__"))
                if found not in PARTS:
                    raise ModelFormatError(
                        f"the pipeline contains {found[1]}.{found[2]} ({found[0]}), which no pipeline of uulearn does, "
                        "and was not loaded; fit again, or ask where the model comes from."
                    )


def _check_parts(pipeline: Any) -> None:
    """A pipeline of one column transformer of our blocks, which runs in this process."""
    ((_, columns),) = pipeline.steps
    if type(pipeline) is not Pipeline or type(columns) is not ColumnTransformer:
        raise TypeError("no pipeline of columns")
    for name, block, _ in columns.transformers_:
        if name != "remainder" and type(block).__name__ not in OWN_CLASSES:
            raise TypeError(f"{type(block).__name__} is no block")
    pipeline.memory, columns.n_jobs = None, None


def _probed(pipeline: Pipeline) -> NDArray[np.float32]:
    """What the pipeline makes of made-up rows of all kinds."""
    import pandas as pd

    fitted = pipeline.named_steps["columns"]
    cells = {
        name: values
        for title, block, names in fitted.transformers_
        if title != "remainder"
        for name, values in zip(names, block.probe(), strict=True)
    }
    frame = pd.DataFrame({name: pd.Series(values, dtype=values.dtype) for name, values in cells.items()})
    return np.asarray(pipeline.transform(frame))


def _damaged(why: str) -> ModelFormatError:
    return ModelFormatError(
        f"the pipeline is damaged or not one of uulearn ({why}); copy the model again, or fit again."
    )
