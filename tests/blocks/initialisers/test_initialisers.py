import math

import pytest
import torch
import torch.distributed as dist
from torch import nn

from variants.blocks.embeddings import TiedEmbedding, UntiedEmbedding
from variants.blocks.feedforwards import GatedFeedForward, PlainFeedForward
from variants.blocks.heads import LinearHead
from variants.blocks.initialisers import Address, Normal, generator_of, initialise, stripped
from variants.blocks.norms import LayerNorm, RMSNorm
from variants.slots import initialisers


class Stack(nn.Module):
    def __init__(self, n_layers, order=None, norm=RMSNorm):
        super().__init__()
        self.layers = nn.ModuleList(PlainFeedForward(16) for _ in range(n_layers))
        self.order = list(order or range(n_layers))
        self.norm = norm(16)


class Fused(nn.Module):
    """Two matrices in one, and a constant of a child's parameter."""

    initial = {"inner.bias": 3.0}

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 6)

    def parts(self, name):
        return [("left.weight", slice(0, 2)), ("right.weight", slice(2, 6))] if name == "inner.weight" else None


def made(model, initialiser="normal", seed=0):
    initialise(model, initialisers.build(initialiser) if isinstance(initialiser, str) else initialiser, seed)
    return dict(model.named_parameters())


def test_every_layer_starts_differently_and_the_same_seed_starts_the_same():
    one, again, other = made(Stack(4)), made(Stack(4)), made(Stack(4), seed=1)
    ups = [one[f"layers.{i}.up.weight"] for i in range(4)]
    assert all(not torch.equal(ups[i], ups[j]) for i in range(4) for j in range(i))
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert not torch.equal(ups[0], other["layers.0.up.weight"])


def test_a_value_depends_on_its_own_name_and_on_nothing_around_it():
    small, large = made(Stack(2)), made(Stack(4, norm=LayerNorm))
    shared = [name for name in small if name in large and name != "norm.bias"]
    assert len(shared) == 9
    assert all(torch.equal(small[name], large[name]) for name in shared)


def test_the_global_generator_is_neither_read_nor_moved_and_the_dtype_only_rounds():
    whole = made(Stack(1))
    model = Stack(1).to(torch.bfloat16)
    torch.manual_seed(123)
    before = torch.get_rng_state()
    half = made(model)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(whole[name].bfloat16(), half[name]) for name in whole)


def test_a_model_from_the_meta_device_starts_as_one_that_was_never_there():
    with torch.device("meta"):
        model = Stack(2, norm=LayerNorm)
    model.to_empty(device="cpu")
    for parameter in model.parameters():
        parameter.data.fill_(torch.nan)
    whole, empty = made(Stack(2, norm=LayerNorm)), made(model)
    assert all(torch.equal(whole[name], empty[name]) for name in whole)


@pytest.mark.parametrize(
    "name",
    [
        "stack.up.weight",
        "_orig_mod.stack.up.weight",
        "module.stack._orig_mod.up.weight",
        "_fsdp_wrapped_module.stack._checkpoint_wrapped_module.up.weight",
    ],
)
def test_wrappers_leave_no_trace_in_a_name(name):
    assert stripped(name) == "stack.up.weight"


