"""Descriptions of settings: the same in every process, different if anything relevant differs."""

import functools
import textwrap

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn

from helpers.processes import python
from uulearn.streaming import ParquetSet, shuffled
from uulearn.training.identity import describe


def defined(source, name):
    """The object with this name in a module with this source."""
    space = {"__name__": "of_a_user"}
    exec(textwrap.dedent(source), space)
    return space[name]


PROGRAM = """
    import numpy as np, torch
    FACTOR = {factor}

    def helper(x):
        return FACTOR * inner(x)

    def inner(x):
        return helper(x) if x > {limit} else x

    class Base:
        def rate(self):
            return {rate}

    class Own(Base, torch.nn.Module):
        power = {power}

        @staticmethod
        def fixed(x):
            return x + {added}

        @property
        def size(self):
            return {size}

        def forward(self, x):
            return torch.{function}(x) ** self.power

    def reads_a_class(x):
        return Own()(helper(x))

    thing = {thing}
"""
PLAIN = {"factor": 2, "limit": 5, "rate": 0.1, "power": 2, "added": 1, "size": 7, "function": "tanh"}


@pytest.mark.parametrize("changed", [None, *PLAIN])
@pytest.mark.parametrize("thing", ["reads_a_class", "[reads_a_class, np.exp]"])
def test_description_includes_all_code_that_is_read(changed, thing):
    source = PROGRAM.replace("{thing}", thing)
    plain = describe(defined(source.format(**PLAIN), "thing"))
    other = PLAIN | ({} if changed is None else {changed: "relu" if changed == "function" else 9})
    assert (describe(defined(source.format(**other), "thing")) == plain) == (changed is None)


def test_description_is_short_and_the_same_in_another_process():
    source = textwrap.dedent(PROGRAM.format(**PLAIN, thing="reads_a_class"))
    code = f"{source}\n__name__ = 'of_a_user'\nfrom uulearn.training.identity import describe\n"
    code += "space = {'__name__': 'of_a_user'}\n" + f"exec({source!r}, space)\nprint(describe(space['thing']))"
    code_of, out, err = python("-c", code)
    assert code_of == 0, err
    assert out.strip() == describe(defined(source, "thing"))
    assert len(out) < 200


class Loss:
    def __init__(self, scale):
        self.scale = scale

    def value(self, x):
        return self.scale * x


def test_description_of_a_method_includes_its_object():
    assert describe(Loss(1.0).value) == describe(Loss(1.0).value)
    assert describe(Loss(1.0).value) != describe(Loss(5.0).value)
    assert describe(functools.partial(Loss(1.0).value, 2)) != describe(functools.partial(Loss(1.0).value, 3))


def test_describes_values_of_all_kinds():
    things = [
        1, 1.0, True, "1", None, (1, 2), [1, 3], {"a": 1}, np.array([1, 2]), np.array([1.0, 2.0]),
        np.array(["a", None]), np.array(["b", None]), torch.ones(2), torch.ones(3), nn.Linear, nn.ReLU,
        nn.Linear(1, 1), np.exp, len, np,
        lambda x: x, lambda x: x + 1, Loss, Loss(1),
    ]  # fmt: skip
    assert len({describe(thing) for thing in things}) == len(things)
    assert describe(nn.Linear) == "torch.nn.modules.linear.Linear"
    itself = []
    itself.append(itself)
    assert describe(itself) == "(itself)"


def halved(table):
    return np.column_stack([table[name].to_numpy() for name in table.column_names]) / 2


def test_description_of_files_includes_rows_transform_and_path(tmp_path):
    rng = np.random.default_rng(0)

    def write(folder, X):
        folder.mkdir(parents=True, exist_ok=True)
        table = pa.table(list(X.T.copy()), names=["u", "v"])
        plain = {"compression": "none", "use_dictionary": False, "write_statistics": False}
        pq.write_table(table, folder / "rows.parquet", **plain)
        return folder

    X = rng.normal(size=(500, 2))
    one, other = write(tmp_path / "a" / "x", X), write(tmp_path / "b" / "x", rng.normal(size=(500, 2)))
    assert (one / "rows.parquet").stat().st_size == (other / "rows.parquet").stat().st_size
    copied = write(tmp_path / "c" / "x", X)
    assert ParquetSet(one).describe() == ParquetSet(copied).describe()
    below = write(tmp_path / "d" / "x" / "deep", X).parent
    kinds = [ParquetSet(one), ParquetSet(other), ParquetSet(below), ParquetSet(one, ["u"])]
    kinds += [ParquetSet(one, transform=halved), ParquetSet(one, transform=lambda t: halved(t) * 2)]
    assert len({kind.describe() for kind in kinds}) == len(kinds)
    shuffled(ParquetSet(one), tmp_path / "scratch")
    with pytest.raises(ValueError, match="contains the rows of another set"):
        shuffled(ParquetSet(one, transform=halved), tmp_path / "scratch")
