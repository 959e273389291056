"""Models learn: sequences to over 99%, and text to below what the frequencies of its pieces give."""

import pytest
import torch

from variants import config as configs
from variants import slots
from variants.data.base import EOS
from variants.data.baseline import unigram
from variants.generation.decode import decode
from variants.generation.text import load_run
from variants.training.run import train

SEQUENCES = [
    "model=transformer_tiny",
    "model.embedding.scale=false",
    "data.symbols=8",
    "data.min_length=1",
    "data.max_length=6",
    "data.batch_size=64",
    "optimiser.lr=3e-3",
    "schedule.warmup=50",
    "trainer.max_steps=400",
    "trainer.val_check_interval=400",
    "trainer.limit_val_batches=2",
    "trainer.enable_progress_bar=false",
    "tracker=csv",
]


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("task", ["copy", "reverse", "sort"])
def test_an_encoder_decoder_learns_sequences_to_over_99_percent(task, tmp_path):
    config = configs.compose([f"data={task}", *SEQUENCES])
    train({**config, "folder": str(tmp_path / "run")})
    model, data = load_run(tmp_path / "run").model, slots.data.build(config["data"])
    data.prepare()
    batch = data.validation.batch(range(500))
    sources = [row[keep].tolist() for row, keep in zip(batch["source"], batch["source_keep"], strict=True)]
    wanted = [row[row >= 0].tolist() for row in batch["targets"]]
    decoded = decode(model, sources, max_new=8)
    right = sum(row == target for row, target in zip(decoded, wanted, strict=True))
    assert all(target[-1] == EOS for target in wanted)
    assert right / len(wanted) > 0.99


@pytest.mark.slow
def test_a_short_training_gets_below_the_unigram_baseline(tmp_path):
    overrides = [
        "model=llama_tiny",
        "model.d_model=32",
        "model.n_layers=2",
        "data.vocab=512",
        "data.length=64",
        "data.batch_size=16",
        "optimiser.lr=1e-2",
        "trainer.max_steps=150",
        "trainer.val_check_interval=150",
        "trainer.limit_val_batches=10",
        "trainer.enable_progress_bar=false",
        "tracker=csv",
    ]
    config = configs.compose(overrides)
    result = train({**config, "folder": str(tmp_path / "run")})
    data = slots.data.build(config["data"])
    data.prepare()
    assert result.metrics["val/loss"] < unigram(data) - 0.3
    assert torch.tensor(result.metrics["val/perplexity"]).log().item() == pytest.approx(result.metrics["val/loss"])
