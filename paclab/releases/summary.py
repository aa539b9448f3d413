"""Private run-level numbers read off a ledger: free fraction and the three meters. For studies of public pools."""

import numpy as np


def summarise(infos: list[dict]) -> dict:
    """PACZero: free share of bits; charged, calibrated, realised nats at the end. DP: mean batch and clipped share."""
    if infos and "clipped" in infos[0]:
        return {"steps": len(infos), **{name: float(np.mean([info[name] for info in infos]))
                                        for name in ("batch", "clipped")}}
    bits = [bit for info in infos for bit in info.get("bits", ())]
    if not bits:
        return {"steps": len(infos)}
    last = infos[-1]
    return {"steps": len(infos), "free": float(np.mean([bit["free"] for bit in bits])),
            "charged": last["charged"], "calibrated": last["calibrated"], "realised": last["realised"]}


def free_steps(infos: list[dict]) -> np.ndarray:
    """Share of unanimous bits of every step: float64 [steps]."""
    return np.array([np.mean([bit["free"] for bit in info["bits"]]) for info in infos])
