"""paclab: a workbench for private language learning (PAC privacy, zeroth-order training, rates)."""

__version__ = "0.1.0"
