"""The type checker that jaxtyping's import hook uses: beartype, under which an int serves as a float."""

from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
