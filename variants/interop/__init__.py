"""Models of `transformers`, read into this project's and written out of it."""

from variants.interop.convert import from_transformers, model_config_of, to_transformers

__all__ = ["from_transformers", "model_config_of", "to_transformers"]
