"""Building blocks on torch alone, one idea a file."""
