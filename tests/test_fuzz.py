"""Whatever somebody writes ends in a model or in what is wrong: no traceback, no hang, no half-written folder."""

import os
import re
import shutil
from datetime import timedelta

import pytest
from fuzzing import NO_NODES, NODES, overrides
from hypothesis import HealthCheck, given, seed, settings

from variants.cli import main
from variants.training import run
from variants.training.run import Result

EXAMPLES = int(os.environ.get("VARIANTS_FUZZ", "2000"))
PARTS = 4
TRAINED = (0, 1)  # in which what is small is trained too, not explained alone
SMALL = ["data=recall", "model.n_layers=1", "model.d_model=32"]  # what is small takes less time


@pytest.fixture
def empty(tmp_path, monkeypatch):
    """A folder to work in, that nothing may write to; training ends where its first step would begin."""

    def ready(config, folder, data, task, trainer, resume, notify):
        assert sum(parameter.numel() for parameter in task.model.parameters())
        return Result(folder.path, {}, "finished")

    monkeypatch.setattr(run, "_run", ready)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(folder):
    return [path for path in folder.iterdir() if path.name != ".hypothesis"]


def is_small(explained):
    """Whether building it takes no time, nor its data; texts take a tokenizer's training."""
    total = int(re.search(r"parameters: ([\d,]+) total", explained)[1].replace(",", ""))
    longest = int(re.search(r"sequences of (\d+) tokens", explained)[1])
    return total < 300_000 and longest < 10_000 and "name: text" not in explained


def trains_as_explained(said, refusal, empty, capsys):
    """What is refused is refused in the same words and leaves no folder; else a model is built, and a whole folder.

    Training may add what explaining does not look at: small texts, the folder, and what Lightning refuses.
    """
    status = main(["train", "--folder", "run", *SMALL, *said])
    _, err = capsys.readouterr()
    if status == 2:
        assert err.startswith(refusal), (refusal, err)
        assert all(line.startswith("error: ") for line in err.splitlines()), err
        assert not written(empty)
    else:
        assert (status, refusal, err) == (0, "", "")
        assert {path.name for path in (empty / "run").iterdir()} >= {"config.yaml", "status.json"}
        shutil.rmtree(empty / "run")


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("part", range(PARTS))
def test_any_override_list_ends_in_a_model_or_in_clear_lines(part, empty, capsys):
    @seed(part)
    @settings(
        max_examples=EXAMPLES // PARTS,
        database=None,
        deadline=timedelta(seconds=60),  # a hang, not a crowded machine
        suppress_health_check=list(HealthCheck),
    )
    @given(overrides)
    def explain(said):
        try:
            status = main(["explain", *SMALL, *said])
        except SystemExit as stopped:  # argparse: an option that there is not
            status = f"exit {stopped.code}"
        out, err = capsys.readouterr()
        assert status in (0, 2, "exit 2")
        assert (status == 0) == ("parameters: " in out) == (err == "")
        assert status != 2 or all(line.startswith("error: ") for line in err.splitlines()), err
        assert not written(empty)
        if status == 2 or (status == 0 and part in TRAINED and is_small(out)):
            trains_as_explained(said, err, empty, capsys)

    explain()


FOUND = {  # what ended in a traceback, a hang or silence before
    "data.batch_size.\r=???": "data.batch_size.\\r: Missing mandatory value",
    "folder=3": "folder: expected text or null, got 3",
    "model.decoder={n_layers: -3}": "model.decoder.n_layers: -3 must be at least 1",
    "model.encoder={dropout: 7}": "model.encoder.dropout: 7.0 is not a rate",
    "model.feedforward.ratio=1e18": "model.feedforward: some size is too large",
    "model.layers={0: {n_heads: 0}}": "model.layers.0.n_heads: 0 must be at least 1",
    "model.mixer.d_head=-1": "model.mixer: d_head must be at least 1, not -1",
    "model.decoder.position=1e308": "model.decoder.position: expected a choice of position (",
    "model.layout=.nan": "model.layout: expected a choice of layout (",
    "model.mixer.scale=.nan": "model.mixer.scale: expected a number below 2^63, got nan",
    "model.n_layers=1000000": "model.n_layers: 1000000 must be at most 1000",
    "model.norm_eps=-1": "model.norm_eps: -1.0 must not be negative",
    "model.position.base=0": "model.position: base must be positive, not 0.0",
    "model.encoder=&a [*a]": "model.encoder: '&a [*a]' is no YAML value (nested in itself",
    f"model.encoder={'{a: ' * 40}1{'}' * 40}": "model.encoder: ",
    f"model{'.a' * 400}=1": "'model.a.a",
    "data.length=1000000000000": "data: a micro-batch of 16 sequences of 1000000000000 tokens is too large",
    f"model.norm={'[' * 2000}": "model.norm: ",
    "tracker=[1]": "tracker: expected a preset or a mapping, got [1]",
    "trainer=3": "trainer: expected a preset or a mapping, got 3",
    "trainer.accelerator=gpux": "trainer.accelerator: no accelerator 'gpux' (did you mean 'gpu'?)",
    "trainer.strategy={name: [a]}": "trainer.strategy: no strategy ['a']; there are: auto, ddp",
    "trainer.precision=foo": "trainer.precision='foo' is none of 32-true",
}


@pytest.mark.parametrize("said", FOUND)
def test_what_fuzzing_found_is_said_in_a_line(said, capsys):
    more = ["model.mixer.window=5"] if said.startswith("data.length") else []
    assert main(["explain", said, *more]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"error: {FOUND[said]}")


@pytest.mark.parametrize("said", ["model.layers={0: null}", "model.d_model=8", "trainer=null"])
def test_what_fuzzing_found_to_be_right_is_built(said, capsys):
    assert main(["explain", said]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("place", NODES)
def test_what_is_no_choice_is_refused_in_one_line_wherever_a_choice_belongs(place, capsys):
    for value in NO_NODES:
        assert main(["explain", *SMALL, f"{place}={value}"]) == 2, value
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 1, (value, lines)
        assert lines[0].startswith(f"error: {place}"), value
