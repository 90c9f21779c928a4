"""Several processes that train together equal one process: ensembles, self-training, checkpoints."""

import copy
import pickle
import textwrap
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from helpers.processes import python, several
from helpers.training_worker import FITS, described, fitted, normalized, rows
from uulearn.data import BatchPlan
from uulearn.models import normalization
from uulearn.models.normalization import synchronized
from uulearn.training.workers import join_workers, local_device, started_by_torchrun

WORKER = Path(__file__).parents[1] / "helpers" / "training_worker.py"


def torchrun(n, *command, **options):
    """Exit code, output and messages of all processes, which use a free port."""
    launcher = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={n}")
    return python(*launcher, *command, env={"OMP_NUM_THREADS": "1"}, **options)


def found_by(n, folder, *names):
    for code, _, said in several(n, WORKER, folder / "found", *names):
        assert code == 0, said[-3000:]
    return [torch.load(folder / f"found{rank}", weights_only=True) for rank in range(n)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("two")


@pytest.fixture(scope="module")
def together(folder):
    return found_by(2, folder, *FITS)


def assert_like_one(found, name):
    alone = described(fitted(FITS[name]))
    for ours in (each[name] for each in found):
        assert (ours["seed"], ours["why"], ours["kept"]) == (alone["seed"], alone["why"], alone["kept"])
        assert ours["records"].shape == alone["records"].shape
        torch.testing.assert_close(ours["records"], alone["records"], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(ours["scores"], alone["scores"], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", FITS)
def test_two_workers_equal_one_process(together, name):
    assert_like_one(together, name)


def test_three_workers_equal_one_process(tmp_path):
    found = found_by(3, tmp_path, "mlp")
    assert_like_one(found, "mlp")
    assert_normalized_alike(found)


def test_all_workers_are_bit_identical(together):
    first, *others = together
    for name in [*FITS, "stopped", "seeds", "resumed"]:
        for other in others:
            assert torch.equal(first[name]["scores"], other[name]["scores"]), name
            assert torch.equal(first[name]["records"], other[name]["records"]), name


def test_only_the_first_worker_calls_the_callback(together):
    assert [found["calls"] for found in together] == [2] + [0] * (len(together) - 1)
    assert {found["stopped"]["why"] for found in together} == {"the callback asked to stop"}


def test_workers_without_seed_use_a_common_seed(together):
    assert len({found["seeds"]["seed"] for found in together}) == 1


def test_workers_resume_from_a_checkpoint(together):
    alone = described(fitted({"epochs": 4}))
    for found in together:
        torch.testing.assert_close(found["resumed"]["records"][:, 1:], alone["records"][:, 1:], rtol=1e-4, atol=1e-5)


def test_one_process_resumes_the_run_of_two(together, folder):
    clf = fitted(
        {"epochs": 5}, parameters={"training__checkpoint_dir": folder / "checkpoints", "training__checkpoint_every": 1}
    )
    assert clf.history_.resumed_at == [2, 4]
    alone = described(fitted({"epochs": 5}))
    torch.testing.assert_close(described(clf)["records"], alone["records"], rtol=1e-4, atol=1e-5)


def test_failure_of_the_first_worker_reaches_all(together):
    own, *others = (found["refused"] for found in together)
    assert own[0] == "ZeroDivisionError: division by zero"
    assert "belongs to another run (different: lr)" in own[1]
    for other in others:
        assert other == ["FirstWorkerError: division by zero", own[1]]


def assert_normalized_alike(found):
    for name, wanted in normalized(None).items():
        # float64 rows are near 10⁶, where the last digit is 10⁻¹⁰
        exactness = {"float64": 1e-8, "bfloat16": 8e-3, "float16": 1e-3}.get(name.replace(",", " ").split()[0], 1e-5)
        for each in found:
            for ours, theirs in zip(each["norms"][name], wanted, strict=True):
                torch.testing.assert_close(
                    ours, theirs, rtol=exactness, atol=exactness, msg=lambda said, name=name: f"{name}: {said}"
                )


def test_synchronized_normalization_equals_the_whole_batch(together):
    assert_normalized_alike(together)


def test_all_workers_reject_too_few_values_to_normalize(together):
    for each in together:
        assert each["too few"]["said"] == [
            f"batch normalization requires at least 2 values per channel for training, got {n} from all workers "
            "together; use larger batches, or call model.eval() first."
            for n in (1, 0)
        ]
        for name, value in nn.BatchNorm1d(3).state_dict().items():
            assert torch.equal(each["too few"]["state"][name], value), name
    assert [len(each["too few"]["evaluated"]) for each in together] == [1, 0]
    torch.testing.assert_close(together[0]["too few"]["evaluated"][0], torch.full((1, 3), 2.0))


def test_copy_of_synchronized_model_is_plain(together):
    rows = together[0]["copies"]["rows"]
    plain = nn.Sequential(nn.BatchNorm1d(2), nn.BatchNorm1d(2))
    for each in together:
        assert each["copies"]["kinds"] == ["SynchronizedBatchNorm1d"] * 2 + ["BatchNorm1d"] * 4
    assert [len(each["copies"]["used"]) for each in together] == [3, 0]
    for used in together[0]["copies"]["used"]:
        torch.testing.assert_close(used, plain(rows))


def test_callback_can_save_the_whole_model(together, folder):
    X, _, _ = rows()
    saved = torch.load(folder / "whole.pt", weights_only=False).eval()
    assert {type(layer) for layer in saved.modules() if "BatchNorm" in type(layer).__name__} == {nn.BatchNorm1d}
    with torch.no_grad():
        scores = saved(torch.from_numpy(X)).flatten()
    torch.testing.assert_close(scores, together[0]["stopped"]["scores"], check_dtype=False, rtol=1e-4, atol=1e-4)


def test_copy_of_synchronized_model_keeps_weights_and_statistics():
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3, eps=0.25))
    model(torch.randn(9, 2))
    with synchronized(model):
        copied, unpickled = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
        assert type(model[1]).__name__ == "SynchronizedBatchNorm1d"
    for each in (copied, unpickled):
        assert type(each[1]) is nn.BatchNorm1d
        assert vars(each[1]).keys() == vars(model[1]).keys()
        assert each[1].eps == 0.25
        for (name, ours), theirs in zip(each.state_dict().items(), model.state_dict().values(), strict=True):
            assert torch.equal(ours, theirs), name
            assert ours.data_ptr() != theirs.data_ptr(), name


def test_rejects_normalization_that_cannot_be_synchronized(monkeypatch):
    class Own(nn.BatchNorm1d):
        pass

    model = nn.Sequential(nn.Linear(2, 2), Own(2))
    with synchronized(model):  # a single process has nothing to synchronize
        assert type(model[1]) is Own
    monkeypatch.setattr("uulearn.models.normalization.world_size", lambda group: 2)
    with pytest.raises(ValueError, match="Own cannot be synchronized over workers"), synchronized(model):
        pass


def test_parts_of_workers_form_the_batch():
    for sizes, batch_size, count in [((7, 3), 4, 2), ((300, 41), 50, 3), ((30_000, 30_000), 3_000, 8)]:
        whole = BatchPlan(sizes, batch_size)
        parts = [BatchPlan(sizes, batch_size, worker, count) for worker in range(count)]
        for batch in range(whole.n_batches):
            assert all(part.whole_counts(batch) == whole.counts(batch) for part in parts)
            for which in (0, 1):
                own = [np.arange(part.bounds(batch)[which].start, part.bounds(batch)[which].stop) for part in parts]
                wanted = whole.bounds(batch)[which]
                np.testing.assert_array_equal(np.sort(np.concatenate(own)), np.arange(wanted.start, wanted.stop))
            rows = [sum(part.counts(batch)) for part in parts]
            assert max(rows) - min(rows) <= 2


def test_rejects_worker_without_rows():
    with pytest.raises(ValueError, match="a batch of 2 rows leaves some of the 3 workers without rows; raise"):
        BatchPlan((10, 10), 2, 0, 3).check_workers()
    BatchPlan((10, 10), 2, 0, 2).check_workers()


def test_single_process_has_no_workers(monkeypatch):
    assert join_workers(False) is None
    assert join_workers("auto") is None
    with pytest.raises(ValueError, match=r"distributed=True needs several processes; start the script with torchrun"):
        join_workers(True)
    assert not started_by_torchrun({"RANK": "0", "WORLD_SIZE": "1"})
    assert local_device("cuda") == "cuda"
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    assert [local_device(name) for name in ("cuda", "cuda:0", "cpu")] == ["cuda:1", "cuda:0", "cpu"]


# ------------------------------------------------------------------------------------------------------ command line


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)
    for name, share in (("a", 0.8), ("b", 0.2)):
        positive = rng.random(300) < share
        columns = {"x": rng.normal(size=300) + 2 * positive, "kind": rng.choice(["one", "two"], 300)}
        pd.DataFrame(columns).to_csv(folder / f"{name}.csv", index=False)
    return folder


