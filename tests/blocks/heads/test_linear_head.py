import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from variants.blocks.embeddings import TiedEmbedding, UntiedEmbedding
from variants.blocks.heads import IGNORED, Head, LinearHead

VOCAB, WIDTH = 11, 6


class Given:
    """An embedding whose logits are the hidden states themselves."""

    def __new__(cls):
        embedding = TiedEmbedding(4, 4)
        torch.nn.init.eye_(embedding.table.weight)
        return embedding


def slow_loss(x, targets, weight, bias, scale, eps):
    """Target by target: the cross-entropy between the smoothed target and the softmax."""
    total = x.new_zeros(())
    for state, target in zip(x.flatten(0, 1), targets.flatten(), strict=True):
        if target != IGNORED:
            logits = torch.stack([(row * state).sum() * scale for row in weight]) + bias
            p = logits.exp() / logits.exp().sum()
            wanted = torch.full_like(p, eps / len(p))
            wanted[target] = wanted[target] + 1 - eps
            total = total - (wanted * p.log()).sum()
    return total


@pytest.mark.parametrize("kind", [TiedEmbedding, UntiedEmbedding])
@pytest.mark.parametrize("eps", [0.0, 0.1])
@pytest.mark.parametrize("chunk", [1, 3, 512])
@pytest.mark.parametrize("scaled", [False, True])
def test_the_loss_and_its_gradients_are_those_of_all_logits_at_once(kind, eps, chunk, scaled):
    embedding = kind(VOCAB, WIDTH).double()
    head = LinearHead(VOCAB, WIDTH, bias=True, scaled=scaled, chunk=chunk).double()
    torch.nn.init.normal_(head.bias)
    x = torch.randn(2, 4, WIDTH, dtype=torch.float64, requires_grad=True)
    targets = torch.tensor([[3, IGNORED, 0, 10], [IGNORED, 5, 5, IGNORED]])
    weight = embedding.table.weight if kind is TiedEmbedding else embedding.output.weight
    wanted = slow_loss(x, targets, weight, head.bias, WIDTH**-0.5 if scaled else 1.0, eps)
    made = head.loss(x, targets, embedding, eps)
    torch.testing.assert_close(made.loss, wanted, rtol=0, atol=1e-12)
    torch.testing.assert_close(
        made.nll, slow_loss(x, targets, weight, head.bias, WIDTH**-0.5 if scaled else 1.0, 0.0), rtol=0, atol=1e-12
    )
    assert made.count == 5
    assert not made.nll.requires_grad
    inputs = [x, weight, head.bias]
    for one, other in zip(
        torch.autograd.grad(made.loss * 0.7, inputs), torch.autograd.grad(wanted * 0.7, inputs), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_smoothing_spreads_over_the_whole_vocabulary_and_never_touches_ignored_targets():
    logits = torch.tensor([[[2.0, 0, 0, 0], [0, 1.0, 0, 0], [3.0, 3, 3, 3]]])
    targets = torch.tensor([[0, 1, IGNORED]])
    loss = LinearHead(4, 4).loss(logits, targets, Given(), 0.1)
    assert (loss.loss / loss.count).item() == pytest.approx(0.654711, abs=1e-6)
    assert (loss.nll / loss.count).item() == pytest.approx(0.542211, abs=1e-6)


@pytest.mark.parametrize("size", [1.0, 100.0])
def test_without_smoothing_it_is_plain_cross_entropy_bit_for_bit(size):
    logits, targets = size * torch.randn(1, 9, 4), torch.randint(4, (1, 9))
    loss = LinearHead(4, 4).loss(logits, targets, Given()).loss
    assert torch.equal(loss, F.cross_entropy(logits[0], targets[0], reduction="sum"))


@pytest.mark.parametrize("kind", [TiedEmbedding, UntiedEmbedding])
@pytest.mark.parametrize("eps", [0.0, 0.1])
def test_no_target_at_all_gives_zero_and_zero_gradients_even_of_bad_states(kind, eps):
    embedding, head = kind(VOCAB, WIDTH), LinearHead(VOCAB, WIDTH, bias=True)
    x = torch.full((2, 3, WIDTH), torch.nan, requires_grad=True)
    loss = head.loss(x, torch.full((2, 3), IGNORED), embedding, eps)
    loss.loss.backward()
    assert (loss.loss, loss.nll, loss.count) == (0, 0, 0)
    used = embedding.table.weight if kind is TiedEmbedding else embedding.output.weight
    for tensor in (x, used, head.bias):
        assert torch.equal(tensor.grad, torch.zeros_like(tensor))


def test_ignored_targets_are_never_projected():
    embedding, head = TiedEmbedding(VOCAB, WIDTH), LinearHead(VOCAB, WIDTH, chunk=2)
    rows = []
    embedding.output.register_forward_pre_hook(lambda module, args: rows.append(len(args[0])))
    targets = torch.tensor([[1, IGNORED, 2, IGNORED, 3, 4]])
    x = torch.randn(1, 6, WIDTH, requires_grad=True)
    head.loss(x, targets, embedding)
    with torch.no_grad():
        head.loss(x, targets, embedding)
    assert rows == [2, 2, 2, 2]  # and never more than a chunk


def test_evaluation_gives_what_training_gives():
    embedding, head = TiedEmbedding(VOCAB, WIDTH), LinearHead(VOCAB, WIDTH, chunk=2)
    x, targets = torch.randn(2, 4, WIDTH), torch.randint(VOCAB, (2, 4))
    trained = head.loss(x, targets, embedding, 0.1)
    with torch.no_grad():
        evaluated = head.loss(x, targets, embedding, 0.1)
    assert all(torch.equal(one, other) for one, other in zip(trained[:3], evaluated[:3], strict=True))


def test_a_frozen_embedding_gets_no_gradient_and_the_states_do():
    embedding, head = TiedEmbedding(VOCAB, WIDTH).requires_grad_(False), LinearHead(VOCAB, WIDTH)
    x = torch.randn(1, 3, WIDTH, requires_grad=True)
    head.loss(x, torch.tensor([[1, 2, 3]]), embedding).loss.backward()
    assert embedding.table.weight.grad is None
    assert x.grad.ne(0).all()


def test_a_trained_head_on_frozen_states_learns():
    embedding, head = TiedEmbedding(VOCAB, WIDTH), LinearHead(VOCAB, WIDTH)
    head.loss(torch.randn(1, 3, WIDTH), torch.tensor([[1, 2, 3]]), embedding).loss.backward()
    assert embedding.table.weight.grad.ne(0).all()


def test_parameters_that_share_a_gradient_each_get_theirs():
    class Corrected(LinearHead):
        def __init__(self):
            super().__init__(VOCAB, WIDTH, chunk=1)
            self.one, self.two = (torch.nn.Parameter(torch.zeros(2, VOCAB)) for _ in range(2))

        def forward(self, x, embedding):
            return super().forward(x, embedding) + (self.one + self.two).sum(0)

    embedding, head = TiedEmbedding(VOCAB, WIDTH).double(), Corrected().double()
    x, targets = torch.randn(1, 5, WIDTH, dtype=torch.float64), torch.randint(VOCAB, (1, 5))
    head.loss(x, targets, embedding).loss.backward()
    wanted = (head(x, embedding).softmax(-1) - F.one_hot(targets, VOCAB)).sum((0, 1)).detach()
    torch.testing.assert_close(head.one.grad, wanted.expand(2, VOCAB))
    torch.testing.assert_close(head.two.grad, wanted.expand(2, VOCAB))


def test_losses_of_two_micro_batches_add_up_their_gradients():
    embedding, head = TiedEmbedding(VOCAB, WIDTH).double(), LinearHead(VOCAB, WIDTH)
    x, targets = torch.randn(2, 4, WIDTH, dtype=torch.float64), torch.randint(VOCAB, (2, 4))
    head.loss(x, targets, embedding).loss.backward()
    whole, embedding.table.weight.grad = embedding.table.weight.grad, None
    for row in (0, 1):
        head.loss(x[row : row + 1], targets[row : row + 1], embedding).loss.backward()
    torch.testing.assert_close(embedding.table.weight.grad, whole)


@pytest.mark.parametrize("eps", [0.0, 0.1])
def test_under_autocast_the_loss_is_summed_in_float32(eps):
    embedding, head = TiedEmbedding(64, 16), LinearHead(64, 16, bias=True, chunk=8)
    x, targets = torch.randn(2, 20, 16), torch.randint(64, (2, 20))
    wanted = head.loss(x, targets, embedding, eps)
    wanted_gradient = torch.autograd.grad(wanted.loss, embedding.table.weight)[0]
    with torch.autocast("cpu", torch.bfloat16):
        made = head.loss(x, targets, embedding, eps)
    assert made.loss.dtype == made.nll.dtype == torch.float32
    torch.testing.assert_close(made.loss, wanted.loss.detach(), rtol=1e-2, atol=0, check_dtype=False)
    gradient = torch.autograd.grad(made.loss, embedding.table.weight)[0]
    assert gradient.dtype == torch.float32
    assert (gradient - wanted_gradient).norm() < 2e-2 * wanted_gradient.norm()


def test_in_bfloat16_many_chunks_lose_nothing_to_a_single_one():
    embedding = TiedEmbedding(64, 16).bfloat16()
    x, targets = torch.randn(2, 500, 16).bfloat16(), torch.randint(64, (2, 500))
    exact = TiedEmbedding(64, 16)
    exact.load_state_dict(embedding.state_dict())
    LinearHead(64, 16).loss(x.float(), targets, exact).loss.backward()
    errors = []
    for chunk in (1000, 4):
        gradient = torch.autograd.grad(
            LinearHead(64, 16, chunk=chunk).loss(x, targets, embedding).loss, embedding.table.weight
        )[0]
        errors.append(float((gradient.float() - exact.table.weight.grad).norm() / exact.table.weight.grad.norm()))
    assert errors[1] < 1.5 * errors[0] < 2e-2


def test_its_cost_is_that_of_one_projection():
    embedding, head = TiedEmbedding(VOCAB, WIDTH), LinearHead(VOCAB, WIDTH)
    with FlopCounterMode(display=False) as counter:
        head(torch.randn(2, 3, WIDTH), embedding)
    assert head.flops(6, 6) == counter.get_total_flops()


def test_a_chunk_of_nothing_is_refused():
    with pytest.raises(ValueError, match="chunk=0: must be positive"):
        LinearHead(VOCAB, WIDTH, chunk=0)


def test_a_bias_starts_from_nothing_and_says_so():
    head = LinearHead(VOCAB, WIDTH, bias=True)
    assert head.initial == {"bias": 0.0}
    assert head.chunk == Head().chunk
    assert torch.equal(head.bias, torch.zeros(VOCAB))


def test_an_ignored_target_is_torchs_own():
    assert F.cross_entropy(torch.randn(1, 3), torch.tensor([IGNORED]), reduction="sum") == 0
