"""What Lightning would refuse is refused before there is a folder, in a line."""

import pytest
from training_runs import TINY

from variants.cli import main
from variants.slots import strategies

REFUSED = {
    "trainer.limit_val_batches=-1": "error: trainer: You have passed invalid value -1 for limit_val_batches",
    "trainer.limit_train_batches=3": "error: trainer.limit_train_batches: a run is one epoch",
    "trainer.check_val_every_n_epoch=1": "error: trainer.check_val_every_n_epoch: val_check_interval counts",
    "trainer.enable_checkpointing=true": "error: trainer.enable_checkpointing: a run is always saved",
    "trainer.gradient_clip_val=-1": "error: trainer.gradient_clip_val: -1.0 must be above 0; null is no limit",
    "trainer.gradient_clip_val=0": "error: trainer.gradient_clip_val: 0.0 must be above 0; null is no limit",
    "trainer.num_workers=-1": "error: trainer.num_workers: -1 must be at least 0",
    "trainer.early_stopping=0": "error: trainer.early_stopping: 0 must be at least 1",
    "trainer.gradient_clip_algorithm=fifth": "error: trainer: `gradient_clip_algorithm` fifth is invalid",
    "trainer.profiler=none": "error: trainer: When passing string value for the `profiler` parameter",
    "trainer.strategy=nonsense": "error: trainer.strategy: no strategy 'nonsense'; there are: auto, ddp, ",
    "trainer.strategy={static_graph: true}": "error: trainer.strategy: no strategy None; there are: auto, ddp, ",
    "trainer.strategy=dpp": "error: trainer.strategy: no strategy 'dpp' (did you mean 'ddp'?); there are: auto, ddp",
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_lightning_refuses_is_a_line_and_no_folder(said, tmp_path, capsys):
    assert main(["train", *TINY, said, "--folder", str(tmp_path / "run")]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(REFUSED[said])
    assert not (tmp_path / "run").exists()


def test_a_batch_that_the_ranks_cannot_share_is_refused_before_there_is_a_folder(tmp_path, capsys):
    shared = ["trainer.devices=2", "data.batch_size=3", "--folder", str(tmp_path / "run")]
    assert main(["train", *TINY, *shared]) == 2
    said = capsys.readouterr().err
    assert said == "error: data: batch_size=3: must be a multiple of the 2 data-parallel ranks\n"
    assert not (tmp_path / "run").exists()


def test_a_run_without_validation_tells_the_loss_that_it_has(tmp_path, capsys):
    shown = ["trainer.max_steps=1", "trainer.limit_val_batches=0", "trainer.enable_progress_bar=false"]
    assert main(["train", *TINY, *shown, "--folder", str(tmp_path / "run")]) == 0
    assert "finished: train/loss " in capsys.readouterr().out


def test_the_fields_of_registered_strategies_and_callbacks_are_checked(tmp_path, capsys):
    from lightning.pytorch.strategies import SingleDeviceStrategy

    class Single(SingleDeviceStrategy):
        def __init__(self, *, index: int = 0) -> None:
            super().__init__("cpu")

    strategies.register("single")(Single)
    for field, message in (("index: word", "index: expected"), ("width: 1", "width: no field of strategy single")):
        assert main(["explain", *TINY, f"trainer.strategy={{name: single, {field}}}"]) == 2
        assert capsys.readouterr().err.startswith(f"error: trainer.strategy.{message}")
    assert main(["explain", *TINY, "trainer.callbacks=[{name: 3}]"]) == 2
    assert capsys.readouterr().err.startswith("error: trainer.callbacks.0: expected a choice of callback")
    done = ["trainer.max_steps=1", "trainer.strategy={name: single, index: 1}", "--folder", str(tmp_path / "run")]
    assert main(["train", *TINY, *done]) == 0


def test_a_folder_is_refused_before_a_text_is_read_and_with_what_a_short_one_shows(tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("A few words.\n" * 9)
    said = [f"data={{name: text, path: {text}, vocab: 300}}", "--folder", str(text / "run")]
    assert main(["train", "model.n_layers=1", *said]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert [line.split(" ")[1] for line in lines] == ["data:", f"folder={text}/run"]
    text.write_text("A few words.\n" * 100_000)  # whose tokenizer would take a while
    assert main(["train", "model.n_layers=1", *said]) == 2
    assert capsys.readouterr().err == f"error: folder={text}/run cannot be made: Not a directory\n"
