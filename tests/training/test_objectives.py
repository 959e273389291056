import pytest
import torch
from training_runs import tiny

from variants.blocks.heads.base import Loss
from variants.config import compose
from variants.models import build
from variants.relations import related
from variants.slots import objectives
from variants.training.objectives.base import with_losses


def test_seq2seq_sums_the_loss_of_every_target_given_its_own_source(tmp_path):
    config = tiny(tmp_path, "model.dropout=0.0")
    data, known, _ = related(config)
    model = build(config["model"], **known).double().eval()
    batch = data.train.batch([0, 1, 2])
    loss = objectives.build("seq2seq")(model, batch)
    expected = 0.0
    for row in range(3):  # each pair alone, without its pads
        one = {name: value[row : row + 1] for name, value in batch.items()}
        source, target = one["source"][one["source_keep"]][None], one["target"][one["target_keep"]][None]
        logits = model(source, target).logits[0]
        targets = one["targets"][one["targets"] >= 0]
        expected -= logits.log_softmax(-1)[range(len(targets)), targets].sum().item()
    assert loss.loss.item() == pytest.approx(expected, rel=1e-9)
    assert loss.count == (batch["targets"] >= 0).sum()


def test_causal_lm_keeps_packed_documents_apart():
    model_config = compose(["model=llama_tiny", "model.d_model=16", "model.n_layers=1", "model.n_heads=2"])["model"]
    model = build(model_config, vocab=20).double().eval()
    ids = torch.randint(4, 20, (1, 9))
    targets = torch.randint(4, 20, (1, 9))
    documents = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1, 1]])
    objective = objectives.build({"name": "causal_lm", "label_smoothing": 0.1})
    packed = objective(model, {"ids": ids, "targets": targets, "documents": documents})
    parts = [objective(model, {"ids": ids[:, s], "targets": targets[:, s]}) for s in (slice(0, 4), slice(4, 9))]
    together = objective(model, {"ids": ids, "targets": targets})
    assert packed.loss.item() == pytest.approx(sum(p.loss.item() for p in parts), rel=1e-9)
    assert packed.nll.item() == pytest.approx(sum(p.nll.item() for p in parts), rel=1e-9)
    assert packed.loss.item() != pytest.approx(together.loss.item(), rel=1e-6)
    assert packed.loss.item() != pytest.approx(packed.nll.item(), rel=1e-6)


def test_what_the_parts_add_counts_once_a_target_in_what_is_minimised_and_not_in_what_is_reported():
    loss = Loss(torch.tensor(6.0), torch.tensor(5.0), torch.tensor(3))
    added = with_losses(loss, {"balance": torch.tensor(0.5), "z": torch.tensor(0.25)})
    assert [t.item() for t in added[:3]] == [6.0 + 3 * 0.75, 5.0, 3]
    assert with_losses(loss, {}) == loss


def test_label_smoothing_is_a_share():
    with pytest.raises(ValueError, match=r"label_smoothing=1\.0 must be at least 0 and below 1"):
        objectives.build({"name": "seq2seq", "label_smoothing": 1.0})
