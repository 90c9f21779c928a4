from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import sparse

from uulearn.data import DenseRows, SparseRows, TwoSets
from uulearn.data.rows import JoinedRows
from uulearn.models import MLP
from uulearn.training import score_rows
from uulearn.training.precision import _survives_rounding, cpu_multiplies_bfloat16, resolve_precision

TYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.uint8, torch.int64, torch.bool]


@pytest.mark.parametrize("dtype", TYPES)
def test_gathers_rows_of_any_type(dtype):
    table = (torch.arange(40).reshape(10, 4) % 7).to(dtype)
    out = torch.empty(3, 4)
    DenseRows(table).take(torch.tensor([9, 0, 4]), out)
    assert torch.equal(out, table[[9, 0, 4]].float())


def test_dense_rows_are_not_copied():
    table = torch.zeros(5, 2)
    assert DenseRows(table).tensor.data_ptr() == table.data_ptr()
    assert DenseRows(table).slice(1, 3).data_ptr() == table[1:].data_ptr()


@pytest.mark.parametrize("container", [sparse.csr_matrix, sparse.csr_array])
def test_sparse_rows_equal_dense_rows(container):
    dense = np.random.default_rng(0).random((20, 6)) * (np.random.default_rng(1).random((20, 6)) < 0.3)
    rows = SparseRows(container(dense))
    out = torch.empty(4, 6)
    rows.take(torch.tensor([3, 19, 0, 3]), out)
    np.testing.assert_allclose(out.numpy(), dense[[3, 19, 0, 3]], rtol=1e-6)
    np.testing.assert_allclose(rows.slice(5, 9).numpy(), dense[5:9], rtol=1e-6)


def test_samples_are_spread_over_the_set():
    data = TwoSets.from_membership(DenseRows(torch.arange(100.0)[:, None]), torch.arange(100) % 2)
    assert data.sample(1, 5).flatten().tolist() == [1, 25, 49, 73, 99]
    assert len(data.sample(0, 1000)) == 50


def test_scores_do_not_depend_on_chunk_size(monkeypatch):
    torch.manual_seed(0)
    model, rows = MLP(8, hidden=(16, 16)).eval(), DenseRows(torch.randn(3000, 8))
    whole = score_rows(model, rows)
    monkeypatch.setattr("uulearn.training.scoring.SCORING_CHUNK_BYTES", {"cpu": 1})
    torch.testing.assert_close(score_rows(model, rows), whole)


def test_folding_normalization_changes_only_rounding():
    torch.manual_seed(0)
    model = MLP(8, hidden=(32, 32), dropout=0.3)
    for _ in range(20):  # makes the running statistics non-trivial
        model(torch.randn(64, 8) * 3 + 1)
    x = torch.randn(500, 8)
    torch.testing.assert_close(score_rows(model, DenseRows(x)), model.eval()(x), rtol=1e-4, atol=1e-5)
    half = score_rows(model, DenseRows(x), dtype=torch.bfloat16)
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, model(x), rtol=0.05, atol=0.05)


def test_scoring_does_not_change_the_model():
    model = MLP(4, hidden=(8,)).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    score_rows(model, DenseRows(torch.randn(10, 4)))
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


