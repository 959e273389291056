"""From a config to a model: offers, patches, patterns, sharing, and every problem said at once with its place."""

import pytest
import torch

from variants.blocks.masks import AttentionMask
from variants.errors import WRONG, ConfigError
from variants.models import Assembly, assemble, build, cost, effects, skeleton

TINY = {"d_model": 32, "n_layers": 3, "n_heads": 4, "vocab": 50}
ONE_VOCABULARY = {"name": "encoder_decoder", "shared_vocabulary": True}
IDS = torch.arange(24).view(2, 12)


def problems(known=None, **fields):
    with pytest.raises(ConfigError) as caught:
        assemble({**TINY, **fields}, **(known or {}))
    return caught.value.problems


def test_a_model_field_reaches_every_component_that_asks_and_survives_a_swap():
    for feedforward in ("relu", "swiglu"):
        model = assemble({**TINY, "bias": True, "feedforward": feedforward})
        layer = model.stack.layers[0]
        assert layer.mixer.q.bias is not None
        assert layer.feedforward.down.bias is not None


def test_a_choices_own_field_wins_over_the_models():
    model = assemble({**TINY, "bias": True, "mixer": {"name": "attention", "bias": False}})
    assert model.stack.layers[0].mixer.q.bias is None


def test_dropout_has_four_rates_and_one_field_for_all():
    layer = assemble({**TINY, "kernel": "sdpa", "dropout": 0.2}).stack.layers[0]
    assert layer.dropout.p == layer.mixer.attention_dropout == 0.2
    model = assemble({**TINY, "dropout": 0.2, "attention_dropout": 0.0, "embedding_dropout": 0.1})
    assert (model.stack.dropout.p, model.stack.layers[0].mixer.attention_dropout) == (0.1, 0.0)


def test_both_sides_may_differ_in_depth_and_in_any_slot():
    model = assemble(
        {
            **TINY,
            "layout": "encoder_decoder",
            "encoder": {"n_layers": 2, "feedforward": "relu", "residual": "post"},
            "decoder": {"n_layers": 4, "mixer": {"window": 3}},
        }
    )
    assert (len(model.encoder.layers), len(model.decoder.layers)) == (2, 4)
    assert type(model.encoder.layers[0].feedforward) is not type(model.decoder.layers[0].feedforward)
    assert model.decoder.layers[0].mixer.window == 3
    assert model.encoder.layers[0].mixer.window is None
    assert model.encoder.layers[0].cross is None
    assert model.decoder.layers[0].cross is not None


def test_a_pattern_tiles_and_an_index_wins_over_it():
    layers = {
        "pattern": "local local global",
        "local": {"mixer": {"window": 2}},
        "global": {"position": "none"},
        -1: {"mixer": {"window": 5}},
    }
    stack = assemble({**TINY, "n_layers": 5, "layers": layers}).stack
    assert [layer.mixer.window for layer in stack.layers] == [2, 2, None, 2, 5]
    assert stack.position_of == [0, 0, 1, 0, 0]


def test_shared_layers_are_one_module_and_count_once():
    shared, plain = assemble({**TINY, "sharing": "all"}), assemble(TINY)
    assert (len(shared.stack.layers), shared.stack.order) == (1, [0, 0, 0])
    layer = sum(p.numel() for p in plain.stack.layers[0].parameters())
    assert cost.parameters(plain).total - cost.parameters(shared).total == 2 * layer
    assert cost.training_flops(plain, 8) == cost.training_flops(shared, 8)


def test_one_vocabulary_is_one_matrix_tied_three_ways():
    fields = {**TINY, "layout": "encoder_decoder", "embedding": "tied"}
    model = assemble(fields)
    names = [name for name, p in model.named_parameters() if p.shape == (50, 32)]
    assert names == ["embedding.table.weight"]
    two = assemble(fields | {"source_vocab": 40})
    assert two.source_embedding.table.weight.shape == (40, 32)


