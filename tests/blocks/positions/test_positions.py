import math

import pytest
import torch

from variants.blocks.masks import AttentionMask, positions_of
from variants.blocks.positions import Learned, NoPosition, Relative, Rotary, Sinusoidal
from variants.blocks.positions.rotary import Turned
from variants.errors import ConfigError
from variants.slots import positions

DOUBLE = torch.float64


def at(*numbers):
    return torch.tensor([numbers])


def table(position, numbers, d_model, dtype=DOUBLE):
    return position.input(torch.zeros(1, len(numbers), d_model, dtype=dtype), at(*numbers))[0]


def turned(position, x, numbers):
    where = at(*numbers)
    return position.place(where, where).turn(x, "q")


# none ----------------------------------------------------------------------------------------------------------------


def test_none_acts_nowhere():
    x, where = torch.randn(1, 3, 8), at(0, 1, 2)
    place = NoPosition().place(where, where)
    assert NoPosition().input(x, where) is x
    assert place.add is None
    assert place.bias is None
    assert place.turn(x[:, None], "k").data_ptr() == x.data_ptr()


# sinusoidal ----------------------------------------------------------------------------------------------------------


def test_sinusoids_have_the_papers_values():
    expected = torch.tensor([0.8415, 0.5403, 0.0100, 0.99995], dtype=DOUBLE)
    torch.testing.assert_close(table(Sinusoidal(4), [1], 4)[0], expected, rtol=0, atol=5e-5)
    torch.testing.assert_close(
        table(Sinusoidal(4, layout="halves"), [1], 4)[0], expected[[0, 2, 1, 3]], rtol=0, atol=5e-5
    )


@pytest.mark.parametrize("d_model", [1, 2, 7, 8])
@pytest.mark.parametrize("spacing", ["paper", "inclusive"])
@pytest.mark.parametrize("layout", ["interleaved", "halves"])
def test_sinusoids_equal_the_formula_at_every_width(d_model, spacing, layout):
    n_rates = math.ceil(d_model / 2)

    def wave(position, i, function):
        exponent = 2 * i / d_model if spacing == "paper" else i / max(1, n_rates - 1)
        return function(position / 10000**exponent)

    rows = []
    for position in (0, 3, 100_000):
        pairs = [(wave(position, i, math.sin), wave(position, i, math.cos)) for i in range(n_rates)]
        flat = [x for pair in pairs for x in pair]
        flat = flat if layout == "interleaved" else flat[0::2] + flat[1::2]
        rows.append(flat[:d_model])
    position = Sinusoidal(d_model, layout=layout, spacing=spacing)
    torch.testing.assert_close(
        table(position, [0, 3, 100_000], d_model), torch.tensor(rows, dtype=DOUBLE), rtol=1e-9, atol=1e-9
    )


def test_inclusive_spacing_ends_on_the_longest_wavelength():
    angle = math.asin(float(table(Sinusoidal(8, spacing="inclusive", layout="halves"), [1], 8)[0, 3]))
    assert angle == pytest.approx(1 / 10000)


def test_the_base_of_sinusoids_is_any_positive_number():
    assert torch.equal(table(Sinusoidal(4, base=0.5), (0,), 4), torch.tensor([[0, 1, 0, 1]], dtype=DOUBLE))
    for base in (0.0, -1.0):
        with pytest.raises(ValueError, match="base"):
            Sinusoidal(4, base=base)


def test_sinusoids_are_exact_before_they_are_cast():
    exact = table(Sinusoidal(8), [99_999], 8)
    assert torch.equal(table(Sinusoidal(8), [99_999], 8, torch.float32), exact.float())
    assert torch.equal(table(Sinusoidal(8), [99_999], 8, torch.bfloat16), exact.bfloat16())


def test_every_row_of_a_batch_gets_its_own_positions():
    keep = torch.tensor([[True, True, True], [False, True, True]])
    where = positions_of(AttentionMask(keep=keep), 3, "cpu")
    for position in (Sinusoidal(4), Learned(4, max_length=3)):
        out = position.input(torch.zeros(2, 3, 4), where)
        torch.testing.assert_close(out[1, 1:], out[0, :2])


# learned -------------------------------------------------------------------------------------------------------------


def test_learned_rows_are_added_and_learn():
    learned = Learned(4, max_length=8)
    x = torch.randn(2, 3, 4)
    out = learned.input(x, at(0, 5, 7))
    torch.testing.assert_close(out - x, learned.table.weight[[0, 5, 7]].expand(2, -1, -1))
    out.sum().backward()
    assert learned.table.weight.grad.sum(1).tolist() == [8, 0, 0, 0, 0, 8, 0, 8]


