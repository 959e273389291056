import pytest
import torch
from torch import nn

from variants.slots import optimisers
from variants.training.optimisers.groups import parameter_groups, plain_name


class Table(nn.Module):
    no_decay = ("table", "embedding")

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.ones(3, 2))
        self.embedding = nn.Embedding(3, 2)
        self.weight = nn.Parameter(torch.ones(2, 2))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.positions = Table()
        self.linear = nn.Linear(2, 3)
        self.tied = self.linear
        self.norm = nn.LayerNorm(2)
        self.frozen = nn.Parameter(torch.ones(2, 2), requires_grad=False)


def test_matrices_decay_and_vectors_and_position_tables_do_not():
    decayed, kept = parameter_groups(Model(), 0.1)
    assert set(decayed["names"]) == {"positions.weight", "linear.weight"}
    assert set(kept["names"]) == {
        "positions.table",
        "positions.embedding.weight",
        "linear.bias",
        "norm.weight",
        "norm.bias",
    }
    assert (decayed["weight_decay"], kept["weight_decay"]) == (0.1, 0.0)


def test_every_trainable_parameter_is_in_one_group():
    model = Model()
    grouped = [id(p) for group in parameter_groups(model, 0.1) for p in group["params"]]
    assert len(grouped) == len(set(grouped))
    assert set(grouped) == {id(p) for p in model.parameters() if p.requires_grad}


def test_one_step_with_no_gradient_shrinks_what_decays_alone():
    model = Model()
    groups = parameter_groups(model, 0.1)
    before = {n: p.detach().clone() for g in groups for n, p in zip(g["names"], g["params"], strict=True)}
    optimiser = optimisers.build({"name": "adamw", "lr": 0.1, "weight_decay": 0.1})(groups)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimiser.step()
    for group in groups:
        for name, parameter in zip(group["names"], group["params"], strict=True):
            factor = 0.99 if name in ("positions.weight", "linear.weight") else 1.0
            torch.testing.assert_close(parameter.detach(), before[name] * factor)


# What torch.compile, DistributedDataParallel, FullyShardedDataParallel and a checkpointing wrapper put around a module.
@pytest.mark.parametrize("wrapper", ["_orig_mod", "module", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"])
def test_names_do_not_change_under_compilation(wrapper):
    model = Model()
    compiled = nn.ModuleDict({wrapper: model})
    assert [g["names"] for g in parameter_groups(compiled, 0.1)] == [g["names"] for g in parameter_groups(model, 0.1)]
    assert plain_name("module.module_list.0.weight") == "module_list.0.weight"


@pytest.mark.parametrize("name", sorted(optimisers.choices))
def test_an_optimiser_follows_the_gradient(name):
    x = nn.Parameter(torch.ones(2, 2))
    optimiser = optimisers.build({"name": name, "lr": 0.01, "weight_decay": 0.0})(
        [{"params": [x], "weight_decay": 0.0}]
    )
    x.grad = torch.ones_like(x)
    optimiser.step()
    torch.testing.assert_close(x.detach(), torch.full((2, 2), 0.99))  # both of Adam's first steps are the sign


def test_adam_adds_its_decay_to_the_gradient_and_adamw_does_not():
    steps = {}
    for name in ("adam", "adamw"):
        x = nn.Parameter(torch.full((1, 1), 2.0))
        maker = optimisers.build({"name": name, "lr": 0.1, "weight_decay": 0.5})
        optimiser = maker([{"params": [x], "weight_decay": maker.weight_decay}])
        x.grad = torch.zeros_like(x)
        optimiser.step()
        steps[name] = x.item()
    assert steps == pytest.approx({"adam": 1.9, "adamw": 1.9})  # the sign's step, and lr * decay * x: both 0.1
    assert steps["adam"] != 2.0


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("lr", 0.0, r"lr=0\.0 must be positive"),
        ("betas", [0.9, 1.0], r"betas=\[0\.9, 1\.0\] must be two numbers"),
        ("betas", [0.9], "must be two numbers"),
        ("eps", 0.0, "eps=0.0 must be positive"),
        ("weight_decay", -1.0, "must not be negative"),
    ],
)
def test_a_value_out_of_range_is_refused(field, value, message):
    with pytest.raises(ValueError, match=message):
        optimisers.build({"name": "adamw", field: value})
