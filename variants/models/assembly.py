"""From a model's config to a model: every choice built, offered what the model knows, and checked against the rest.

One file: a model's parts, each of which needs what is known of the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal, cast

import torch
from torch import nn

from variants import slots
from variants.blocks.initialisers.base import initialise
from variants.blocks.kernels.base import Kernel
from variants.blocks.mixers.multihead import MultiHead
from variants.blocks.positions.base import Position
from variants.blocks.residuals.base import Depths, Residual
from variants.errors import WRONG, ConfigError, Undecided, is_wrong
from variants.models import skeleton
from variants.models.stack import Layer, Stack
from variants.registry import Slot

Role = Literal["encoder", "decoder"]
Fact = int | str | None  # text is `WRONG`: it would come of something that is


class Assembly:
    """Builds the parts of one model, and collects what is wrong with it instead of stopping at the first thing.

    Args:
        model: A checked config of a model.
        vocab: Entries of the target vocabulary, if the model's config does not say.
        source_vocab: Entries of the source's; None: there is one vocabulary.
        max_length: Tokens of the longest sequence that will be asked for, if known.
        source_length: The same of a source.
        device: Where the model will run, for the kernels.
        checkpoint_every: Recompute every n-th layer in the backward pass; 0: none.

    Attributes:
        problems: What is wrong, a line each.
        undecided: Whether something depends on a value that was said to be wrong.
        read: The model's fields that a part has asked for.
    """

    def __init__(
        self,
        model: Mapping[str, Any],
        *,
        vocab: Fact = None,
        source_vocab: Fact = None,
        max_length: Fact = None,
        source_length: Fact = None,
        device: str = "cpu",
        checkpoint_every: int = 0,
    ) -> None:
        self.model, self.device, self.checkpoint_every = model, device, checkpoint_every
        self.problems, self.undecided = list[str](), False
        self.read = {"vocab", "initialiser"}
        self.lengths: dict[str, Any] = {"decoder": max_length, "encoder": source_length or max_length}
        self.decided_vocab = not any(map(is_wrong, (vocab, source_vocab, model["vocab"], model["source_vocab"])))
        self.vocab, self._source_vocab = 1, None
        if self.decided_vocab:
            self.vocab = self._vocabulary("vocab", vocab) or 1
            self._source_vocab = self._vocabulary("source_vocab", source_vocab)
            if model["vocab"] is None and vocab is None:
                self.problems.append("model.vocab: needed, because there is no data that gives it")

    def _vocabulary(self, field: str, of_data: Any) -> Any:
        own = self.model[field]
        if own is not None and of_data is not None and own < of_data:
            self.problems.append(f"model.{field}: {own} is smaller than the data's vocabulary of {of_data}")
        return own or of_data

    def unread(self) -> tuple[str, ...]:
        """The model's fields that say something which no part has asked for."""
        plain = skeleton.defaults()
        return tuple(n for n, v in self.model.items() if v and n in plain and v != plain[n] and n not in self.read)

    # -- parts, for a layout's `assemble` -------------------------------------------------------------------------

    @property
    def source_vocab(self) -> int | None:
        """Entries of the source's vocabulary; None: there is one vocabulary."""
        self.read.add("source_vocab")
        return self._source_vocab

    def embedding(self, vocab: int | None = None, *, source: bool = False) -> nn.Module:
        """An embedding: the target's, or of this many entries.

        Args:
            vocab: Entries; None: the target's.
            source: Whether only its first direction will be used, so that a second matrix would learn nothing.
        """
        entries = (vocab or self.vocab) if self.decided_vocab else WRONG
        offers = {"vocab": entries, "d_model": self.model["d_model"], "source": source}
        return self.build(slots.embeddings, self.model["embedding"], "model.embedding", offers)

    def head(self) -> nn.Module:
        """The head."""
        offers = {"vocab": self.vocab if self.decided_vocab else WRONG, "d_model": self.model["d_model"]}
        return self.build(slots.heads, self.model["head"], "model.head", offers)

    def stack(self, role: Role, *, cross: bool = False) -> Stack:
        """A stack: the encoder's, which sees both sides, or the decoder's.

        Args:
            role: Whose fields and whose patch.
            cross: Whether its layers read a memory.
        """
        heard: list[str] = []
        self.read |= {role, "layers", "sharing", "dropout", "embedding_dropout"}
        fields = skeleton.stack_fields(self.model, role, heard)
        sharing = self._place("sharing", role, fields)
        order = self._try(sharing, lambda: list(slots.sharings.build(fields["sharing"])(fields["n_layers"])))
        if isinstance(order, nn.Identity):
            order = list(range(fields["n_layers"]))
        place = f"{role}.layers" if "layers" in (self.model[role] or {}) else "layers"
        layered = [skeleton.layer_fields(fields, depth, place, heard) for depth in range(len(order))]
        self.problems += [f"model.{line}" for line in heard]
        for depth, index in enumerate(order):
            if layered[depth] != layered[order.index(index)]:
                self.problems.append(
                    f"model.{place}.{depth}: shares its weights with layer {order.index(index)} "
                    f"(sharing {fields['sharing']['name']}), but has another patch"
                )
        positions, position_of = self._positions(role, layered)
        firsts = [order.index(index) for index in range(max(order) + 1)]
        layers = [self._layer(role, layered[depth], fields, cross, positions[position_of[depth]]) for depth in firsts]
        dropout = self._rate(fields, "embedding_dropout")
        if self.problems or self.undecided:
            return cast("Stack", _placeholder(Stack))
        return Stack(
            layers,
            partial(self._norm, fields),
            order=order,
            positions=positions,
            position_of=position_of,
            dropout=dropout,
            checkpoint_every=self.checkpoint_every,
        )

    # -- a layer --------------------------------------------------------------------------------------------------

    def _positions(self, role: Role, layered: list[dict[str, Any]]) -> tuple[list[Position], list[int]]:
        """The distinct positions of a stack's layers, and which one each depth uses."""
        wanted = [{**fields["position"], "n_heads": fields["n_heads"]} for fields in layered]
        distinct = [w for i, w in enumerate(wanted) if w not in wanted[:i]]
        positions = []
        for index in (wanted.index(w) for w in distinct):
            fields = layered[index]
            place = self._place("position", role, fields)
            length = self.lengths[role]
            offers = {**self._offers(fields, role), "max_length": self.model["max_length"] or length}
            position = self.build(slots.positions, fields["position"], place, offers)
            position = Position() if isinstance(position, nn.Identity) else position  # a placeholder with its fields
            limit = getattr(position, "max_length", None)
            if limit is not None and length is not None and not is_wrong(length) and length > limit:
                self.problems.append(f"{place}: has {limit} positions, but sequences have up to {length} tokens")
            positions.append(position)
        return cast("list[Position]", positions), [distinct.index(w) for w in wanted]

    def _layer(
        self, role: Role, fields: Mapping[str, Any], stack: Mapping[str, Any], cross: bool, position: Position
    ) -> Layer:
        offers = self._offers(fields, role)
        mixer = self._attending(slots.mixers, "mixer", role, fields, position)
        other = self._attending(slots.crosses, "cross", role, fields, None) if cross else None
        if other is not None and getattr(other, "absent", False):
            other = None
        feedforward = self.build(
            slots.feedforwards, fields["feedforward"], self._place("feedforward", role, fields), offers
        )
        depths = self._depths(role)
        residual = self.build(
            slots.residuals,
            stack["residual"],
            self._place("residual", role, stack),
            {
                **offers,
                "norm": partial(self._norm, fields),
                "n_branches": 2 if other is None else 3,
                "depths": depths,
            },
        )
        dropout = self._rate(fields, "dropout")
        if self.problems or self.undecided:
            return cast("Layer", _placeholder(Layer))
        assert isinstance(residual, Residual)
        return Layer(mixer, other, feedforward, residual, dropout)

    def _attending(
        self, slot: Slot[Any], name: str, role: Role, fields: Mapping[str, Any], position: Position | None
    ) -> nn.Module:
        """A mixer with a kernel of its own, which hears what will be asked of it."""
        place, kernel_place = self._place(name, role, fields), self._place("kernel", role, fields)
        kernel = self.build(slots.kernels, fields["kernel"], kernel_place, {})
        kernel = Kernel() if isinstance(kernel, nn.Identity) else kernel
        part = self.build(slot, fields[name], place, {**self._offers(fields, role), "kernel": kernel})
        if (
            type(kernel) is not Kernel
            and isinstance(kernel, Kernel)
            and hasattr(part, "needs")
            and not is_wrong(self.device)
        ):
            learned = position is not None and position.learned_bias
            self._try(kernel_place, partial(kernel.settle, cast("MultiHead", part).needs(learned, self.device)))
        d_head = getattr(part, "d_head", None)
        reason = position.refuses(d_head) if isinstance(position, Position) and d_head is not None else None
        if reason:
            self.problems.append(f"{self._place('position', role, fields)}: {reason}")
        return part

    def _norm(self, fields: Mapping[str, Any]) -> nn.Module:
        known = {"width": fields["d_model"], "norm_eps": fields["norm_eps"]}
        return self.build(slots.norms, fields["norm"], "model.norm", known)

    def _offers(self, fields: Mapping[str, Any], role: Role) -> dict[str, Any]:
        same = ("d_model", "n_heads", "n_layers", "bias", "norm_eps", "dropout")
        return {
            **{name: fields[name] for name in same},
            "attention_dropout": self._rate(fields, "attention_dropout"),
            "feedforward_dropout": self._rate(fields, "feedforward_dropout"),
            "bidirectional": role == "encoder",
            "role": role,
        }

    def _rate(self, fields: Mapping[str, Any], name: str) -> Any:
        rate = fields["dropout"] if fields[name] is None else fields[name]
        self.undecided |= is_wrong(rate)
        return rate

    def _depths(self, role: Role) -> Depths:
        sides = ("encoder", "decoder")
        seen = sides if self.model["layout"]["name"] == "encoder_decoder" else (role,)
        own = {r: skeleton.stack_fields(self.model, r, [])["n_layers"] for r in sides}
        encoder, decoder = (own[r] if r in seen else 0 for r in sides)
        return Depths(own[role], encoder, decoder, role)

    def _place(self, name: str, role: Role, fields: Mapping[str, Any]) -> str:
        """Where the user wrote what is meant: in the model, or in a patch."""
        if fields[name] == self.model[name]:
            return f"model.{name}"
        return f"model.{role}.{name}" if name in (self.model[role] or {}) else f"model.layers: {name}"

    # -- building -------------------------------------------------------------------------------------------------

    def build(self, slot: Slot[Any], node: Any, place: str, offers: Mapping[str, Any]) -> nn.Module:
        """Build a choice, or note why it cannot be and give a placeholder."""
        built: nn.Module = self._try(place, partial(self._built, slot, node, offers))
        return built

    def _built(self, slot: Slot[Any], node: Any, offers: Mapping[str, Any]) -> nn.Module:
        part: nn.Module = slot.build(node, **offers)
        self.read |= {slot.name, *slot[node["name"]].asks(node)}
        return part

    def _try(self, place: str, action: Any) -> Any:
        try:
            return action()
        except Undecided:
            self.undecided = True
        except ConfigError as error:
            self.problems += error.under(place)
        except ValueError as error:
            self.problems.append(f"{place}: {error}")
        except (OverflowError, RuntimeError, TypeError) as error:
            if "overflow" not in str(error).lower():
                raise
            self.problems.append(f"{place}: some size is too large ({str(error).splitlines()[0]})")
        return nn.Identity()


