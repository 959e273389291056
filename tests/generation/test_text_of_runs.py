"""A run's folder gives text, or says in a line why it cannot."""

import pytest
import torch

from variants import config as configs
from variants import slots
from variants.data.kept import keep
from variants.errors import ConfigError
from variants.generation import Sampling, beam_search, decode
from variants.generation.text import generate_text, load_run
from variants.models import build
from variants.relations import OF_DATA

TINY = ["model.d_model=16", "model.n_layers=1", "model.n_heads=2", "model.initialiser={name: normal, std: 0.4}"]


def run(folder, *overrides, name="last"):
    """A run's folder, as training leaves it."""
    config = configs.compose([*overrides, *TINY])
    data = slots.data.build(config["data"])
    data.prepare()
    known = {name: getattr(data, field) for name, field in OF_DATA.items()}
    model = build(config["model"], seed=3, **known)
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(configs.to_text(config))
    keep(data, folder)
    save(folder, model.state_dict(), known, name)
    return model, data


def save(folder, state, known, name="last"):
    torch.save({"state_dict": state, "facts": {"known": known}}, folder / "checkpoints" / f"{name}.ckpt")


@pytest.fixture
def pairs(tmp_path):
    return tmp_path, *run(tmp_path, "model=transformer_tiny", "data=copy")


@pytest.fixture
def language(tmp_path, monkeypatch):
    monkeypatch.setenv("VARIANTS_CACHE", str(tmp_path / "cache"))
    story = tmp_path / "story.txt"
    story.write_text("".join(f"{i}: the cat sat on mat {i * i}, and Zoë saw it.\n" for i in range(300)), "utf-8")
    options = [f"data.path={story}", "data.vocab=290", "data.length=32"]
    return tmp_path, *run(tmp_path, "model=gpt2_tiny", "data=text", *options)


def test_sources_are_translated_in_their_order(pairs):
    folder, model, data = pairs
    found = list(generate_text(folder, ["0 3 5", "", "7"], max_new=8))
    assert found == [data.tokenizer.decode(ids) for ids in decode(model, [[4, 7, 9, 3], [3], [11, 3]], max_new=8)]
    assert len(set(found)) > 1


def test_a_text_is_continued(language):
    folder, model, data = language
    prompts = ["the cat\n", "", "Zoë  "]
    ids = [[2, *data.tokenizer.encode(prompt)] for prompt in prompts]
    sampling = Sampling(0.8, top_k=50, top_p=0.9)
    found = list(generate_text(folder, prompts, max_new=8, temperature=0.8, top_k=50, top_p=0.9, seed=4))
    new = decode(model, ids, max_new=8, sampling=sampling, seed=4)
    assert all(text.startswith(prompt) for text, prompt in zip(found, prompts, strict=True))
    assert found == [data.tokenizer.decode([*begun, *more]) for begun, more in zip(ids, new, strict=True)]
    assert found != list(generate_text(folder, prompts, max_new=8))


def test_a_beam_is_searched(pairs):
    folder, model, data = pairs
    ((best,),) = beam_search(model, [[4, 7, 3]], max_new=6, beam=3)
    assert list(generate_text(folder, ["0 3"], max_new=6, beam=3)) == [data.tokenizer.decode(best.ids)]


def test_the_best_checkpoint_comes_before_the_last(pairs):
    folder, model, _ = pairs
    last = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)
    save(folder, {k: v + 1 for k, v in last["state_dict"].items()}, last["facts"]["known"], "best")
    loaded = load_run(folder).model
    assert not loaded.training
    for ours, theirs in zip(loaded.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs + 1)


def failure(folder, prompts=("0 1",), **fields):
    with pytest.raises(ConfigError) as caught:
        list(generate_text(folder, prompts, **{"max_new": 4, **fields}))
    (problem,) = caught.value.problems
    assert "\n" not in problem
    return problem


def test_a_folder_that_holds_no_run(tmp_path):
    for folder in (tmp_path, tmp_path / "missing"):
        assert failure(folder) == f"{folder} holds no run: there is no config.yaml in it"


def test_a_run_without_a_checkpoint(pairs):
    folder, *_ = pairs
    (folder / "checkpoints" / "last.ckpt").unlink()
    assert failure(folder) == f"{folder} has no checkpoint yet: neither best.ckpt nor last.ckpt"


@pytest.mark.parametrize("text", [b"", b"seed: [", b"\xff\xfe\x00", b"model: 3\n", b"- 1\n"], ids=repr)
def test_a_damaged_config(pairs, text):
    folder, *_ = pairs
    (folder / "config.yaml").write_bytes(text)
    assert str(folder / "config.yaml") in failure(folder)


def test_a_config_with_one_wrong_value(pairs):
    folder, *_ = pairs
    config = folder / "config.yaml"
    config.write_text(config.read_text().replace("name: copy", "name: cpy"))
    assert "did you mean 'copy'" in failure(folder)


@pytest.mark.parametrize("keep", [0, 100, 5000], ids=str)
def test_a_damaged_checkpoint(pairs, keep):
    folder, *_ = pairs
    path = folder / "checkpoints" / "last.ckpt"
    path.write_bytes(path.read_bytes()[:keep])
    assert "last.ckpt is damaged, or no checkpoint of a run" in failure(folder)


def test_something_else_in_the_place_of_a_checkpoint(pairs):
    folder, *_ = pairs
    for content in ([1, 2], {"weights": 1}):
        torch.save(content, folder / "checkpoints" / "last.ckpt")
        assert "last.ckpt is damaged, or no checkpoint of a run" in failure(folder)


def test_a_checkpoint_of_another_model(pairs):
    folder, *_ = pairs
    config = folder / "config.yaml"
    config.write_text(config.read_text().replace("d_model: 16", "d_model: 32"))
    problem = failure(folder)
    assert "the checkpoint does not fit the model of config.yaml" in problem
    assert problem.endswith("such as embedding.table.weight")


def test_requests_that_cannot_be_met(pairs):
    folder, *_ = pairs
    assert failure(folder, ["0 x"]).startswith("'x': not a symbol")
    assert failure(folder, top_p=2.0) == "top_p must lie between 0 and 1, not at 2.0"
    assert failure(folder, max_new=0) == "max_new must be at least 1, not 0"
    assert "temperature 1.0 samples" in failure(folder, beam=4, temperature=1.0)


def test_a_prompt_beyond_the_learned_positions(language):
    folder, *_ = language
    assert "but the model has 32 positions" in failure(folder, ["the cat"], max_new=40)


def test_a_text_is_continued_though_what_it_learnt_from_is_gone_or_other_or_elsewhere(language, monkeypatch):
    folder, *_ = language
    before = list(generate_text(folder, ["the cat"], max_new=8))
    story = folder / "story.txt"
    story.write_text("Something else.\n" * 300)
    assert list(generate_text(folder, ["the cat"], max_new=8)) == before
    story.unlink()
    monkeypatch.chdir(folder.parent)
    assert list(generate_text(folder.relative_to(folder.parent), ["the cat"], max_new=8)) == before


def test_a_tokenizer_that_was_not_kept_is_made_again_of_the_data_and_said_to_be_missing_with_it(language):
    folder, *_ = language
    before = list(generate_text(folder, ["the cat"], max_new=8))
    (folder / "tokenizer.model").unlink()
    assert list(generate_text(folder, ["the cat"], max_new=8)) == before
    (folder / "story.txt").unlink()
    assert failure(folder, ["the cat"]).startswith("data.path=")
