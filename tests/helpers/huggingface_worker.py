"""A small text model trained by `UUTrainer`, in this process or as one of several. Usage: huggingface_worker.py OUT"""

import os
import sys
import warnings
from pathlib import Path

import torch

import helpers.torchvision_operators  # noqa: F401  (before Transformers imports torchvision)

# isort: split
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from helpers.pages import python_in
from uulearn import UURisk
from uulearn.integrations.huggingface import UUTrainer

ROWS, LR, EPOCHS = 24, 0.5, 3
# Priors this close and this correction give a part of the batch another gradient than the whole batch.
SETTINGS = ((0.55, 0.45), 0.5, "sigmoid", "abs")


def rows(name="sets"):
    """Texts of six tokens, already padded; ``name`` is the column with the sets."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(1, 30, (ROWS, 6), generator=generator)
    sets = torch.randint(0, 2, (ROWS,), generator=generator)
    return [{"input_ids": one.tolist(), name: int(which)} for one, which in zip(tokens, sets, strict=True)]


def risk_of_page():
    """The function of the documentation for `Trainer`, with the settings of the tests."""
    page = {"UURisk": lambda *_, **__: UURisk(*SETTINGS)}
    exec(compile(python_in("hugging-face.md", "Gradient accumulation")[0], "hugging-face.md", "exec"), page)
    return page["risk"]


PLAIN = {
    "kind": Trainer,
    "data": rows("labels"),
    "compute_loss_func": risk_of_page(),
    "average_tokens_across_devices": False,
}
CASES = {
    "one call": {"micro_batch": 12},
    "accumulated": {"micro_batch": 4, "accumulate": 3},
    "Trainer": {"micro_batch": 12} | PLAIN,
}
"""Two processes; in each step, their micro-batches are all rows."""


def network(dropout=0.0, **others):
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=30, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=6, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout,
        **{"num_labels": 1} | others,
    )  # fmt: skip
    return BertForSequenceClassification(config).double()


def make_trainer(
    folder, micro_batch=ROWS, accumulate=1, model=None, data=None, eval_data=None, kind=UUTrainer, **options
):
    """Return a trainer with plain SGD, which is sensitive to a wrong scale of the gradients."""
    model, data = model or network(), data or rows()
    known = {name: options.pop(name) for name in ("compute_loss_func", "compute_metrics") if name in options}
    args = TrainingArguments(
        output_dir=str(folder), num_train_epochs=EPOCHS, per_device_train_batch_size=micro_batch,
        gradient_accumulation_steps=accumulate, max_grad_norm=0, logging_steps=1,
        report_to="none", disable_tqdm=True, dataloader_pin_memory=False, use_cpu=True,
        **{"save_strategy": "no"} | options,
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    constant = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    known = {"compute_loss_func": UURisk(*SETTINGS)} | known
    return kind(
        model, args, train_dataset=data, eval_dataset=eval_data or data, optimizers=(optimizer, constant), **known
    )


def flat(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def trained(folder, **options):
    """The weights, the logged losses, the metrics and the scores of a short training."""
    trainer = make_trainer(folder, **options)
    trainer.train()
    losses = [record["loss"] for record in trainer.state.log_history if "loss" in record]
    without_sets = [{"input_ids": row["input_ids"]} for row in rows()]
    return {
        "parallel": type(trainer.model_wrapped).__name__,
        "weights": flat(trainer.model),
        "losses": losses,
        "metrics": {name: value for name, value in trainer.evaluate().items() if "_per_" not in name},
        "scores": torch.from_numpy(trainer.predict(without_sets).predictions),
    }


def main(out):
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    found = {name: trained(out.parent, **options) for name, options in CASES.items()}
    torch.save(found, f"{out}{os.environ['RANK']}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