def test_a_source_embedding_has_no_output_that_learns_nothing():
    fields = {**TINY, "layout": {"name": "encoder_decoder", "shared_vocabulary": False}, "embedding": "untied"}
    model = build(fields)
    model(IDS, IDS).logits.sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


def test_equal_configs_give_equal_weights_and_a_swap_leaves_the_others_alone():
    one, same = (build(TINY, seed=3).state_dict() for _ in range(2))
    assert all(torch.equal(one[name], same[name]) for name in one)
    for swap in ({"residual": "post"}, {"feedforward": "relu"}):  # the second has fewer values to draw
        two = build({**TINY, **swap}, seed=3).state_dict()
        common = [n for n in one if n in two and "norm" not in n and two[n].shape == one[n].shape]
        assert len(common) > 12
        assert all(torch.equal(one[name], two[name]) for name in common)
    other = build(TINY, seed=4).state_dict()
    assert not torch.equal(one["embedding.table.weight"], other["embedding.table.weight"])


def test_layers_start_different():
    model = build(TINY)
    assert not torch.equal(model.stack.layers[0].mixer.q.weight, model.stack.layers[1].mixer.q.weight)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"n_heads": 5}, "model.mixer: n_heads 5 must divide d_model 32"),
        ({"mixer": {"name": "attention", "n_kv_heads": 3}}, "model.mixer: n_kv_heads 3 must divide n_heads 4"),
        ({"mixer": {"name": "attention", "d_head": 5}}, "model.position: "),
        ({"kernel": "flash", "attention_dropout": 0.1}, "model.kernel: "),
        ({"kernel": "flash", "position": "relative"}, "model.kernel: "),
        (
            {"position": {"name": "learned"}, "max_length": 8},
            "model.position: has 8 positions, but sequences have up to 9",
        ),
        ({"layers": {7: {}}}, "model.layers.7: there are 3 layers, from 0 to 2"),
        ({"layers": {1: {"norm": "x"}}}, "model.layers.1.norm: no norm 'x'"),
        ({"decoder": {"mixer": {"windwo": 3}}}, "model.decoder.mixer.windwo: no field of mixer attention"),
        (
            {"sharing": "all", "layers": {1: {"norm": "layernorm"}}},
            "model.layers.1: shares its weights with layer 0",
        ),
        ({"decoder": {"mixer": {"n_kv_heads": 3}}}, "model.decoder.mixer: n_kv_heads 3 must divide n_heads 4"),
        ({"layers": {1: {"mixer": {"n_kv_heads": 3}}}}, "model.layers: mixer: n_kv_heads 3 must divide n_heads 4"),
        ({"vocab": None}, "model.vocab: needed"),
        (
            {"layout": {"name": "encoder_decoder", "shared_vocabulary": True}, "source_vocab": 9},
            "model.layout: shared_vocabulary=true",
        ),
    ],
)
def test_a_contradiction_is_one_line_with_its_place(fields, said):
    lines = problems({"max_length": 9}, **fields)
    assert len(lines) == 1, lines
    assert lines[0].startswith(said), lines[0]


def test_the_datas_vocabulary_must_fit():
    assert problems({"vocab": 60}) == ("model.vocab: 50 is smaller than the data's vocabulary of 60",)
    for of_data in (40, 50):
        assert assemble(TINY, vocab=of_data).embedding.table.weight.shape == (50, 32)


def test_all_contradictions_are_said_at_once():
    lines = problems(None, n_heads=5, feedforward={"name": "relu", "ratio": -1.0}, vocab=None)
    assert len(lines) == 3


def test_what_an_option_came_to_is_recorded():
    assert set(effects.kernels_of(assemble(TINY)).values()) == {"flash"}
    dropping = assemble({**TINY, "attention_dropout": 0.1})
    assert set(effects.kernels_of(dropping).values()) == {"sdpa"}
    assert "not flash, because" in effects.reasons(dropping)[0]
    idle = effects.without_effect(assemble({**TINY, "mixer": "lstm"}))
    assert [line.split(" has no effect")[0] for line in idle] == ["position rotary", "kernel"]


