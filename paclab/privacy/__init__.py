"""Probability only: channels, consensus, posterior, budget, risk. Mutual information is in nats."""

from paclab.privacy.channels import (
    entropy,
    gaussian_mi,
    gaussian_sigma,
    gaussian_variance_bound,
    rr_flip,
    rr_mi,
)

__all__ = ["entropy", "gaussian_mi", "gaussian_sigma", "gaussian_variance_bound", "rr_flip", "rr_mi"]