def test_a_sequence_longer_than_the_learned_positions_is_named_with_their_number():
    learned = Learned(4, max_length=8)
    learned.input(torch.zeros(1, 8, 4), torch.arange(8)[None])
    with pytest.raises(ValueError, match="9 tokens is longer than max_length 8"):
        learned.input(torch.zeros(1, 9, 4), torch.arange(9)[None])
    with pytest.raises(ValueError, match="at least 1"):
        Learned(4, max_length=0)


def test_learned_positions_may_be_a_single_one_and_are_looked_up_for_no_token_or_without_values():
    assert Learned(4, max_length=1).input(torch.zeros(1, 1, 4), at(0)).shape == (1, 1, 4)
    assert Learned(4, max_length=2).input(torch.zeros(1, 0, 4), at()[..., :0].long()).shape == (1, 0, 4)
    with pytest.raises(ValueError, match="at least 1, not 0"):
        Learned(4, max_length=0)
    with torch.device("meta"):
        assert Learned(4, max_length=2).input(torch.zeros(1, 3, 4), torch.zeros(1, 3, dtype=torch.long)).is_meta


def test_pads_do_not_use_up_learned_positions():
    learned = Learned(4, max_length=2)
    for keep in ([False, True, True], [True, True, False]):
        where = positions_of(AttentionMask(keep=torch.tensor([keep])), 3, "cpu")
        assert torch.equal(learned.input(torch.zeros(1, 3, 4), where)[0, keep], learned.table.weight)


def test_the_greatest_length_is_the_configs_or_else_the_models():
    assert positions.build("learned", d_model=4, max_length=16).max_length == 16
    assert positions.build({"name": "learned", "max_length": 3}, d_model=4, max_length=16).max_length == 3
    with pytest.raises(ValueError, match="needs max_length"):
        positions.build("learned", d_model=4)


# rotary --------------------------------------------------------------------------------------------------------------


def test_rotary_turns_the_pairs_of_its_layout():
    x = torch.tensor([1.0, 0, 0, 0], dtype=DOUBLE).view(1, 1, 1, 4)
    c, s = math.cos(1), math.sin(1)
    torch.testing.assert_close(turned(Rotary(), x, [1]).flatten(), torch.tensor([c, 0, s, 0], dtype=DOUBLE))
    interleaved = turned(Rotary(layout="interleaved"), x, [1]).flatten()
    torch.testing.assert_close(interleaved, torch.tensor([c, s, 0, 0], dtype=DOUBLE))


def test_rotary_multiplies_complex_numbers_by_a_phase():
    x = torch.randn(2, 3, 4, 8, dtype=DOUBLE)
    where = torch.tensor([[0, 1, 2, 3], [0, 0, 500, 501]])
    out = Rotary(base=500.0).place(where, where).turn(x, "k")
    for b, h, t in ((0, 0, 3), (1, 2, 3), (1, 1, 0)):
        for i in range(4):
            phase = complex(math.cos(a := where[b, t].item() * 500.0 ** (-2 * i / 8)), math.sin(a))
            expected = complex(x[b, h, t, i], x[b, h, t, i + 4]) * phase
            assert complex(out[b, h, t, i], out[b, h, t, i + 4]) == pytest.approx(expected, abs=1e-12)


def test_the_layouts_are_one_rotation_of_reordered_features():
    x, order = torch.randn(1, 2, 3, 8, dtype=DOUBLE), [0, 2, 4, 6, 1, 3, 5, 7]
    half = turned(Rotary(), x[..., order], [0, 4, 9])
    torch.testing.assert_close(half, turned(Rotary(layout="interleaved"), x, [0, 4, 9])[..., order])


def test_rotary_scores_depend_on_distance_alone():
    q, k = torch.randn(2, 1, 1, 1, 16, dtype=DOUBLE)
    for rotary in (Rotary(), Rotary(layout="interleaved", fraction=0.5)):
        near = (turned(rotary, q, [5]) * turned(rotary, k, [3])).sum()
        far = (turned(rotary, q, [1005]) * turned(rotary, k, [1003])).sum()
        other = (turned(rotary, q, [5]) * turned(rotary, k, [4])).sum()
        assert abs(near - far) < 1e-9
        assert abs(near - other) > 1e-3


def test_a_fraction_leaves_the_last_features_alone():
    x = torch.randn(1, 1, 1, 8)
    out = turned(Rotary(fraction=0.5), x, [3])
    torch.testing.assert_close(out[..., :4], turned(Rotary(), x[..., :4], [3]))
    assert torch.equal(out[..., 4:], x[..., 4:])


