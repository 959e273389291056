"""What the stack alone decides: which masks reach the memory, what is recomputed, how losses add up."""

import pytest
import torch

from variants.blocks.cache import Cache
from variants.blocks.masks import AttentionMask
from variants.models import build
from variants.models.stack import Stack, add_up

TINY = {"d_model": 16, "n_layers": 2, "n_heads": 2, "vocab": 20}
PAIRS = {**TINY, "layout": "encoder_decoder"}
SOURCE, TARGET = torch.arange(14).view(2, 7), torch.arange(10).view(2, 5)
SOURCE_DOCUMENTS = torch.tensor([[0, 0, 0, 1, 1, 1, 1]] * 2)
TARGET_DOCUMENTS = torch.tensor([[0, 0, 1, 1, 1]] * 2)


@pytest.fixture
def model():
    return build(PAIRS).eval()


def test_a_packed_target_reads_its_own_source_alone(model):
    packed = model(
        SOURCE, TARGET, AttentionMask(documents=SOURCE_DOCUMENTS), AttentionMask(documents=TARGET_DOCUMENTS)
    ).logits
    first, second = model(SOURCE[:, :3], TARGET[:, :2]).logits, model(SOURCE[:, 3:], TARGET[:, 2:]).logits
    torch.testing.assert_close(packed, torch.cat((first, second), 1))


def test_a_packed_target_is_decoded_token_by_token_beside_its_own_source(model):
    source_mask = AttentionMask(documents=SOURCE_DOCUMENTS)
    whole = model(SOURCE, TARGET, source_mask, AttentionMask(documents=TARGET_DOCUMENTS)).logits
    cache, steps = Cache(5), []
    with torch.no_grad():
        memory, _ = model.encode(SOURCE, source_mask)
        for t in range(5):
            mask = AttentionMask(documents=TARGET_DOCUMENTS[:, t : t + 1])
            steps.append(model.decode(TARGET[:, t : t + 1], memory, source_mask, mask, cache).logits)
    torch.testing.assert_close(torch.cat(steps, 1), whole)


def test_documents_of_one_side_alone_bound_that_side_alone(model):
    plain = model(SOURCE, TARGET, None, AttentionMask(documents=torch.zeros(2, 5, dtype=torch.long))).logits
    torch.testing.assert_close(plain, model(SOURCE, TARGET).logits)
    one = AttentionMask(documents=torch.zeros(2, 7, dtype=torch.long))
    torch.testing.assert_close(model(SOURCE, TARGET, one).logits, plain)
    assert not torch.allclose(
        model(SOURCE, TARGET, None, AttentionMask(documents=TARGET_DOCUMENTS)).logits[:, 2:], plain[:, 2:]
    )


def test_a_mask_over_the_memory_is_as_long_as_the_memory(model):
    keep = torch.ones(2, 7, dtype=torch.bool)
    keep[0, 5:] = False
    logits = model(SOURCE, TARGET, AttentionMask(keep=keep)).logits
    torch.testing.assert_close(logits[:1], model(SOURCE[:1, :5], TARGET[:1]).logits)
    with pytest.raises(ValueError, match="keep has shape"):
        model.decode(TARGET, torch.zeros(2, 6, 16), AttentionMask(keep=keep))


def test_layers_are_recomputed_in_training_alone_and_every_nth(model):
    stack = build(TINY, checkpoint_every=2).train().stack
    assert [stack._recomputes(depth, None) for depth in range(4)] == [True, False, True, False]
    assert not stack._recomputes(0, Cache(3))
    with torch.no_grad():
        assert not stack._recomputes(0, None)
    assert not stack.eval()._recomputes(0, None)
    assert not build(TINY).train().stack._recomputes(0, None)


def test_a_stack_that_is_told_nothing_more_drops_and_recomputes_nothing_and_has_one_position():
    told = build({**TINY, "position": "sinusoidal", "dropout": 0.0}).train().stack
    bare = Stack(list(told.layers), lambda: told.norm, positions=list(told.positions)).train()
    x = torch.randn(1, 4, 16)
    assert torch.equal(bare(x)[0], told(x)[0])
    assert not torch.equal(bare(x)[0], Stack(list(told.layers), lambda: told.norm)(x)[0])
    assert not any(bare._recomputes(depth, None) for depth in range(2))


def test_a_cross_mixer_that_is_none_is_no_branch():
    decoder = build({**PAIRS, "decoder": {"cross": "none"}, "residual": "post"}).decoder
    assert [layer.cross for layer in decoder.layers] == [None, None]
    assert len(decoder.layers[0].parts) == 2


def test_losses_of_a_name_add_up():
    one, two = torch.tensor(1.0), torch.tensor(2.0)
    assert add_up({"a": one}, {"a": two, "b": two}) == {"a": torch.tensor(3.0), "b": two}


def test_positions_act_on_the_input_once_whatever_the_depth():
    plain, placed = (build({**TINY, "position": name}).eval() for name in ("none", "sinusoidal"))
    x, (position,) = torch.randn(1, 4, 16), placed.stack.positions
    torch.testing.assert_close(placed.stack(x)[0], plain.stack(position.input(x, torch.arange(4)[None]))[0])