def _placeholder(kind: type[nn.Module]) -> nn.Module:
    """Stands for what could not be built; the problems are raised before anybody looks at it."""
    module = object.__new__(kind)
    nn.Module.__init__(module)
    return module


def assemble(model: Mapping[str, Any], *, on: str = "meta", **known: Any) -> nn.Module:
    """Build a model on the meta device, without values, as fast as planning a study needs it.

    Args:
        model: A config of a model, checked or not.
        on: Another device to allocate its parameters on, with values that mean nothing.
        **known: What the surroundings know; see `Assembly`.

    Raises:
        ConfigError: All that is wrong with it, a line each; what depends on a wrong value is not judged.
        Undecided: Nothing is wrong with it but what was said to be.
    """
    problems: list[str] = []
    try:
        model = skeleton.check(model)
    except ConfigError as error:
        model, problems = error.rest, [f"model.{line}" for line in error.problems]
    assembly = Assembly(model, **known)
    with torch.device(on):
        built = assembly.build(slots.layouts, model["layout"], "model.layout", {"assembly": assembly})
        assembly._try("model.initialiser", partial(slots.initialisers.build, model["initialiser"]))
    if problems := [*problems, *assembly.problems]:
        raise ConfigError(problems)
    if assembly.undecided:
        raise Undecided
    cast("Any", built).unread = assembly.unread()
    return built


def build(model: Mapping[str, Any], *, seed: int = 0, **known: Any) -> nn.Module:
    """Build a model on the CPU, with its initial values: a function of the seed and each parameter's name.

    Args:
        model: A config of a model, checked or not.
        seed: Of the initial values.
        **known: What the surroundings know; see `Assembly`.

    Raises:
        ConfigError: All that is wrong with it, a line each.
    """
    built = assemble(model, **known).to_empty(device="cpu")
    model = skeleton.check(model)
    initialise(built, slots.initialisers.build(model["initialiser"]), seed)
    return built
