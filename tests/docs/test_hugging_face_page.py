"""The page on Hugging Face: its script runs, prints what the page shows, and contains the code of the page."""

import importlib.util
import re
import textwrap
from pathlib import Path

import pytest
import torch

from helpers.pages import blocks_in, python_in, read_section
from helpers.processes import python

PAGE = "hugging-face.md"
SCRIPT = Path(__file__).parents[2] / "examples" / "text_trainer" / "train.py"
EXPLAINED = "Model and rows", "Train", "Classify new texts"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("train_texts", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    code, out, err = python(SCRIPT, cwd=folder)
    assert code == 0, err
    return folder / "text_model", out


def numbers_in(text):
    return [float(number) for number in re.findall(r"[-+]?\d+\.\d+", text)]


def test_page_shows_the_output_of_the_script(finished):
    (block,) = blocks_in(read_section(PAGE, "A complete example"), "console")
    command, _, shown = block.partition("\n")
    assert command == "$ python examples/text_trainer/train.py"
    _, out = finished
    words = [re.sub(r"[-+]?\d+\.\d+", "…", text.strip()) for text in (out, shown)]
    assert words[0] == words[1]
    assert numbers_in(out) == pytest.approx(numbers_in(shown), abs=0.05)


def test_accuracy_with_labels_is_in_the_interval_without_labels(finished):
    lines = finished[1].splitlines()
    last = [line for line in lines if line.startswith("epoch")][-1]
    (labeled,) = (line for line in lines if line.startswith("new texts"))
    low, high = numbers_in(last)[-2:]
    assert 0.7 < numbers_in(labeled)[0] < 0.9
    assert low < numbers_in(labeled)[0] < high
    computers, others = (float(line.split()[0]) for line in lines[-2:])
    assert computers > 0.5 > others


def test_page_shows_the_code_of_the_script():
    source = SCRIPT.read_text(encoding="utf-8")
    blocks = python_in(PAGE, *EXPLAINED)
    assert len(blocks) == 5
    for block in blocks:
        assert any(textwrap.indent(block, indent) in source for indent in ("    ", "        ")), block


def test_a_saved_model_is_loaded_like_a_pretrained_one(finished, script):
    folder, _ = finished
    tokenizer, model = script.load(str(folder), ())
    assert model.config.num_labels == 1
    (row,) = script.make_rows(tokenizer, script.SENTENCES[:1])
    with torch.no_grad():
        score = model.eval()(input_ids=torch.tensor([row["input_ids"]])).logits
    shown = float(finished[1].splitlines()[-2].split()[0])
    assert torch.sigmoid(score).item() == pytest.approx(shown, abs=0.006)


def test_texts_are_in_one_topic_and_not_repeated(script):
    both = [*script.read_texts(script.COMPUTERS), *script.read_texts(script.OTHERS)]
    assert len(both) == 6155
    assert len(set(both)) > 6140
    assert script.read_texts(["linux", "linux"]) == script.read_texts(["linux"])


def test_the_tokenizer_is_the_same_in_every_process(script):
    texts = script.read_texts(["linux", "perl"])
    vocabularies = [script.train_tokenizer(texts).get_vocab() for _ in range(3)]
    assert vocabularies[0] == vocabularies[1] == vocabularies[2]
    assert len(vocabularies[0]) > 1000
