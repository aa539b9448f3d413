"""The price of privacy for language learning (paper 4): the public surface of the rate calculator.

Upper bounds return their terms in log10, lower bounds and exponents a number, exact errors an `Error` with
its interval. Everything is computed in the log domain; no error is above 1, none is nan or inf.
"""

from paclab.rates.generation import (
    exponent_gen,
    exponent_gen_free,
    gen_error,
    gen_exact,
    gen_upper,
    gen_upper_gauss,
    novelty,
    novelty_bound,
    pair_upper,
)
from paclab.rates.horizons import Growth, Regime, UserLevel, growth, regime, user_level
from paclab.rates.identification import (
    cramer_rate,
    exponent_id,
    id_error,
    id_exact,
    id_upper,
    id_upper_gauss,
    statistics_cramer,
    statistics_hoeffding,
    trinomial_log_pmf,
)
from paclab.rates.logs import Bound, Error, show, slope
from paclab.rates.lower import exponent_lower, lower_gen, lower_two_point, lower_two_point_sharp

__all__ = [
    "Bound",
    "Error",
    "Growth",
    "Regime",
    "UserLevel",
    "cramer_rate",
    "exponent_gen",
    "exponent_gen_free",
    "exponent_id",
    "exponent_lower",
    "gen_error",
    "gen_exact",
    "gen_upper",
    "gen_upper_gauss",
    "growth",
    "id_error",
    "id_exact",
    "id_upper",
    "id_upper_gauss",
    "lower_gen",
    "lower_two_point",
    "lower_two_point_sharp",
    "novelty",
    "novelty_bound",
    "pair_upper",
    "regime",
    "show",
    "slope",
    "statistics_cramer",
    "statistics_hoeffding",
    "trinomial_log_pmf",
    "user_level",
]