def test_a_wrapped_model_starts_as_a_bare_one():
    class Wrapper(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self._orig_mod = inner

    bare = made(Stack(2), "depth_scaled")
    wrapped_stack = Stack(2)
    wrapped_stack.layers[1] = Wrapper(wrapped_stack.layers[1])
    wrapped = {stripped(name): p for name, p in made(Wrapper(wrapped_stack), "depth_scaled").items()}
    assert all(torch.equal(bare[name], wrapped[name]) for name in bare)


def test_a_fused_matrix_is_drawn_part_by_part_under_the_parts_names():
    fused = made(nn.ModuleDict({"mixer": Fused()}))
    for name, rows in (("left", slice(0, 2)), ("right", slice(2, 6))):
        address = Address(f"mixer.{name}.weight", (rows.stop - rows.start, 4))
        wanted = Normal()(address, generator_of(0, address.name))
        assert torch.equal(fused["mixer.inner.weight"][rows], wanted)


def test_a_fused_part_has_the_fans_of_its_own_shape():
    seen = []

    class Spy(Normal):
        def __call__(self, address, generator):
            seen.append(address)
            return super().__call__(address, generator)

    initialise(Fused(), Spy(), 0)
    assert [(a.name, a.shape, a.fans, a.kind) for a in seen] == [
        ("left.weight", (2, 4), (4, 2), "linear"),
        ("right.weight", (4, 4), (4, 4), "linear"),
    ]


def test_constants_are_what_the_module_or_its_owner_declares():
    assert torch.equal(made(Fused())["inner.bias"], torch.full((6,), 3.0))
    values = made(nn.ModuleList([LayerNorm(4), nn.LayerNorm(4), nn.Linear(4, 4)]))
    for name, wanted in {"0.weight": 1, "0.bias": 0, "1.weight": 1, "1.bias": 0, "2.bias": 0}.items():
        assert torch.equal(values[name], torch.full((4,), float(wanted)))

    class Called(nn.Module):
        initial = {"mix": lambda shape: torch.eye(*shape)}

        def __init__(self):
            super().__init__()
            self.mix = nn.Parameter(torch.randn(3, 3))

    assert torch.equal(made(Called())["mix"], torch.eye(3))


def test_a_vector_that_nobody_declares_is_an_error_that_names_it():
    class Careless(nn.Module):
        def __init__(self):
            super().__init__()
            self.gain = nn.Parameter(torch.ones(3))

    with pytest.raises(AssertionError, match=r"block\.gain: no module declares its initial value"):
        made(nn.ModuleDict({"block": Careless()}))


def test_an_address_says_depth_kind_and_what_writes():
    seen = {}

    class Spy(Normal):
        def __call__(self, address, generator):
            seen[address.name] = address
            return super().__call__(address, generator)

    initialise(nn.ModuleDict({"embedding": UntiedEmbedding(5, 16), "stack": Stack(1, order=[0, 0, 0])}), Spy(), 0)
    assert [(name, a.kind, a.n_layers, a.writes) for name, a in seen.items()] == [
        ("embedding.table.weight", "embedding", 1, False),
        ("embedding.output.weight", "linear", 1, False),
        ("stack.layers.0.up.weight", "linear", 3, False),
        ("stack.layers.0.down.weight", "linear", 3, True),
    ]


@pytest.mark.parametrize("name", initialisers.choices)
@pytest.mark.parametrize("shape", [(200, 300), (300, 20, 3, 3)])
@pytest.mark.parametrize("writes", [False, True])
def test_draws_have_the_standard_deviation_that_it_tells_and_no_mean(name, shape, writes):
    initialiser = initialisers.build(name)
    address = Address("x.weight", shape, "linear", 8, writes)
    value, std = initialiser(address, generator_of(3, "x.weight")), initialiser.std(address)
    n = value.numel()
    assert value.dtype == torch.float32
    assert value.shape == shape
    assert abs(value.mean()) < 4 * std / math.sqrt(n)
    assert value.std() == pytest.approx(std, rel=4 / math.sqrt(2 * n))


def test_xavier_is_uniform_within_the_papers_bound():
    value = initialisers.build("xavier")(Address("x", (100, 500)), generator_of(0, "x"))
    bound = math.sqrt(6 / 600)
    assert value.abs().max() <= bound
    counts = torch.histc(value, 10, -bound, bound)
    assert ((counts - 5000).square() / 5000).sum() < 28  # chi-square of 9 degrees, p = 0.001
    torch.manual_seed(0)
    assert value.std() == pytest.approx(nn.init.xavier_uniform_(torch.empty(100, 500)).std().item(), rel=0.01)


def test_depth_scaling_divides_what_writes_by_the_root_of_twice_the_depth():
    scaled = initialisers.build({"name": "depth_scaled", "std": 0.4})
    assert scaled.std(Address("down", (4, 4), "linear", 8, writes=True)) == pytest.approx(0.1)
    assert scaled.std(Address("up", (4, 4), "linear", 8, writes=False)) == pytest.approx(0.4)
    assert scaled.std(Address("down", (4, 4), writes=True)) == pytest.approx(0.4 / 2**0.5)  # outside a stack
    plain, smaller = made(Stack(2)), made(Stack(2), "depth_scaled")
    torch.testing.assert_close(smaller["layers.1.down.weight"], plain["layers.1.down.weight"] / 2)
    assert torch.equal(smaller["layers.1.up.weight"], plain["layers.1.up.weight"])


def test_a_negative_deviation_is_refused():
    with pytest.raises(ValueError, match=r"std=-1\.0: must not be negative"):
        initialisers.build({"name": "normal", "std": -1.0})


@pytest.mark.parametrize("kind", [TiedEmbedding, UntiedEmbedding])
@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("name", initialisers.choices)
def test_the_first_loss_is_that_of_a_guess_plus_half_the_variance_of_the_logits(kind, scale, name):
    vocab, width = 1000, 512
    embedding, head = kind(vocab, width, scale=scale), LinearHead(vocab, width)
    made(nn.ModuleDict({"embedding": embedding, "head": head}), name)
    x = torch.randn(1, 200, width)  # what a final norm gives
    loss = head.loss(x, torch.randint(vocab, (1, 200)), embedding)
    weight = embedding.table.weight if kind is TiedEmbedding else embedding.output.weight
    wanted = math.log(vocab) + width * float(weight.detach().var()) / 2
    assert float(loss.nll / loss.count) == pytest.approx(wanted, rel=0.02)


def test_a_sharded_model_starts_as_a_whole_one():
    from torch.distributed.tensor import DTensor, Shard, distribute_tensor
    from torch.testing._internal.distributed.fake_pg import FakeStore

    whole = made(GatedFeedForward(16, bias=True))
    dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=2)
    try:
        mesh = dist.init_device_mesh("cpu", (2,))
        model = GatedFeedForward(16, bias=True)
        for module in model.modules():
            for name, parameter in list(module.named_parameters(recurse=False)):
                sharded = distribute_tensor(parameter.detach(), mesh, [Shard(0)], src_data_rank=None)
                setattr(module, name, nn.Parameter(sharded))
        for name, parameter in made(model).items():
            assert isinstance(parameter, DTensor)
            assert torch.equal(parameter.to_local(), whole[name].chunk(2)[1])
    finally:
        dist.destroy_process_group()


def test_a_seed_is_one_that_torch_takes():
    seeds = [generator_of(0, str(name)).initial_seed() for name in range(64)]
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert len(set(seeds)) == 64