FIT = ["-m", "uulearn", "fit", "a.csv", "b.csv", "--set-priors", "0.8 0.2", "--model", "linear", "--epochs", "3"]


def test_fit_under_torchrun_equals_fit_of_one_process(files):
    code, out, err = torchrun(2, *FIT, "--no-sensitivity", "--out", "several", cwd=files)
    assert code == 0, err[-2000:]
    assert out.count("accuracy") == 1
    assert python(*FIT, "--no-sensitivity", "--out", "one", cwd=files)[0] == 0
    assert (files / "several/config.toml").read_text() == (files / "one/config.toml").read_text()
    for model in ("several", "one"):
        assert python("-m", "uulearn", "predict", model, "a.csv", "--out", f"{model}.csv", cwd=files)[0] == 0
    ours, theirs = (pd.read_csv(files / f"{model}.csv") for model in ("several", "one"))
    np.testing.assert_allclose(ours["score"], theirs["score"], rtol=1e-3, atol=1e-4)
    assert not list(files.glob(".several*"))


def test_error_is_reported_once_and_all_processes_end(files):
    ended = several(2, *[part.replace("b.csv", "none.csv") for part in FIT], "--out", "never", cwd=files)
    assert all(code != 0 for code, _, _ in ended)
    assert "".join(said for _, _, said in ended).count("error: none.csv does not exist") == 1
    assert not (files / "never").exists()


