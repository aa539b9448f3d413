"""Language models by protocol: loads any causal or masked model, chooses the device with its reason, knows no task.

The protocol is what `transformers` promises for every causal model: a decoder that returns hidden states, an
output embedding, `generate`. No model-type strings. Whether the output embedding may be applied to a few
positions and columns only is proved on the first batch against the model's own logits. A masked model is one whose
tokenizer has a mask and whose first logits change with the last token: it looks to the right.
"""

import os
from pathlib import Path
from typing import NamedTuple

import torch

from paclab.errors import InputError

EMBEDDED, MASKED = "embedded", "masked"
SHIPPED = {EMBEDDED: "model", MASKED: "masked-model"}  # name -> folder under data/


def project_root() -> Path:
    """The folder that holds `data/` and `notebooks/`: PACLAB_ROOT, else the checkout this package lies in."""
    return Path(os.environ.get("PACLAB_ROOT") or Path(__file__).resolve().parent.parent)


class Device(NamedTuple):
    """A chosen device and, for the reader, why."""

    device: torch.device
    reason: str


def choose_device(name: str = "auto") -> Device:
    """`auto` takes an accelerator when there is one; a name that cannot be had is an error, never a fallback."""
    if name == "auto":
        if torch.cuda.is_available():
            return Device(torch.device("cuda"), f"an accelerator was found: {torch.cuda.get_device_name()}")
        return Device(torch.device("cpu"), "no accelerator was found")
    try:
        device = torch.device(name)
        torch.empty(1, device=device).cpu()
    except (RuntimeError, AssertionError, NotImplementedError):
        raise InputError("device", f"{name!r} is not available here", "use device=auto or device=cpu") from None
    return Device(device, "asked for by name")


class LanguageModel(NamedTuple):
    """A causal or masked model in evaluation mode, its tokenizer, and where they came from."""

    module: torch.nn.Module
    tokenizer: object
    device: torch.device
    source: str
    masked: bool = False

    @property
    def context(self) -> int:
        """Longest sequence the model accepts, in tokens."""
        config = self.module.config
        for name in ("max_position_embeddings", "n_positions", "seq_length"):
            value = getattr(config, name, None)
            if isinstance(value, int) and value > 0:
                return value - _reserved_positions(self.module) if self.masked else value
        return 2048


def _reserved_positions(module: torch.nn.Module) -> int:
    """Rows of the position table that no token uses: some masked models count up from behind a padding row."""
    for name, table in module.named_modules():
        padding = getattr(table, "padding_idx", None)
        if name.endswith("position_embeddings") and padding is not None:
            return padding + 1
    return 0


def shipped(source: str) -> Path | None:
    """The folder of a model that comes with paclab, or None for any other source."""
    return project_root() / "data" / SHIPPED[source] if source in SHIPPED else None


def auto_class(config):
    """The loader a configuration asks for: masked when its first architecture is one of transformers' masked models."""
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM
    from transformers.models.auto import modeling_auto as auto

    names = getattr(config, "architectures", None) or []
    masked = {name for found in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES.values()
              for name in ([found] if isinstance(found, str) else found)}
    causal = {name for found in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()
              for name in ([found] if isinstance(found, str) else found)}
    return AutoModelForMaskedLM if names and names[0] in masked - causal else AutoModelForCausalLM


def load(source: str = EMBEDDED, device: str = "auto", dtype: torch.dtype = torch.float32) -> LanguageModel:
    """A model from `embedded`, `masked`, a local folder, or the hub (`hub:NAME`, reached only when asked for)."""
    from transformers import AutoConfig, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    chosen = choose_device(device).device
    if source in SHIPPED:
        path, kind = shipped(source), " --kind masked" if source == MASKED else ""
        missing = f"run `paclab pretrain{kind}`, or give --model a folder"
    elif source.startswith("hub:"):
        path, missing = source[4:], "check the name and the connection, or give --model a local folder"
    else:
        path, missing = Path(source), "give a folder with config.json, or hub:NAME"
        if not (path / "config.json").exists():
            raise InputError("model", f"no config.json in {source!r}", missing)
    local = not source.startswith("hub:")
    try:
        config = AutoConfig.from_pretrained(path, local_files_only=local)
        module, report = auto_class(config).from_pretrained(path, dtype=dtype, local_files_only=local,
                                                            output_loading_info=True)
        tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=local)
    except (OSError, ValueError) as error:
        first = str(error).strip().splitlines()[0][:160]
        raise InputError("model", f"{source!r} could not be loaded ({first})", missing) from None
    body = f"{module.base_model_prefix}."
    if any(not name.startswith(body) for name in report["missing_keys"]):
        raise InputError("model", f"{source!r} has no word-prediction head", "give a causal or masked language model")
    return wrap(module, tokenizer, chosen, source)


def wrap(module: torch.nn.Module, tokenizer, device="cpu", source: str = "given") -> LanguageModel:
    """Make a loaded module ready for scoring: evaluation mode, no gradients, on its device."""
    module = module.to(device).eval().requires_grad_(False)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.convert_ids_to_tokens(0)
    masked = tokenizer.mask_token_id is not None and looks_right(module, tokenizer.mask_token_id)
    return LanguageModel(module, tokenizer, torch.device(device), source, masked)


@torch.no_grad()
def looks_right(module: torch.nn.Module, token: int) -> bool:
    """Whether a change of the last token moves the first token's logits: never in a causal model."""
    ids = torch.full((1, 4), token, device=next(module.parameters()).device)
    changed = ids.clone()
    changed[0, -1] = token - 1 if token else 1
    return not torch.equal(module(input_ids=ids).logits[0, 0], module(input_ids=changed).logits[0, 0])


def trainable(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """All parameters by name, a tied one once."""
    return dict(module.named_parameters())
