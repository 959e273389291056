"""The recurrence that came before attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_packed_sequence

from variants.blocks.context import Context
from variants.blocks.masks import AttentionMask
from variants.blocks.mixers.segments import segments_of
from variants.slots import mixers

State = tuple[Float[Tensor, "batch directions width"], Float[Tensor, "batch directions width"]]
GATES = "ifgo"  # torch's order: input, forget, candidate, output


class Gates(nn.LSTM):
    """Torch's LSTM, which knows where each gate lies in its fused matrices and what its biases start from."""

    def __init__(self, d_in: int, width: int, bidirectional: bool, forget_bias: float) -> None:
        super().__init__(d_in, width, batch_first=True, bidirectional=bidirectional)
        self.forget_bias = forget_bias
        with torch.no_grad():
            for name, value in self.initial.items():
                bias = self.get_parameter(name)
                bias.copy_(value(bias.shape))

    @property
    def initial(self) -> dict[str, Callable[[torch.Size], Float[Tensor, " gates"]]]:
        """What the biases start from: of the two that are added, the first opens the forget gate."""
        names = [name for name, _ in self.named_parameters() if name.startswith("bias")]
        return {name: self.opened if name.startswith("bias_ih") else torch.zeros for name in names}

    def opened(self, shape: torch.Size) -> Float[Tensor, " gates"]:
        """Biases of 0, the forget gate's excepted."""
        bias = torch.zeros(shape)
        bias[self.hidden_size : 2 * self.hidden_size] = self.forget_bias
        return bias

    def parts(self, name: str) -> list[tuple[str, slice]] | None:
        """The gates of a fused parameter and their rows."""
        matrix, _, direction = name.partition("_l0")
        where = direction.removeprefix("_") + "." if direction else ""
        read = {"weight_ih": "input", "weight_hh": "state"}.get(matrix)
        if read is None:
            return None
        width = self.hidden_size
        return [(f"{where}{read}.{gate}", slice(i * width, (i + 1) * width)) for i, gate in enumerate(GATES)]


@mixers.register("lstm")
class Lstm(nn.Module):
    """Carry a state along time through gates: ``c = f c + i g``, ``h = o tanh(c)``; where attention came from.

    A pad holds the state and a document's first token resets it. In a bidirectional stack a second recurrence runs
    backwards, each of half the width.

    Source: Hochreiter & Schmidhuber 1997, "Long Short-Term Memory", Neural Computation 9(8); the forget gate by Gers et
    al. 2000, "Learning to Forget: Continual Prediction with LSTM", Neural Computation 12(10); its bias of 1 by
    Jozefowicz et al. 2015, "An Empirical Exploration of Recurrent Network Architectures", ICML.
    Departs from it: two biases a gate, as torch has them.

    Args:
        d_model: Model width, in features.
        bidirectional: Whether the stack reads both ways.
        forget_bias: What the forget gate's bias starts from.

    Raises:
        ValueError: ``d_model`` is odd where ``bidirectional``, or a mask has a window or a prefix.
    """

    parallel: ClassVar[dict[str, str]] = {}
    writes: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[tuple[str, ...]] = ()

    def __init__(self, d_model: int, bidirectional: bool = False, *, forget_bias: float = 1.0) -> None:
        super().__init__()
        if bidirectional and d_model % 2:
            raise ValueError(f"mixer lstm halves the width where it is bidirectional: d_model {d_model} must be even")
        self.bidirectional = bidirectional
        self.lstm = Gates(d_model, d_model // 2 if bidirectional else d_model, bidirectional, forget_bias)

    def forward(
        self, x: Float[Tensor, "batch time d_model"], context: Context | None = None
    ) -> Float[Tensor, "batch time d_model"]:
        """Mix along time; the cache holds the state."""
        context = context or Context()
        mask, slot = context.mask, context.slot("mixer")
        assert not (self.bidirectional and (mask.causal or slot)), "a bidirectional LSTM serves no causal stack"
        if mask.window is not None:
            raise ValueError(f"mixer lstm carries its state through every window, but the mask's is {mask.window}")
        if mask.prefix is not None:
            raise ValueError("mixer lstm reads no token before its turn, but the mask has a prefix that all tokens see")
        state = self.start(x) if slot is None or slot.state is None else (slot.state[0], slot.state[1])
        plain = mask.keep is None and mask.documents is None
        y, state = self.run(x, state) if plain else self.run_segments(x, state, mask)
        if slot is not None:
            slot.state = state
        return y

    def start(self, x: Float[Tensor, "batch time d_model"]) -> State:
        """The state before any token."""
        zeros = x.new_zeros(x.shape[0], 1 + self.bidirectional, self.lstm.hidden_size)
        return zeros, zeros

    def run(
        self, x: Float[Tensor, "batch time d_model"], state: State
    ) -> tuple[Float[Tensor, "batch time d_model"], State]:
        """All tokens of a row are one sequence."""
        hidden, cell = (s.transpose(0, 1).to(x.dtype).contiguous() for s in state)
        y, (hidden, cell) = self.lstm(x, (hidden, cell))
        return y, (hidden.transpose(0, 1), cell.transpose(0, 1))

    def run_segments(
        self, x: Float[Tensor, "batch time d_model"], state: State, mask: AttentionMask
    ) -> tuple[Float[Tensor, "batch time d_model"], State]:
        """The real tokens of every document are a sequence of their own."""
        segments = segments_of(mask, x.shape[0], x.shape[1], x.device)
        first = [torch.where(segments.continues[:, None, None], s[segments.row], 0.0).to(x.dtype) for s in state]
        hidden, cell = (s.transpose(0, 1).contiguous() for s in first)
        packed, (hidden, cell) = self.lstm(segments.pack(x), (hidden, cell))
        y, _ = pad_packed_sequence(packed, batch_first=True)

        empty = (segments.length == 0)[:, None, None]
        y = y.masked_fill(empty, 0.0)
        last = [torch.where(empty, s, t.transpose(0, 1)) for s, t in zip(first, (hidden, cell), strict=True)]
        forward, backward = torch.tensor_split(y, (self.lstm.hidden_size,), -1)
        # Forwards a token shows the state after `rank` real ones, of which the 0th is the state that the segment began
        # with; backwards a pad shows that of the next real one, and behind the last there is none.
        forward = torch.cat((first[0][:, :1], forward), 1)[segments.of, segments.rank]
        backward = F.pad(backward, (0, 0, 0, 1))[segments.of, segments.rank - segments.keep.long()]
        end = segments.of[:, -1]
        return torch.cat((forward, backward), -1), (last[0][end], last[1][end])

    def flops(self, n_query: int, n_key: int) -> int:
        """Of one forward of one sequence of ``n_query`` new tokens."""
        return 2 * n_query * sum(p.numel() for name, p in self.lstm.named_parameters() if name.startswith("weight"))
