"""Override lists of every kind: what people write, what they write by mistake, and what nobody would write."""

from hypothesis import strategies as st

from variants import config as configs
from variants import options
from variants.models.skeleton import LAYER_FIELDS, PATCHES, STACK_FIELDS, Skeleton
from variants.registry import SLOTS, fields_of

PLACES = [f"model.{name}" for name in fields_of(Skeleton)]
PLACES += [f"trainer.{name}" for name in fields_of(options.Trainer)]
PLACES += [f"tracker.{name}" for name in fields_of(options.Tracker)]
PLACES += [
    f"{group}.{field}"
    for group, slot in configs.GROUPS.items()
    if slot is not None
    for choice in slot.choices.values()
    for field in choice.fields
]
PLACES += [
    f"model.{name}.{field}"
    for name in fields_of(Skeleton)
    if name in SLOTS
    for choice in SLOTS[name].choices.values()
    for field in choice.fields
]
PLACES += [f"model.{side}.{name}" for side in ("encoder", "decoder") for name in ("n_layers", "mixer", "norm.eps")]
SLOTS_OF_MODELS = [name for name in fields_of(Skeleton) if name in SLOTS]
NODES = [f"model.{name}" for name in SLOTS_OF_MODELS]  # places where a choice belongs
NODES += [f"model.{side}.{name}" for side in PATCHES[:2] for name in SLOTS_OF_MODELS if name in STACK_FIELDS]
NODES += [f"model.layers.0.{name}" for name in SLOTS_OF_MODELS if name in LAYER_FIELDS]
NODES += [group for group, slot in configs.GROUPS.items() if slot is not None]
NODES += ["model.mixer.qk_norm", "trainer.strategy", "trainer.callbacks", "trainer.loggers"]
PLACES += ["seed", "folder", "model.layers.0.mixer", "model.layers.-1.window", "model.decoder.layers.pattern"]
PLACES = sorted({*PLACES, *NODES})
GROUPS = {group: [*configs.presets(group), *(slot.choices if slot else ())] for group, slot in configs.GROUPS.items()}
CHOICES = sorted({choice for slot in SLOTS.values() for choice in slot.choices})

NUMBERS = [0, 1, 2, 3, 4, 7, 8, 64, 1000, 10**6, 10**9, 10**12, 2**63, 10**30, -1, -7, -(10**20)]
NUMBERS += [0.0, 0.1, 0.5, 1.0, 1.5, -0.1, 1e-6, 1e300, ".nan", ".inf", "-.inf", "1e400", "0x10", "1_000", "007"]
WORDS = [
    "null",
    "~",
    "true",
    "false",
    "yes",
    "no",
    "None",
    "",
    "''",
    "' '",
    "???",
    "auto",
    "every_0",
    "every_9",
    "full",
]
WORDS += [
    "${model.d_model}",
    "${nowhere}",
    "${oc.env:HOME}",
    "${model}",
    "${",
    "$",
    "${now:}",
    "{",
    "}",
    "[",
    "[[[",
    "- a",
]
WORDS += [
    "*a",
    "&a b",
    "&a [*a]",
    "!!python/object/apply:os.getcwd []",
    "!x y",
    "2024-01-01",
    "a: b",
    "a: b: c",
    "'",
    '"',
]
WORDS += [
    "# c",
    "%",
    "@",
    "`",
    "|",
    ">",
    "\t",
    "x" * 2000,
    "é",
    "注意",
    "👩‍🔬",
    "\u202e",
    "\ud7ff",
    "\x07",
    "a\nb",
    "[1, 2",
    "{a: 1",
]
WORDS += ["2024-13-45", "12:99:99", "[" * 600, "{a: " * 600, "<<: x", "{<<: {a: 1}}", "? x", "1e", "+.5", "0b2", "08"]
NO_NODES = ["3", "-0.5", ".nan", "-.inf", "1e308", "9223372036854775808", "true", "[3]", "[.nan]", "2024-01-01"]
NO_NODES += ["{name: 3}", "{name: .inf}", "{name: true}", "{name: null}", "{name: [a]}", "{name: {name: a}}"]

scalars = st.one_of(
    st.sampled_from(NUMBERS).map(str),
    st.sampled_from(WORDS),
    st.sampled_from(CHOICES),
    st.integers(-5, 40).map(str),
    st.floats(allow_nan=False).map(str),
    st.text(max_size=6).map(lambda text: text.replace("\x00", "")),
)
keys = st.one_of(st.sampled_from(["name", "0", "-1", "pattern", "bias", "d_ff", "mixer", "window", "x"]), scalars)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
        st.lists(st.tuples(keys, inner), max_size=3).map(
            lambda pairs: "{" + ", ".join(f"{key}: {value}" for key, value in pairs) + "}"
        ),
    ),
    max_leaves=6,
)


@st.composite
def misspelt(draw):
    """A name with a letter lost, doubled or changed."""
    name = draw(st.sampled_from(PLACES))
    at = draw(st.integers(0, len(name) - 1))
    return draw(
        st.sampled_from([name[:at] + name[at + 1 :], name[: at + 1] + name[at:], name[:at] + "é" + name[at + 1 :]])
    )


names = st.one_of(
    st.sampled_from(PLACES),
    st.sampled_from(PLACES),
    misspelt(),
    st.builds("{}.{}".format, st.sampled_from(PLACES), keys),
    st.lists(keys, min_size=1, max_size=4).map(".".join),
    st.integers(1, 60).map(lambda depth: ".".join(["model"] + ["layers"] * depth)),
)
picks = st.sampled_from(sorted(GROUPS)).flatmap(lambda g: st.tuples(st.just(g), st.sampled_from(GROUPS[g])))
likely = st.one_of(
    st.sampled_from(SLOTS_OF_MODELS).flatmap(
        lambda slot: st.tuples(st.just(f"model.{slot}"), st.sampled_from(sorted(SLOTS[slot].choices)))
    ),
    st.tuples(st.sampled_from(["model.d_model", "data.length", "model.vocab"]), st.sampled_from(["8", "16", "4096"])),
    st.tuples(
        st.sampled_from(["model.n_layers", "model.n_heads", "data.batch_size"]), st.sampled_from(["1", "2", "4"])
    ),
    st.tuples(st.sampled_from(["model.bias", "model.mixer.bias"]), st.sampled_from(["true", "false"])),
)
mild = st.tuples(st.sampled_from(PLACES), st.one_of(st.integers(1, 8).map(str), st.sampled_from(CHOICES)))
SIZES = [
    place for place in PLACES if any(part in place for part in ("d_", "n_", "vocab", "length", "batch", "symbols"))
]
sizes = st.tuples(st.sampled_from(SIZES), st.sampled_from(NUMBERS).map(str))
sides = st.sampled_from(["encoder", "decoder", "layers"]).flatmap(
    lambda side: st.tuples(st.just(f"model.{side}"), values)
)
nodes = st.tuples(
    st.sampled_from(NODES),
    st.one_of(*[st.sampled_from(NO_NODES)] * 3, values, values.map("{{name: {}}}".format), values.map("[{}]".format)),
)
assignments = st.one_of(picks, likely, likely, mild, sizes, sides, nodes, nodes, st.tuples(names, values)).map("=".join)
plausible = st.lists(st.one_of(picks, likely, likely).map("=".join), max_size=6)
wild = st.lists(st.one_of(*[assignments] * 9, scalars), min_size=1, max_size=5)
overrides = st.one_of(plausible, *[wild] * 5)  # most of what is wild is refused, which takes less time
