import contextlib

from variants.training.files import replacing
from variants.training.metrics import MetricsFile, read_metrics


def test_a_row_is_there_once_it_is_added(tmp_path):
    file = MetricsFile(tmp_path / "m.csv")
    file.add(1, {"step": 1, "tokens": 10, "train/loss": 0.1})
    file.add(2, {"tokens": 20, "train/loss": 1 / 3})
    assert (tmp_path / "m.csv").read_text() == f"step,tokens,train/loss\n1,10,0.1\n2,20,{1 / 3!r}\n"


def test_a_new_metric_is_a_new_column_and_joins_the_row_of_its_step(tmp_path):
    file = MetricsFile(tmp_path / "m.csv")
    file.add(1, {"train/loss": 0.5})
    file.add(2, {"tokens": 20, "train/loss": 0.25})
    file.add(2, {"tokens": 20, "val/loss": 0.125})
    file.add(3, {"tokens": 30, "train/loss": float("nan")})
    text = "step,tokens,train/loss,val/loss\n1,,0.5,\n2,20,0.25,0.125\n3,30,nan,\n"
    assert (tmp_path / "m.csv").read_text() == text
    assert read_metrics(tmp_path / "m.csv")[:2] == [
        {"step": 1, "train/loss": 0.5},
        {"step": 2, "tokens": 20, "train/loss": 0.25, "val/loss": 0.125},
    ]


def test_a_resumed_run_drops_what_it_will_write_again(tmp_path):
    file = MetricsFile(tmp_path / "m.csv")
    for step in range(1, 5):
        file.add(step, {"train/loss": step / 8})
    file.add(4, {"val/loss": 9.0})
    with (tmp_path / "m.csv").open("a") as cut:
        cut.write("5,0.6")  # a kill in the middle of a line
    file = MetricsFile(tmp_path / "m.csv", after=2)
    assert (tmp_path / "m.csv").read_text() == "step,train/loss\n1,0.125\n2,0.25\n"
    file.add(3, {"train/loss": 0.375})
    file.add(3, {"val/loss": 9.0})
    assert (tmp_path / "m.csv").read_text() == "step,train/loss,val/loss\n1,0.125,\n2,0.25,\n3,0.375,9.0\n"


def test_a_file_is_old_or_new_whatever_happens_while_it_is_written(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    with contextlib.suppress(InterruptedError), replacing(path) as file:
        file.write(b"ne")
        file.flush()
        assert path.read_text() == "old"
        raise InterruptedError
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
    assert path.read_text() == "old"
    with replacing(path) as file:
        file.write(b"new")
    assert path.read_text() == "new"