class TestPrecision:
    wide, narrow = MLP(784), MLP(784, hidden=(64,))
    sample = torch.rand(100, 784)
    cpu = torch.device("cpu")

    def resolve(self, monkeypatch, native, model, sample, precision="auto"):
        monkeypatch.setattr("uulearn.training.precision.cpu_multiplies_bfloat16", lambda: native)
        return resolve_precision(precision, model, self.cpu, sample)

    def test_auto_precision_needs_instructions_a_wide_model_and_suitable_columns(self, monkeypatch):
        far = self.sample + 100
        assert self.resolve(monkeypatch, True, self.wide, self.sample) == torch.bfloat16
        assert self.resolve(monkeypatch, False, self.wide, self.sample) == torch.float32
        assert self.resolve(monkeypatch, True, self.narrow, self.sample) == torch.float32
        assert self.resolve(monkeypatch, True, self.wide, far) == torch.float32

    @pytest.mark.parametrize(
        ("flags", "capability", "wanted"),
        [
            ("flags : fma avx512_bf16", "AVX512", True),
            ("flags : fma avx512_bf16 amx_bf16", "AVX2", False),  # ATEN_CPU_CAPABILITY=avx2: bfloat16 is emulated
            ("flags : fma avx512f", "AVX512", False),
            ("Features : asimd bf16", "DEFAULT", True),
        ],
    )
    def test_instructions_count_only_if_torch_uses_them(self, flags, capability, wanted, monkeypatch):
        monkeypatch.setattr(Path, "read_text", lambda path: f"{flags}\n")
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
        assert cpu_multiplies_bfloat16.__wrapped__() == wanted

    def test_precision_can_be_forced(self, monkeypatch):
        assert self.resolve(monkeypatch, False, self.narrow, self.sample, "bfloat16") == torch.bfloat16
        assert self.resolve(monkeypatch, True, self.wide, self.sample, "float32") == torch.float32

    def test_limit_on_columns_keeps_rounding_noise_small(self):
        generator = torch.Generator().manual_seed(0)
        column = torch.randn(5000, 1, generator=generator)
        for shift in (0.0, 10.0, 15.0, 20.0, 1000.0):
            moved = column + shift
            noise = (moved.bfloat16().float() - moved).std() / moved.std()
            assert not (_survives_rounding(moved) and noise > 0.03)
        assert _survives_rounding(column)
        assert _survives_rounding(torch.full((10, 2), 7.0))  # a constant column is ignored


def test_small_tables_are_joined_into_one_and_others_are_not_copied(monkeypatch):
    first, second = torch.arange(6.0).reshape(3, 2), -torch.arange(4.0).reshape(2, 2)
    joined = TwoSets((DenseRows(first), DenseRows(second))).joined()
    assert isinstance(joined.rows[0], DenseRows)
    assert joined.rows[0] is joined.rows[1]
    assert torch.equal(joined.rows[0].tensor, torch.cat([first, second]))
    assert torch.equal(joined.take(1, torch.tensor([1])), second[1:])
    mixed = TwoSets((DenseRows(first), DenseRows(second.double()))).joined()
    assert isinstance(mixed.rows[0], JoinedRows)
    monkeypatch.setattr("uulearn.data.rows.JOINED_BYTES", 39)
    assert isinstance(TwoSets((DenseRows(first), DenseRows(second))).joined().rows[0], JoinedRows)


TABLES = {
    "float32": lambda x: DenseRows(torch.from_numpy(x)),
    "float64": lambda x: DenseRows(torch.from_numpy(x).double()),
    "uint8": lambda x: DenseRows(torch.from_numpy(x).to(torch.uint8)),
    "sparse": lambda x: SparseRows(sparse.csr_array(x)),
}


@pytest.mark.parametrize("first", TABLES)
@pytest.mark.parametrize("second", TABLES)
def test_blocks_contain_all_rows_in_order(first, second):
    x = np.random.default_rng(0).integers(0, 3, (9, 4)).astype(np.float32)
    apart = TwoSets((TABLES[first](x[:4]), TABLES[second](x[4:])))
    mixed = TwoSets.from_membership(TABLES[first](x), torch.tensor([0, 1, 1, 0, 1, 0, 0, 1, 1]))
    for data in (apart, apart.joined(), mixed, apart.pick([3, 0], [1, 1, 4]), apart.joined().pick([3, 0], [1, 1, 4])):
        expected = torch.cat([data.take(which, torch.arange(data.sizes[which])) for which in (0, 1)]).numpy()
        blocks = data.blocks()
        assert {block.dtype for block in blocks} == {np.dtype(np.float32)}
        found = [block.toarray() if sparse.issparse(block) else block for block in blocks]
        np.testing.assert_array_equal(np.concatenate(found), expected)


def test_blocks_are_not_copied_if_possible(monkeypatch):
    x = np.random.default_rng(0).random((9, 4), dtype=np.float32)
    apart = TwoSets((TABLES["float32"](x[:4]), TABLES["float32"](x[4:])))
    monkeypatch.setattr("uulearn.data.rows.JOINED_BYTES", 0)  # as for large tables
    for data in (apart, apart.joined()):
        assert all(np.shares_memory(block, x) for block in data.blocks())
    few = TwoSets((TABLES["sparse"](x[:4]), TABLES["sparse"](x[4:]))).joined()
    assert all(block is part.matrix for block, part in zip(few.blocks(), few.rows[0].parts, strict=True))
    assert all(map(sparse.issparse, few.pick([1], [0, 2]).blocks()))
