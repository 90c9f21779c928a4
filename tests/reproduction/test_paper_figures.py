"""Content of the figures; their appearance is not tested."""

import xml.etree.ElementTree as ElementTree

import pytest

pytest.importorskip("matplotlib")

from uulearn.reproduction import figures


def run(*, negative=20, turn=25, epochs=60, **configuration):
    accuracy = [0.6 + 0.3 * min(1, e / 20) - 0.004 * max(0, e - turn) for e in range(1, epochs + 1)]
    return {
        "configuration": configuration,
        "curves": {
            "test_accuracy": accuracy,
            "unbiased": [0.02 * (negative - e) - 1e-3 for e in range(1, epochs + 1)],
            "test_risk": [0.7 + 0.01 * e for e in range(epochs)],
        },
    }


def dashed(axis):
    return [line for line in axis.get_lines() if line.get_linestyle() == "--" and line.get_xdata()[0] > 1]


def test_figure1_marks_negative_risk_and_turning_error():
    panels = dict.fromkeys(figures.PANELS, run()) | {"mnist-linear-sigmoid": run(negative=1000, turn=1000)}
    panels["cifar10-resnet32-logistic"] = None
    figure = figures.draw_figure1(panels)
    first, second, last = figure.axes[0], figure.axes[1], figure.axes[7]
    assert len(figure.axes) == 8 + 7  # a second axis for each panel that was run
    assert [axis.get_title() for axis in figure.axes[:8]] == list(figures.PANELS.values())
    assert [text.get_text() for text in last.texts] == ["not run yet"]
    assert dashed(first) == []
    assert [list(line.get_xdata()) for line in dashed(second)] == [[20, 20]]
    errors = figure.axes[8:]
    assert [len(axis.get_lines()) for axis in errors] == [1, 2, 2, 2, 2, 2, 2]
    assert 20 <= errors[1].get_lines()[1].get_xdata()[0] <= 27
    assert [text.get_text() for text in figure.legends[0].get_texts()] == list(figures.LEGEND)


def test_figure1_without_runs():
    figure = figures.draw_figure1({})
    assert [axis.texts[0].get_text() for axis in figure.axes] == ["not run yet"] * 8


def test_figure2_draws_the_correction_functions():
    axis = figures.draw_figure2((-0.1, -0.5)).axes[0]
    at_the_left = {line.get_label(): line.get_ydata()[0] for line in axis.get_lines() if len(line.get_xdata()) > 2}
    assert at_the_left == pytest.approx(
        {
            "identity (no correction)": -2,
            "absolute value, λ = −1": 2,
            "ReLU, λ = 0": 0,
            "leaky ReLU, λ = −0.1": 0.2,
            "leaky ReLU, λ = −0.5": 1,
            "_all": 0,
        }
    )


def test_figure3_has_two_curves_and_one_color_per_setting():
    dropout = [run(dropout=value) for value in (0.8, 0, 0.4)]
    decay = [run(l2=5e-4), run(l2=5), run(l2=5)]  # two seeds of one setting
    left, right = figures.draw_figure3(dropout, decay).axes
    for axis, labels, n_curves in ((left, ["0", "0.4", "0.8"], 6), (right, ["0.0005", "5"], 6)):
        curves = [line for line in axis.get_lines() if len(line.get_xdata()) == 60]
        assert len(curves) == n_curves
        assert [line.get_linestyle() for line in curves] == ["-", "--"] * (n_curves // 2)
        assert len({line.get_color() for line in curves}) == len(labels)
        legends = [child for child in axis.get_children() if type(child).__name__ == "Legend"]
        shown = sorted([text.get_text() for text in legend.get_texts()] for legend in legends)
        assert shown == sorted([labels, ["test", "training"]])
    empty, _ = figures.draw_figure3([], decay).axes
    assert empty.texts[0].get_text() == "not run yet"


def test_figure_files_are_deterministic(tmp_path):
    for folder in ("one", "two"):
        target = tmp_path / folder
        names = [
            *figures.write_figure(target / "figure1", figures.draw_figure1({"mnist-mlp-logistic": run()})),
            *figures.write_figure(target / "figure2", figures.draw_figure2()),
            *figures.write_figure(target / "figure3", figures.draw_figure3([run(dropout=0.2)], [])),
        ]
        assert [path.name for path in names] == [f"figure{n}.{kind}" for n in (1, 2, 3) for kind in ("png", "svg")]
        assert sorted(target.iterdir()) == sorted(names)
    for path in (tmp_path / "one").iterdir():
        content = path.read_bytes()
        assert content == (tmp_path / "two" / path.name).read_bytes()
        if path.suffix == ".png":
            assert content.startswith(b"\x89PNG")
        else:
            assert ElementTree.fromstring(content).tag.endswith("svg")
