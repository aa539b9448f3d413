"""Lower bounds that no rule under DP can beat: two coupled laws and group privacy. (Paper 4 gives the
orders.)

Knows binomial sums in the log domain. Does not know algorithms. The constants are our reconstruction of
Lemma 5.2 [our reading]: the paper's text gives exp(-min{1, eps} O(n)) only.
"""

import math

import numpy as np

from paclab.languages.checks import open_probability, positive, probability, whole
from paclab.rates.logs import LN10, MAX_N, log_binomial_pmf, log_sum


def exponent_lower(gamma: float, eps: float) -> float:
    """-log(1 - gamma (1 - e^-eps)): the exponent of lower_two_point; 1 - e^-eps is the smooth min{1, eps}."""
    return -math.log1p(probability("gamma", gamma, 0, 1) * math.expm1(-positive("eps", eps)))


def lower_two_point(n: int, gamma: float, eps: float) -> float:
    """log10 of 1/2 (1 - gamma (1 - e^-eps))^n <= max_b P_b(wrong) for every pure eps-DP rule (replace-one).

    The laws (1 - gamma) Q + gamma R_b are coupled to differ in Bin(n, gamma) places; the rule must act
    differently under the two. For the excess risk of identification multiply by the excess of a wrong index.
    """
    rate = exponent_lower(gamma, eps) if gamma < 1 or eps < 700 else math.inf
    return (-whole("n", n, 1) * rate - math.log(2)) / LN10


def lower_two_point_sharp(n: int, gamma: float, eps: float, delta: float = 0.0) -> float:
    """log10 of E[(1 - delta_K)_+ / (1 + e^(eps K))], K ~ Bin(n, gamma): a sharper constant, and delta > 0.

    For one pair at distance K the two error probabilities sum to at least 2 (1 - delta_K)/(1 + e^(eps K)),
    with delta_K = delta (e^(K eps) - 1)/(e^eps - 1) (randomised response attains it at delta = 0, K = 1)
    [our reading]. Between 1 and 2 times lower_two_point at delta = 0; useless once delta is far above
    e^(-eps gamma n).
    """
    n, eps = whole("n", n, 1, MAX_N), positive("eps", eps)
    gamma, delta = probability("gamma", gamma), probability("delta", delta)
    k = np.arange(n + 1)
    log_pair = -np.logaddexp(0.0, eps * k)
    if delta > 0:
        with np.errstate(divide="ignore"):
            log_growth = eps * k + np.log(-np.expm1(-eps * k))
            log_group = math.log(delta) + log_growth - (eps + math.log(-math.expm1(-eps)))
            log_pair = log_pair + np.log(-np.expm1(np.minimum(log_group, 0.0)))
    return log_sum(log_binomial_pmf(n, gamma) + log_pair) / LN10


def lower_gen(n: int, gamma: float, eps: float) -> float:
    """log10 of 1/2 [(1 - gamma (1 - e^-eps))^n - gamma^n] <= max_b GenErr_b for every pure eps-DP generator.

    Two laws share a core string of mass 1 - gamma and have disjoint infinite tails; gamma^n is the event
    that the core was never seen, so that printing it is still novel. -inf where the difference is not
    positive.
    """
    n, eps = whole("n", n, 1), positive("eps", eps)
    gamma = open_probability("gamma", gamma)
    first, second = -n * exponent_lower(gamma, eps), n * math.log(gamma)
    if second >= first:
        return -math.inf
    return (first + math.log1p(-math.exp(second - first)) - math.log(2)) / LN10
