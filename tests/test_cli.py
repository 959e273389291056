"""The command line, as a user types it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from exporting import unchecked

from variants.cli import main
from variants.slots import norms
from variants.training import run
from variants.training.run import Result


def said(capsys, *arguments):
    """What a command prints, and its exit status."""
    status = main(list(arguments))
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_list_shows_every_slot_with_its_promise_and_the_sources(capsys):
    status, out, _ = said(capsys, "list")
    assert status == 0
    assert "norm: each position alone; shape and dtype kept" in out
    assert "arXiv:1910.07467" in out


def test_list_of_a_slot_shows_what_a_config_may_set(capsys):
    _, out, _ = said(capsys, "list", "mixer")
    assert "n_kv_heads: an integer or null; default None" in out
    assert "kernel" not in out.split()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["list", "nrom"], "no slot 'nrom' (did you mean 'norm'?)"),
        (["explain", "model=lama_tiny"], "no model preset 'lama_tiny' (did you mean 'llama_tiny'?)"),
        (["explain", "model.n_heads=3"], "model.mixer: n_heads 3 must divide d_model 128"),
        (["train", "model.n_heads=3"], "model.mixer: n_heads 3 must divide d_model 128"),
        (["train", "model=transformer_tiny"], "objective: seq2seq takes pairs data, but data text is language"),
        (
            ["train", "model=llama_tiny", "data=copy"],
            "objective: causal_lm takes language data, but data copy is pairs",
        ),
        (
            ["train", "model.layout=encoder_only"],
            "objective: no registered one trains layout encoder_only: causal_lm tr",
        ),
        (["train", "data=text"], "data: text needs path"),
        (["train", "data=text", "data.path=nowhere.txt"], "nowhere.txt"),
        (["train", "model.vocab=100"], "model.vocab: 100 is smaller than the data's vocabulary of 2048"),
        (["train", "model.position=learned", "model.max_length=64"], "model.position: has 64 positions"),
        (["train", "trainer.accelerator=gpu"], "trainer.accelerator: gpu is asked for, but torch finds no GPU"),
        (["train", "trainer.precision=16-mixed"], "16-mixed"),
        (["train", "--import", "nowhere"], "--import nowhere: ModuleNotFoundError"),
        (["train", "--import", "nowhere.py"], "there is no file nowhere.py"),
        (["train", "--folder", "/proc/nothing"], "/proc/nothing"),
        (["generate", "nowhere"], "nowhere"),
        (["generate", "nowhere", "--top-k", "3", "--temperature", "0"], "0 is greedy"),
        (["export", "nowhere", "out"], "nowhere"),
        (["check", "norm.nothing"], "no norm 'nothing'"),
        (["check", "nothing"], "no choice 'nothing'"),
        (["check", "launcher"], "launcher: a slot whose choices promise nothing"),
        (["check", "norm", "eps=1"], "eps: a field is of one choice, and norm is a slot"),
        (["check", "swiglu", "d_ffs=8"], "d_ffs: no field of feedforward swiglu 'd_ffs' (did you mean 'd_ff'?)"),
        (["check", "swiglu", "name=relu"], "name: the target swiglu has named the choice"),
        (["check", "swiglu", "d_ff=wide"], "d_ff: expected"),
        (["check", "swiglu", "d_ff"], "'d_ff': an override is written name=value"),
        (["check", "variants.blocks.norms", "norm_eps=1"], "norm_eps: a field is of one choice, and variants.blocks"),
        (["explain", "--config-dir", "nowhere"], "--config-dir: nowhere is not a folder"),
    ],
)
def test_a_wrong_request_gets_one_line_and_status_2(capsys, monkeypatch, tmp_path, arguments, line):
    monkeypatch.chdir(tmp_path)
    status, _, err = said(capsys, *arguments)
    assert status == 2
    assert err.count("\n") == 1, err
    assert err.startswith("error: ")
    assert line in err
    assert not (tmp_path / "runs").exists(), "a refused request leaves nothing behind"


@pytest.mark.parametrize(
    ("content", "override", "line"),
    [
        (b"", "data.vocab=300", "empty"),
        (b"caf\xe9\n" * 9, "data.vocab=300", "UTF-8"),
        (b"a line of text\n" * 9, "data.vocab=2048", "vocab=2048: too large"),
        (b"a line of text, and a longer one\n" * 40, "data.length=9999", "9999"),
    ],
)
def test_a_corpus_that_cannot_be_used_gets_one_line_before_anything_is_made(
    capsys, monkeypatch, tmp_path, content, override, line
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VARIANTS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "text.txt").write_bytes(content)
    tiny = ["model.d_model=16", "model.n_layers=1", "model.n_heads=2", "data.length=32", "data.vocab=280"]
    status, _, err = said(capsys, "train", "data=text", "data.path=text.txt", *tiny, override)
    assert status == 2
    assert err.count("\n") == 1, err
    assert err.startswith("error: data")
    assert line in err
    assert not (tmp_path / "runs").exists()


def test_explain_tells_size_cost_memory_and_kernel(capsys):
    status, out, _ = said(capsys, "explain", "model=llama_tiny", "model.residual=post", "model.attention_dropout=0.1")
    assert status == 0
    assert "model.residual: pre -> post" in out
    assert "parameters: 1,053,696 total, 791,552 non-embedding" in out
    assert "FLOPs per token, forward and backward: 7,888,896" in out
    assert "kernel: auto asked for; sdpa in 4 modules would run here" in out
    assert "not flash, because" in out
    assert "MiB" in out


def test_a_model_that_no_objective_trains_is_explained_all_the_same(capsys):
    status, out, _ = said(capsys, "explain", "model.layout=encoder_only")
    assert status == 0
    assert "parameters: 1,053,824 total" in out
    assert "FLOPs per token" in out
    (note,) = [line for line in out.splitlines() if line.startswith("note: ")]
    fitting = "causal_lm trains decoder_only, seq2seq trains encoder_decoder"
    assert note == f"note: objective: no registered one trains layout encoder_only: {fitting}"


def test_what_only_training_needs_is_said_beside_the_rest(capsys):
    status, _, err = said(capsys, "train", "model.layout=encoder_only", "model.norm=rmsnrom")
    assert status == 2
    assert [line.split(": ")[1] for line in err.splitlines()] == ["model.norm", "objective"]


def test_explain_says_what_has_no_effect(capsys):
    _, out, _ = said(capsys, "explain", "model.mixer=lstm", "schedule=noam", "optimiser.lr=1e-3")
    notes = [line for line in out.splitlines() if line.startswith("note: ")]
    assert [note.split(" has no effect")[0] for note in notes] == [
        "note: position rotary",
        "note: kernel",
        "note: optimiser.lr",
        "note: schedule.warmup=4000 is above trainer.max_steps=1000: the peak is never reached",
    ]
    noted = said(capsys, "explain", "schedule=noam", "schedule.warmup=1000")[1].count("note: ")
    assert noted == 0, "the last update reaches the peak"


@pytest.mark.parametrize(
    ("asked", "fields"),
    [
        (
            ["model.encoder.n_layers=3", "model.source_vocab=700", "model.cross=none"],
            {"encoder", "source_vocab", "cross"},
        ),
        (["model.mixer=lstm", "model.attention_dropout=0.1"], {"attention_dropout"}),
        (["model.mixer.attention_dropout=0.2", "model.attention_dropout=0.1"], {"attention_dropout"}),
        (["model.position=rotary", "model.max_length=9999"], {"max_length"}),
        (["model=transformer_tiny", "data=copy", "model.mixer=lstm", "model.attention_dropout=0.1"], set()),
        (["model=transformer_tiny", "data=copy", "model.encoder.n_layers=1", "model.source_vocab=99"], set()),
    ],
)
def test_a_field_of_the_model_that_no_part_asks_for_is_noted(capsys, asked, fields):
    _, out, _ = said(capsys, "explain", *asked)
    notes = {line for line in out.splitlines() if line.startswith("note: model.")}
    assert notes == {f"note: model.{name} has no effect: no part of this model asks for it" for name in fields}


def test_check_reports_a_line_a_promise_and_fails_where_one_is_broken(capsys, tmp_path):
    with unchecked():
        assert said(capsys, "check", "norm.rmsnorm")[0] == 0
    file = tmp_path / "mixing_norm.py"
    file.write_text(
        "from torch import nn\nfrom variants.slots import norms\n"
        "@norms.register('mixing')\nclass Mixing(nn.Module):\n"
        "    def __init__(self, width: int) -> None:\n        super().__init__()\n"
        "    def forward(self, x):\n        return x - x.mean(-2, keepdim=True)\n"
    )
    status, out, _ = said(capsys, "check", str(file))
    del norms._choices["mixing"]
    assert status == 1
    assert "norm mixing  each position alone: BROKEN" in out


def test_checking_a_slot_checks_each_of_its_choices(capsys):
    with unchecked():
        status, out, _ = said(capsys, "check", "sharing")
    assert status == 0
    assert {tuple(line.split()[:2]) for line in out.splitlines()} == {("sharing", "all"), ("sharing", "none")}


@pytest.mark.parametrize("command", ["list", "list --markdown", "list norm"])
def test_a_reader_who_has_seen_enough_is_no_failure(command):
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "variants", *command.split()]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("status", "rank", "exits"),
    [("finished", "0", 0), ("diverged", "0", 1), ("stopped", "0", 130), ("stopped", "1", 0)],
)
def test_training_exits_as_the_run_ended(monkeypatch, status, rank, exits):
    monkeypatch.setattr(run, "train", lambda config, resume: Result(Path(), {}, status))
    monkeypatch.setenv("LOCAL_RANK", rank)
    assert main(["train"]) == exits


def test_ctrl_c_before_the_first_step_is_quiet(monkeypatch, capsys):
    def interrupted(config, resume):
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "train", interrupted)
    assert said(capsys, "train") == (130, "", "")


def test_check_takes_fields_and_says_how_to_give_one_that_is_needed(capsys, tmp_path):
    file = tmp_path / "own.py"
    file.write_text(
        "from variants.blocks.norms import RMSNorm\nfrom variants.slots import norms\n"
        "@norms.register('own')\nclass Own(RMSNorm):\n"
        "    def __init__(self, width: int, *, eps: float) -> None:\n        super().__init__(width, eps)\n"
    )
    status, out, _ = said(capsys, "check", str(file))
    assert status == 1
    line = "norm own  can be built: BROKEN: needs eps, which is not given: variants check norm.own eps=... --import"
    assert out == f"{line} {file}\n"
    with unchecked():
        status, out, _ = said(capsys, "check", "norm.own", "eps=1e-6", "--import", str(file))
    del norms._choices["own"]
    assert status == 0, out
    assert "norm own  each position alone: holds" in out


@pytest.mark.slow
def test_listing_is_quick_and_imports_nothing_heavier_than_torch():
    code = "import sys; from variants.cli import main; main(['list']); print(sorted(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stderr.splitlines()[-1].replace("'", '"')))
    assert not loaded & {"lightning", "wandb", "omegaconf", "sentencepiece", "torchmetrics", "matplotlib", "pandas"}


def test_overrides_and_prompts_go_on_behind_an_option(capsys, tmp_path):
    status, out, _ = said(capsys, "explain", "model=llama_tiny", "--config-dir", str(tmp_path), "model.n_layers=1")
    assert status == 0
    assert "n_layers: 1" in out
    assert "model.n_layers: 4 -> 1" in out
    status, _, err = said(capsys, "generate", "nowhere", "--seed", "1", "Once", "--max-new", "3", "upon")
    assert (status, err.count("\n")) == (2, 1)
    assert "nowhere holds no run" in err


def test_an_unknown_option_is_refused_by_name(capsys):
    with pytest.raises(SystemExit):
        main(["train", "model=llama_tiny", "--resumee", "trainer.max_steps=1"])
    assert "--resumee" in capsys.readouterr().err