@pytest.mark.parametrize("every", [1, 2])
def test_checkpointing_changes_neither_loss_nor_gradients_with_dropout_on(every):
    results = []
    for checkpoint_every in (0, every):
        model = build({**TINY, "dropout": 0.3}, checkpoint_every=checkpoint_every).train()
        torch.manual_seed(1)
        loss = model(IDS).logits.square().mean()
        loss.backward()
        results.append((loss, [p.grad for p in model.parameters()], torch.get_rng_state()))
    assert torch.equal(results[0][0], results[1][0])
    assert all(torch.equal(a, b) for a, b in zip(results[0][1], results[1][1], strict=True))
    assert torch.equal(results[0][2], results[1][2])


def test_a_local_and_global_pattern_decodes_as_it_reads():
    from variants.blocks.cache import Cache

    layers = {"pattern": "local global", "local": {"mixer": {"window": 3}}, "global": {"position": {"base": 100.0}}}
    model = build({**TINY, "layers": layers}).eval()
    keep = torch.ones(2, 12, dtype=torch.bool)
    keep[0, :4] = False
    with torch.no_grad():
        whole = model(IDS, AttentionMask(keep=keep)).logits
        cache = Cache(12)
        steps = [model(IDS[:, t : t + 1], AttentionMask(keep=keep[:, t : t + 1]), cache).logits for t in range(12)]
    torch.testing.assert_close(torch.cat(steps, 1)[keep], whole[keep], atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"dropout": 1.0}, "dropout: 1.0 is not a rate: at least 0, below 1"),
        ({"attention_dropout": -0.1}, "attention_dropout: -0.1 is not a rate: at least 0, below 1"),
        ({"norm_eps": -1e-5}, "norm_eps: -1e-05 must not be negative"),
        ({"d_model": 0}, "d_model: 0 must be at least 1"),
        ({"d_model": 10**6 + 1}, "d_model: 1000001 must be at most 1000000"),
        ({"n_layers": 1001}, "n_layers: 1001 must be at most 1000"),
        ({"n_heads": 10001}, "n_heads: 10001 must be at most 10000"),
        ({"vocab": 10**8 + 1}, "vocab: 100000001 must be at most 100000000"),
        ({"source_vocab": 10**8 + 1}, "source_vocab: 100000001 must be at most 100000000"),
        ({"max_length": 10**8 + 1}, "max_length: 100000001 must be at most 100000000"),
        ({"decoder": {"dropout": 1.5}}, "decoder.dropout: 1.5 is not a rate: at least 0, below 1"),
    ],
)
def test_a_number_out_of_range_is_refused_before_anything_is_built(fields, line):
    with pytest.raises(ConfigError) as caught:
        skeleton.check({**TINY, **fields})
    assert caught.value.problems == (line,)


def test_the_ends_of_the_ranges_are_in_them():
    most = {"d_model": 10**6, "n_layers": 1000, "n_heads": 10**4, "vocab": 10**8, "source_vocab": 10**8}
    assert skeleton.check({**TINY, **most, "max_length": 10**8})["n_layers"] == 1000
    least = dict.fromkeys(("d_model", "n_layers", "n_heads", "vocab", "source_vocab", "max_length"), 1)
    assert skeleton.check({**least, "dropout": 0.0, "norm_eps": 0.0})["d_model"] == 1


