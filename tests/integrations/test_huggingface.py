"""`UUTrainer`: gradient accumulation and several processes equal the whole batch in one process."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate.state import AcceleratorState, GradientState
from torch.utils.data import IterableDataset
from transformers import BartConfig, BartForSequenceClassification

from helpers.huggingface_worker import (
    CASES,
    EPOCHS,
    LR,
    PLAIN,
    ROWS,
    SETTINGS,
    flat,
    make_trainer,
    network,
    rows,
    trained,
)
from helpers.processes import several
from uulearn import UURisk, uu_risk
from uulearn.integrations.huggingface import UUTrainer
from uulearn.metrics import evaluate

WORKER = Path(__file__).parents[1] / "helpers" / "huggingface_worker.py"


@pytest.fixture(autouse=True)
def own_accelerator():
    """Accelerate keeps its settings for the whole process."""
    yield
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


def in_one_batch(steps=EPOCHS, model=None):
    """The weights and objectives of full-batch SGD without a trainer."""
    model, data = model or network(), rows()
    tokens, sets = torch.tensor([row["input_ids"] for row in data]), torch.tensor([row["sets"] for row in data])
    losses = []
    for _ in range(steps):
        model.zero_grad()
        loss = uu_risk(model(tokens).logits, sets, *SETTINGS[:2], loss=SETTINGS[2], method=SETTINGS[3]).objective
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= LR * parameter.grad
        losses.append(loss.item())
    return flat(model), losses


def equal(ours, theirs):
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-10)


# ------------------------------------------------------------------------------------------------ gradient accumulation


@pytest.mark.parametrize(("micro_batch", "accumulate"), [(24, 1), (8, 3), (10, 3), (1, 24)])
def test_accumulated_steps_equal_the_whole_batch(tmp_path, micro_batch, accumulate):
    found = trained(tmp_path, micro_batch=micro_batch, accumulate=accumulate)
    weights, losses = in_one_batch()
    equal(found["weights"], weights)
    assert found["losses"] == pytest.approx(losses, abs=1e-4)
    assert not torch.allclose(weights, flat(network()), atol=0.01)


def test_incomplete_last_step_equals_a_smaller_batch(tmp_path):
    found = [trained(tmp_path, micro_batch=size, accumulate=20 // size)["weights"] for size in (20, 10, 5)]
    for other in found[1:]:
        equal(other, found[0])


def test_base_class_gives_other_weights(tmp_path):
    """The other tests would not accept the mean of the gradients of micro-batches."""
    risk = PLAIN["compute_loss_func"]
    mean = {"compute_loss_func": lambda *args, **kwargs: risk(*args, **kwargs) / 3}
    found = [
        trained(tmp_path, **options)["weights"]
        for options in (PLAIN, {"micro_batch": 8, "accumulate": 3} | PLAIN | mean)
    ]
    equal(found[0], in_one_batch()[0])
    assert torch.linalg.norm(found[1] - found[0]) > 0.1


def test_dropout_uses_the_same_random_numbers_in_both_passes(tmp_path, monkeypatch):
    """Scores in training mode, of the first and of the second pass."""
    seen = []
    model = network(dropout=0.5)
    model.register_forward_hook(lambda module, inputs, outputs: seen.append(outputs.logits.detach().clone()))
    make_trainer(tmp_path, micro_batch=8, accumulate=3, model=model, max_steps=1).train()
    assert len(seen) == 6
    equal(torch.cat(seen[:3]), torch.cat(seen[3:]))
    assert not torch.allclose(seen[0], model.eval()(torch.tensor([row["input_ids"] for row in rows()])).logits[:8])


def test_training_mode_is_restored_after_an_evaluation(tmp_path):
    modes = []
    model = network(dropout=0.5)
    model.register_forward_hook(lambda module, inputs, outputs: modes.append(module.training))
    options = {"eval_strategy": "epoch", "per_device_eval_batch_size": ROWS}
    trainer = make_trainer(tmp_path, micro_batch=12, accumulate=2, model=model, **options)
    trainer.optimizer.train = lambda: modes.append("optimizer")  # as of a schedule-free optimizer
    trainer.train()
    assert modes == ["optimizer", *[True] * 4, False] * EPOCHS


def test_bfloat16_accumulates_like_the_whole_batch(tmp_path):
    found = []
    for micro_batch in (24, 8):
        accumulated = trained(tmp_path, micro_batch=micro_batch, accumulate=24 // micro_batch, bf16=True,
                              model=network().float())  # fmt: skip
        found.append(accumulated["weights"])
    torch.testing.assert_close(*found, rtol=0, atol=5e-3)
    assert not torch.equal(found[0], in_one_batch(model=network().float())[0])


# ---------------------------------------------------------------------------------------------------- several processes


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    out = tmp_path_factory.mktemp("found") / "rank"
    for code, _, output in several(2, WORKER, out):
        assert code == 0, output[-2000:]
    return [torch.load(f"{out}{rank}", weights_only=True) for rank in range(2)]


@pytest.mark.parametrize("case", CASES)
def test_two_processes_equal_one(processes, case, tmp_path):
    weights, losses = in_one_batch()
    alone = trained(tmp_path)
    for found in (each[case] for each in processes):
        assert found["parallel"] == "DistributedDataParallel"
        equal(found["weights"], weights)
        assert found["losses"] == pytest.approx(losses, abs=1e-4)
        equal(found["scores"], alone["scores"])
        if case == "Trainer":  # its metrics are means over batches
            continue
        for name in ("eval_loss", "eval_positive", "eval_accuracy", "eval_accuracy_high"):
            assert found["metrics"][name] == pytest.approx(alone["metrics"][name])


# ----------------------------------------------------------------------------------------------- evaluation, prediction


def test_metrics_are_those_of_all_rows(tmp_path):
    trainer = make_trainer(tmp_path, per_device_eval_batch_size=5)
    found = trainer.evaluate()
    scores = trainer.predict([{"input_ids": row["input_ids"]} for row in rows()])
    assert scores.label_ids is None
    sets = np.array([row["sets"] for row in rows()])
    priors, loss, method = SETTINGS[:2], SETTINGS[2], SETTINGS[3]
    parts = uu_risk(torch.from_numpy(scores.predictions), torch.from_numpy(sets), *priors, loss=loss, method=method)
    accuracy = evaluate(scores.predictions, sets, *SETTINGS[:2]).accuracy
    wanted = {
        "loss": parts.objective.item(),
        "positive": parts.positive.item(),
        "negative": parts.negative.item(),
        "accuracy": accuracy.value,
        "accuracy_low": accuracy.interval[0],
        "accuracy_high": accuracy.interval[1],
    }
    for name, value in wanted.items():
        assert found[f"eval_{name}"] == pytest.approx(value, rel=1e-6), name


def test_own_metrics_receive_the_scores_and_sets_of_all_rows(tmp_path):
    def count(prediction):
        return {"rows": len(prediction.predictions), "sum": int(prediction.label_ids.sum())}

    found = make_trainer(tmp_path, compute_metrics=count, per_device_eval_batch_size=7).evaluate()
    assert (found["eval_rows"], found["eval_sum"]) == (ROWS, sum(row["sets"] for row in rows()))
    assert "eval_loss" not in found


class Bare(torch.nn.Module):
    """A model without a config whose outputs are made by a function of the scores."""

    def __init__(self, make):
        super().__init__()
        self.network, self.make = network(), make

    def forward(self, input_ids):
        return self.make(self.network(input_ids).logits)


@pytest.mark.parametrize(
    "model",
    [
        lambda: network(output_hidden_states=True, output_attentions=True),
        lambda: Bare(lambda scores: scores),
        lambda: Bare(lambda scores: {"other": scores + 1, "logits": scores}),
    ],
    ids=["more outputs", "tensor", "dict"],
)
@pytest.mark.parametrize("micro_batch", [24, 8])
def test_models_with_other_outputs(tmp_path, model, micro_batch):
    found = trained(tmp_path, model=model(), micro_batch=micro_batch, accumulate=24 // micro_batch)
    plain = trained(tmp_path)
    equal(found["weights"], plain["weights"])
    equal(found["scores"], plain["scores"])
    for name in ("eval_loss", "eval_positive", "eval_negative", "eval_accuracy"):
        assert found["metrics"][name] == pytest.approx(plain["metrics"][name]), name


def test_encoder_decoder_model_is_evaluated(tmp_path):
    torch.manual_seed(0)
    config = BartConfig(
        vocab_size=30, d_model=8, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=8, decoder_ffn_dim=8, max_position_embeddings=16, num_labels=1,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=2,
    )  # fmt: skip
    data = [row | {"input_ids": [*np.clip(row["input_ids"], 3, None).tolist(), 2]} for row in rows()]
    trainer = make_trainer(tmp_path, model=BartForSequenceClassification(config), data=data)
    trainer.train()
    assert 0 <= trainer.evaluate()["eval_accuracy_low"] < trainer.evaluate()["eval_accuracy_high"] <= 1


def test_best_epoch_is_selected_without_labels(tmp_path):
    options = {"eval_strategy": "epoch", "save_strategy": "epoch", "load_best_model_at_end": True}
    trainer = make_trainer(tmp_path, metric_for_best_model="positive", **options)
    trainer.train()
    found = [record["eval_positive"] for record in trainer.state.log_history if "eval_positive" in record]
    assert trainer.state.best_metric == max(found) > min(found)
    assert trainer.evaluate()["eval_positive"] == pytest.approx(max(found))


def test_labels_are_not_used(tmp_path):
    labeled = [row | {"labels": number % 2} for number, row in enumerate(rows())]
    equal(trained(tmp_path, data=labeled, micro_batch=8, accumulate=3)["weights"], in_one_batch()[0])
    equal(trained(tmp_path, data=labeled)["weights"], in_one_batch()[0])


def test_three_sets(tmp_path):
    data = [row | {"sets": number % 3} for number, row in enumerate(rows())]
    criterion = UURisk((0.8, 0.5, 0.2), 0.5)
    found = [
        trained(tmp_path, data=data, micro_batch=size, accumulate=24 // size, compute_loss_func=criterion)["weights"]
        for size in (24, 8)
    ]
    equal(*found)
    assert torch.linalg.norm(found[0] - flat(network())) > 0.01


# --------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (lambda row: row | {"sets": row["sets"] + 1}, "sets must be 0 or 1, the set that each row came from, got 2."),
        (lambda row: row | {"sets": 0.5}, "sets must be 0 or 1, the set that each row came from, got 0.5."),
        (
            lambda row: {"input_ids": row["input_ids"], "labels": row["sets"]},
            "have no column 'sets', only .*; add a column 'sets' with the set .0 or 1. of each row",
        ),
    ],
)
def test_bad_sets_are_named(tmp_path, accumulate, changed, message):
    model = network()
    model.register_forward_hook(lambda *_: pytest.fail("the model was called"))
    data = [changed(row) for row in rows()]
    with pytest.raises(ValueError, match=message):
        make_trainer(tmp_path, micro_batch=12, accumulate=accumulate, data=data, model=model).train()
    equal(flat(model), flat(network()))


def test_evaluation_rows_without_sets_are_named_before_training(tmp_path):
    unlabeled = [{"input_ids": row["input_ids"], "labels": 1} for row in rows()]
    message = "the rows of {} have no column 'sets', only input_ids, labels; add a column 'sets' .* to {}."
    for given, name in ((unlabeled, "eval_dataset"), ({"first": rows(), "second": unlabeled}, "second")):
        with pytest.raises(ValueError, match=message.format(name, name)):
            make_trainer(tmp_path, eval_data=given)
        with pytest.raises(ValueError, match=message.format(name, name)):
            make_trainer(tmp_path).evaluate(given)
    assert make_trainer(tmp_path).predict(unlabeled).predictions.shape == (ROWS, 1)


def test_training_rows_without_sets_are_named_before_training(tmp_path):
    unlabeled = [{"input_ids": row["input_ids"]} for row in rows()]
    with pytest.raises(
        ValueError, match="the rows of train_dataset have no column 'sets', only input_ids; add .* to tr"
    ):
        make_trainer(tmp_path, data=unlabeled, eval_data=rows())


class Stream(IterableDataset):
    """Rows in a fixed order that cannot be accessed by their number."""

    def __init__(self, data=None):
        self.data = data or rows()

    def __iter__(self):
        return iter(self.data)


class SizedStream(Stream):
    def __len__(self):
        return len(self.data)


@pytest.mark.parametrize("stream", [Stream, SizedStream])
def test_streams_are_used_for_training_and_evaluation(tmp_path, stream):
    options = {"max_steps": EPOCHS, "eval_strategy": "steps", "eval_steps": EPOCHS}
    trainer = make_trainer(tmp_path, micro_batch=8, accumulate=3, data=stream(), eval_data=stream(), **options)
    trainer.train()
    equal(flat(trainer.model), in_one_batch()[0])
    found, listed = trainer.evaluate(), trainer.evaluate(rows())
    for name in ("eval_loss", "eval_positive", "eval_accuracy"):
        assert found[name] == pytest.approx(listed[name])


def test_stream_without_sets_is_named_at_its_first_batch(tmp_path):
    unlabeled = Stream([{"input_ids": row["input_ids"]} for row in rows()])
    trainer = make_trainer(tmp_path, data=unlabeled, eval_data=rows(), max_steps=1)
    with pytest.raises(ValueError, match="the batches have no column 'sets', only input_ids; add .* to train_dataset"):
        trainer.train()


def test_models_without_scores_are_named(tmp_path):
    trainer = make_trainer(tmp_path, model=Bare(lambda scores: {"score": scores}))
    with pytest.raises(TypeError, match="the model must return a tensor, or logits as Transformers does, got dict"):
        trainer.train()


def test_bad_arguments_are_named_before_training(tmp_path):
    with pytest.raises(
        ValueError, match=r"the model must have one output, got num_labels=2; load it with num_labels=1"
    ):
        make_trainer(tmp_path, model=network(num_labels=2))
    with pytest.raises(TypeError, match="compute_loss_func must be a UURisk, got 'logistic'"):
        make_trainer(tmp_path, compute_loss_func="logistic")
    with pytest.raises(TypeError, match="compute_loss_func"):
        UUTrainer(network())


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"label_smoothing_factor": 0.1}, "^label_smoothing_factor=0.1 has no effect, because .*; remove it.$"),
        ({"eval_do_concat_batches": False}, "^eval_do_concat_batches=False is not supported, because .*; remove it.$"),
    ],
)
def test_training_arguments_without_effect_are_refused(tmp_path, option, message):
    with pytest.raises(ValueError, match=message):
        make_trainer(tmp_path, **option)


class WithDeepSpeed(UUTrainer):
    """A trainer that acts as if DeepSpeed were used; DeepSpeed itself needs a GPU."""

    def create_accelerator_and_postprocess(self):
        super().create_accelerator_and_postprocess()
        self.is_deepspeed_enabled = True


def test_deepspeed_with_gradient_accumulation_is_refused(tmp_path):
    with pytest.raises(
        ValueError, match="^DeepSpeed cannot be used with gradient_accumulation_steps=3, .*; set it to 1"
    ):
        make_trainer(tmp_path, micro_batch=8, accumulate=3, kind=WithDeepSpeed)
    make_trainer(tmp_path, kind=WithDeepSpeed)


def test_processes_that_transformers_does_not_use_are_an_error(tmp_path, monkeypatch):
    """As under torchrun on CPUs without ``use_cpu=True``: the weights of the processes would differ."""
    monkeypatch.setattr("uulearn.integrations.huggingface.world_size", lambda: 2)
    with pytest.raises(ValueError, match="2 connected processes, but TrainingArguments found 1; .* pass use_cpu=True"):
        make_trainer(tmp_path)
    make_trainer(tmp_path, compute_loss_func=UURisk(*SETTINGS, distributed=False))


def test_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.delitem(sys.modules, "uulearn.integrations.huggingface")
    with pytest.raises(ImportError, match=r"needs Transformers; install it with pip install 'uulearn\[huggingface\]'"):
        importlib.import_module("uulearn.integrations.huggingface")


@pytest.mark.parametrize("kind", [ModuleNotFoundError, RuntimeError])
def test_damaged_package_is_not_called_missing(monkeypatch, tmp_path, kind):
    """As for a torchvision of another build, which Transformers reports as a missing module, and as its cause."""
    (tmp_path / "transformers").mkdir()
    (tmp_path / "transformers" / "__init__.py").write_text(
        f"raise {kind.__name__}('Could not import module') from RuntimeError('operator nms does not exist.')"
    )
    for name in [name for name in sys.modules if name.partition(".")[0] == "transformers"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "uulearn.integrations.huggingface")
    with pytest.raises(
        ImportError, match=r"installed but cannot be loaded \(operator nms does not exist\); install ver"
    ):
        importlib.import_module("uulearn.integrations.huggingface")
    monkeypatch.setitem(sys.modules, "accelerate", None)
    with pytest.raises(ImportError, match="needs Transformers; install it with pip install"):
        importlib.import_module("uulearn.integrations.huggingface")
