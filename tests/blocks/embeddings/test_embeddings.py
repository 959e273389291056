import pytest
import torch

from variants.blocks.embeddings import TiedEmbedding, UntiedEmbedding
from variants.slots import embeddings

VOCAB, WIDTH = 7, 4


@pytest.mark.parametrize("name", embeddings.choices)
@pytest.mark.parametrize(("scale", "factor"), [(False, 1.0), (True, 2.0)])  # sqrt(4)
def test_an_id_gives_its_row_times_the_scale(name, scale, factor):
    embedding = embeddings.build({"name": name, "scale": scale}, vocab=VOCAB, d_model=WIDTH)
    ids = torch.tensor([[3, 0], [6, 3]])
    made = embedding(ids)
    assert torch.equal(made[0, 1], embedding.table.weight[0] * factor)
    assert torch.equal(made[1, 1], embedding.table.weight[3] * factor)


def test_a_tied_matrix_is_one_parameter_that_learns_from_both_directions():
    embedding = TiedEmbedding(VOCAB, WIDTH).double()
    assert [name for name, _ in embedding.named_parameters()] == ["table.weight"]
    assert list(embedding.state_dict()) == ["table.weight"]
    x, ids = torch.randn(1, 1, WIDTH, dtype=torch.float64), torch.tensor([[2]])
    torch.testing.assert_close(embedding.unembed(x)[0, 0], embedding.table.weight @ x[0, 0])
    (embedding(ids).sum() + embedding.unembed(x)[..., 5].sum()).backward()
    wanted = torch.zeros(VOCAB, WIDTH, dtype=torch.float64)
    wanted[2], wanted[5] = 1.0, x[0, 0]
    torch.testing.assert_close(embedding.table.weight.grad, wanted)


def test_the_scale_acts_on_the_lookup_alone():
    embedding, x = TiedEmbedding(VOCAB, WIDTH, scale=True), torch.randn(1, 1, WIDTH)
    torch.testing.assert_close(embedding.unembed(x)[0, 0], embedding.table.weight @ x[0, 0])


def test_untied_matrices_learn_from_a_direction_each():
    embedding = UntiedEmbedding(VOCAB, WIDTH)
    x = torch.randn(1, 1, WIDTH)
    torch.testing.assert_close(embedding.unembed(x)[0, 0], embedding.output.weight @ x[0, 0])
    embedding.unembed(x).sum().backward()
    assert embedding.table.weight.grad is None
    assert embedding.output.weight.grad.ne(0).all()


def test_a_sources_untied_embedding_has_no_second_matrix():
    embedding = embeddings.build("untied", vocab=VOCAB, d_model=WIDTH, source=True)
    assert [name for name, _ in embedding.named_parameters()] == ["table.weight"]


@pytest.mark.parametrize("name", embeddings.choices)
@pytest.mark.parametrize("strange", [-1, VOCAB])
def test_an_id_outside_the_vocabulary_is_an_error(name, strange):
    embedding = embeddings.build(name, vocab=VOCAB, d_model=WIDTH)
    with pytest.raises(IndexError):
        embedding(torch.tensor([[strange]]))


@pytest.mark.parametrize("name", embeddings.choices)
def test_a_lookup_costs_nothing(name):
    assert embeddings.build(name, vocab=VOCAB, d_model=WIDTH).flops(3, 5) == 0
