"""Theoretical rate calculators: language learning under privacy (paper 4)."""