@pytest.mark.parametrize(
    ("layout", "role", "depths"),
    [
        ("decoder_only", "decoder", (3, 0, 3, "decoder")),
        ("encoder_only", "encoder", (2, 2, 0, "encoder")),
        ("encoder_decoder", "encoder", (2, 2, 3, "encoder")),
        ("encoder_decoder", "decoder", (3, 2, 3, "decoder")),
    ],
)
def test_a_residual_is_told_the_depths_that_there_are(layout, role, depths):
    model = skeleton.check({**TINY, "layout": layout, "encoder": {"n_layers": 2}})
    told = Assembly(model)._depths(role)
    assert (told.own, told.encoder, told.decoder, told.role) == depths


def test_an_encoder_alone_has_no_matrix_of_an_output_that_it_does_not_make():
    model = build({**TINY, "layout": "encoder_only", "embedding": "untied"})
    assert [name for name, _ in model.embedding.named_parameters()] == ["table.weight"]


def test_a_size_that_overflows_is_a_line_and_another_fault_of_a_component_is_not():
    lines = problems(feedforward={"name": "relu", "d_ff": 10**18})
    assert len(lines) == 1
    assert "some size is too large" in lines[0]
    with pytest.raises(RuntimeError, match="its own"):
        Assembly(skeleton.check(TINY))._try("model.mixer", _raise)


def _raise():
    raise RuntimeError("a fault of its own")


def test_a_position_without_effect_is_named_and_one_that_acts_is_not():
    for position, idle in (("rotary", True), ("relative", True), ("sinusoidal", False), ("none", False)):
        lines = effects.without_effect(assemble({**TINY, "mixer": "lstm", "position": position}))
        assert any(line.startswith("position") for line in lines) == idle, (position, lines)
        assert not any(
            line.startswith("position") for line in effects.without_effect(assemble({**TINY, "position": position}))
        )


def test_a_wrong_type_does_not_hide_what_is_missing():
    with pytest.raises(ConfigError) as caught:
        skeleton.check({"d_model": "wide", "n_heads": 4})
    assert [line.split(":")[0] for line in caught.value.problems] == ["d_model", "n_layers"]


@pytest.mark.parametrize(
    ("layers", "depth"), [(None, 1), ({5: {}}, 6), ({0: {}, -3: {}}, 4), ({"pattern": "a", "a": {}}, 1)]
)
def test_where_the_depth_is_wrong_there_are_layers_enough_for_every_patch(layers, depth):
    model = {**skeleton.check(TINY), "n_layers": WRONG, "layers": layers}
    assert skeleton.stack_fields(model, "decoder")["n_layers"] == depth


@pytest.mark.parametrize(
    ("layers", "said"),
    [
        ({"pattern": ["local"]}, "layers.pattern: expected names with spaces between them, got ['local']"),
        ({"pattern": "  "}, "layers.pattern: expected names with spaces between them, got '  '"),
        ({"pattern": "local"}, "layers.pattern: 'local' has no patch; write `local: {}` if it changes nothing"),
        ({"local": {}}, "layers.local: neither a layer's index nor a name in the pattern None"),
        ({0: {"n_layers": 2}}, "layers.0.n_layers: no field of this patch 'n_layers'"),
        ({0: 3}, "layers.0: expected a mapping, got 3"),
    ],
)
@pytest.mark.parametrize("place", ["", "decoder."])
def test_a_patch_that_cannot_be_read_is_one_line_with_its_place(layers, said, place):
    patch = {"layers": layers} if not place else {"decoder": {"layers": layers}}
    with pytest.raises(ConfigError) as caught:
        skeleton.check({**TINY, **patch})
    (line,) = caught.value.problems
    assert line.startswith(place + said)


def test_an_encoder_reads_both_ways_and_a_decoder_one():
    pairs = {**TINY, "layout": "encoder_decoder"}
    placed = assemble({**pairs, "position": "relative"})
    assert [stack.positions[0].bidirectional for stack in (placed.encoder, placed.decoder)] == [True, False]
    recurrent = assemble({**pairs, "mixer": "lstm", "position": "none"})
    assert [s.layers[0].mixer.bidirectional for s in (recurrent.encoder, recurrent.decoder)] == [True, False]
