"""Every file in conf/ composes and builds, and the presets have the published numbers of parameters."""

import pytest
import torch
import yaml

from variants import config as configs
from variants.models import assemble
from variants.models.cost import parameters
from variants.testing.probes import LayoutProbe

VOCAB = 1000
FILES = sorted(configs.PACKAGED.rglob("*.yaml"))
MODELS = sorted(path.stem for path in (configs.PACKAGED / "model").glob("*.yaml"))
PUBLISHED = {
    "transformer_base": 63_082_496,
    "transformer_big": 214_245_376,
    "gpt2": 124_439_808,
    "llama_7b": 6_738_415_616,
}


def overrides_of(file):
    """How the command line names a file."""
    group = file.parent.relative_to(configs.PACKAGED).as_posix()
    overrides = [] if group == "." else [f"{group}={file.stem}"]
    with_path = "data" in overrides[0:1] or (group == "data" and "path" in yaml.safe_load(file.read_text("utf-8")))
    return [*overrides, "data.path=nowhere.txt"] if with_path or file.stem == "text" else overrides


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(configs.PACKAGED).as_posix())
def test_file_composes_and_comes_back_from_text(file, tmp_path):
    config = configs.compose(overrides_of(file))
    saved = tmp_path / "config.yaml"
    saved.write_text(configs.to_text(config), "utf-8")
    assert configs.load(saved) == config


@pytest.mark.parametrize("name", MODELS)
def test_preset_builds_without_memory(name):
    model = assemble(configs.compose([f"model={name}"])["model"], vocab=VOCAB, max_length=64)
    assert all(parameter.is_meta for parameter in model.parameters())
    assert not list(model.buffers())
    assert model.unread == (), "a preset says nothing that its model does not ask for"


@pytest.mark.parametrize("name", [name for name in MODELS if name.endswith("_tiny")])
def test_tiny_preset_runs(name):
    from variants.models import build

    tried = LayoutProbe(build(configs.compose([f"model={name}"])["model"], vocab=VOCAB, max_length=64)).eval()
    with torch.no_grad():
        logits = tried(*tried.inputs())
    assert logits.shape[:2] == (2, 6)
    assert logits.isfinite().all()


@pytest.mark.parametrize(("name", "published"), PUBLISHED.items())
def test_preset_has_the_published_number_of_parameters(name, published):
    assert parameters(assemble(configs.compose([f"model={name}"])["model"], vocab=None)).total == published


def test_teaching_model_has_the_parameters_that_its_page_describes():
    """Six layers of 512 on either side, norms with two vectors, vocabularies and a generator of their own."""
    model = configs.compose(["model=transformer_annotated"])["model"]
    d, hidden, n, source, target = 512, 2048, 6, model["source_vocab"], model["vocab"]
    attention = 4 * (d * d + d)
    feedforward = (d * hidden + hidden) + (hidden * d + d)
    norm = 2 * d
    encoder = n * (attention + feedforward + 2 * norm) + norm
    decoder = n * (2 * attention + feedforward + 3 * norm) + norm
    generator = d * target + target
    expected = encoder + decoder + source * d + target * d + generator
    assert parameters(assemble(model)).total == expected