DIES = """
    import os, sys
    import numpy as np
    from torch import nn
    from uulearn import UUClassifier
    from uulearn.training import TrainingOptions

    class Dies(nn.Linear):
        steps = 0

        def forward(self, x):
            Dies.steps += self.training
            if Dies.steps == 5 and os.environ["RANK"] == "1":
                os._exit(7)
            return super().forward(x)

    X, sets = np.random.default_rng(0).normal(size=(200, 3)), np.repeat([0, 1], 100)
    training = TrainingOptions(distributed=True)
    clf = UUClassifier((0.8, 0.2), model=Dies(3, 1), batch_size=50, epochs=50, training=training)
    clf.fit(X, sets)
    clf.save(sys.argv[1])
"""


def test_all_processes_end_if_one_dies(tmp_path):
    script = tmp_path / "dies.py"
    script.write_text(textwrap.dedent(DIES))
    code, _, err = torchrun(2, script, tmp_path / "model")
    assert code != 0
    assert "exitcode  : 7" in err
    assert not (tmp_path / "model").exists()


# ----------------------------------------------------------------------------------------------- batch normalization


@pytest.mark.parametrize("shape", [(50, 4), (6, 4, 5, 5)])
def test_portable_normalization_equals_cpu_kernels(shape):
    """Both code paths of synchronized normalization, on a CPU."""
    torch.manual_seed(0)
    x, gradient = 3 + 2 * torch.randn(shape), torch.randn(shape)
    inner = [place for place in range(len(shape)) if place != 1]
    plainly = normalization._portable_mean_and_variance(x, torch.float32, inner)
    for found, expected in zip(normalization._mean_and_variance(x, torch.float32, inner), plainly, strict=True):
        torch.testing.assert_close(found.float(), expected)
    mean, variance = plainly
    about = SimpleNamespace(inner=inner, shape=[1, -1, *[1] * len(shape[2:])], eps=1e-3)
    scale = torch.rsqrt(variance + about.eps)
    bias, slope = normalization._parameter_gradients(gradient, x, mean, variance, scale, about)
    bias_plainly, slope_plainly = normalization._portable_parameter_gradients(gradient, x, mean, scale, about)
    torch.testing.assert_close(bias, bias_plainly)
    torch.testing.assert_close(slope, slope_plainly)