def test_rotary_tables_are_computed_once_for_all_layers_queries_and_keys(monkeypatch):
    widths = []
    made = Turned._made
    monkeypatch.setattr(Turned, "_made", lambda self, width, dtype: widths.append(width) or made(self, width, dtype))
    rotation = Rotary().place(at(0, 1), at(0, 1))
    for _ in range(3):
        rotation.turn(torch.randn(1, 2, 2, 8), "q")
        rotation.turn(torch.randn(1, 2, 2, 8), "k")
    rotation.turn(torch.randn(1, 2, 2, 4), "q")
    assert widths == [8, 4]


def test_rotary_tables_are_wide_whatever_the_models_type():
    x = torch.randn(1, 1, 1, 8)
    exact = turned(Rotary(), x.bfloat16().double(), [4001])
    assert torch.equal(turned(Rotary(), x.bfloat16(), [4001]), exact.bfloat16())


def test_an_odd_width_cannot_be_turned():
    assert Rotary().refuses(8) is None
    assert Rotary(fraction=0.5).refuses(8) is None
    assert "d_head 7 must be even" in Rotary().refuses(7)
    assert "d_head 6 times fraction 0.5 = 3" in Rotary(fraction=0.5).refuses(6)
    assert "= 0" in Rotary(fraction=0.1).refuses(8)
    for options in ({"fraction": 0.0}, {"fraction": 1.5}, {"base": 0.0}, {"base": -1.0}):
        with pytest.raises(ValueError, match="must be"):
            Rotary(**options)
    with pytest.raises(ConfigError, match="layout: expected one of 'half', 'interleaved'"):
        positions.build({"name": "rotary", "layout": "halves"})


# relative ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bidirectional", "distances", "buckets"),
    [
        (True, [0, -1, 1, -7, 7, -8, 8, -16, -127, -128, -9999, 128], [0, 1, 17, 7, 23, 8, 24, 10, 15, 15, 15, 31]),
        (False, [5, 1, 0, -1, -15, -16, -32, -64, -127, -128, -9999], [0, 0, 0, 1, 15, 16, 21, 26, 31, 31, 31]),
    ],
)
def test_distances_fall_into_t5s_buckets(bidirectional, distances, buckets):
    relative = Relative(2, bidirectional)
    assert relative.buckets(torch.tensor([[distances]]))[0, 0].tolist() == buckets


def test_the_bias_is_looked_up_for_every_head_query_and_key_and_learns():
    relative = Relative(3, False, n_buckets=4, max_distance=8)
    keys = torch.tensor([[0, 1, 2, 3, 4], [0, 0, 1, 2, 3]])
    bias = relative.place(keys[:, -2:], keys).bias
    assert bias.shape == (2, 3, 2, 5)
    for b in range(2):
        for i in range(2):
            for j in range(5):
                bucket = relative.buckets((keys[b, j] - keys[b, 3 + i]).view(1, 1, 1)).item()
                assert torch.equal(bias[b, :, i, j], relative.table.weight[bucket])
    bias.sum().backward()
    assert relative.table.weight.grad.sum() == bias.numel()


def test_too_few_buckets_or_too_short_a_distance_are_refused():
    for options in ({"n_buckets": 1}, {"n_buckets": 3}, {"n_buckets": 32, "max_distance": 16}):
        with pytest.raises(ValueError, match="n_buckets"):
            Relative(2, False, **options)
    with pytest.raises(ValueError, match="n_buckets must be a multiple of 4"):
        Relative(2, True, n_buckets=6)


def test_the_fewest_buckets_will_do_and_one_side_is_the_usual():
    assert Relative(2, n_buckets=2, max_distance=2).buckets(at(at(1, 0, -1, -9).tolist()[0])).tolist() == [
        [[0, 0, 1, 1]]
    ]
    assert Relative(2, True, n_buckets=4, max_distance=2).n_side == 2
    assert not Relative(2).bidirectional


# all -----------------------------------------------------------------------------------------------------------------


def test_every_position_says_where_it_acts_and_acts_nowhere_else():
    where, x = torch.arange(4)[None], torch.randn(1, 4, 8)
    for name in positions.choices:
        position = positions.build(name, d_model=8, n_heads=2, max_length=8, bidirectional=False)
        place = position.place(where, where)
        acts = {
            "input": not torch.equal(position.input(x, where), x),
            "add": place.add is not None,
            "turn": not torch.equal(place.turn(x[:, None], "q"), x[:, None]),
            "bias": place.bias is not None,
        }
        assert {key for key, true in acts.items() if true} == ({position.acts} - {None}), name
        assert not list(position.buffers()), name
        assert position.learned_bias == bool(place.bias is not None and place.bias.requires_grad), name
        assert all(hasattr(position, child) for child in getattr(position, "no_decay", ())), name
