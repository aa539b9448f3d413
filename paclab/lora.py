"""Low-rank adapters on the query and value maps (r = 8, alpha = 16 as published), with the peft file format.

The adapter stays in float32 whatever the base's dtype. On a float32 base it is folded into the map's weight at every
pass (rank x width additions a row of the weight, against as many a token for a side branch); otherwise it is a side
branch, since a half-precision weight would swallow it. Several adapters may share one pass of the base: `stacked`. A
fused query-key-value map (GPT-2) gets one branch
for its query block and one for its value block; in peft's format that is a single adapter of rank 2r whose B is
block-structured, so the export is exact and every peft loader reads it.
"""

import json
import math
import re
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

from paclab.errors import InputError
from paclab.files import write_json
from paclab.models import LanguageModel

SEPARATE = re.compile(r"(^|\.)(q_proj|v_proj|query|value|q_lin|v_lin)$")
FUSED = re.compile(r"(^|\.)(c_attn|query_key_value|qkv_proj)$")


class Adapted(torch.nn.Module):
    """A frozen linear map plus (alpha / r) B A x on some blocks of its outputs."""

    def __init__(self, base: torch.nn.Module, width_in: int, blocks: list[slice], rank: int, alpha: float,
                 generator: torch.Generator):
        super().__init__()
        self.base, self.blocks, self.rank, self.scale = base, blocks, rank, alpha / rank
        self.stacks: dict[str, torch.Tensor] = {}  # name -> [copies, ...]: one adapter for each part of the rows
        device = next(base.parameters()).device
        self.transposed = type(base).__name__ == "Conv1D"
        self.folds = base.weight.dtype == torch.float32 and (self.transposed or type(base) is torch.nn.Linear)
        bound = 1 / math.sqrt(width_in)  # Kaiming-uniform with a = sqrt 5, as in the published code
        for i, block in enumerate(blocks):
            a = torch.empty(rank, width_in).uniform_(-bound, bound, generator=generator)
            self.register_parameter(f"A{i}", torch.nn.Parameter(a.to(device), requires_grad=False))
            b = torch.zeros(block.stop - block.start, rank, device=device)
            self.register_parameter(f"B{i}", torch.nn.Parameter(b, requires_grad=False))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.stacks:
            return self._stacked(x)
        if self.folds and x[..., 0].numel() >= min(self.base.weight.shape):
            return self._folded(x)
        out, wide = self.base(x), x.float()
        for i, block in enumerate(self.blocks):
            low = F.linear(wide, getattr(self, f"A{i}"))
            out[..., block] += (self.scale * F.linear(low, getattr(self, f"B{i}"))).to(out.dtype)
        return out

    def _folded(self, x: torch.Tensor) -> torch.Tensor:
        """The map with W + scale B A for a weight; a side branch costs more once there are more tokens than rows."""
        weight = self.base.weight.detach().clone()
        rows = weight.T if self.transposed else weight  # [outputs, inputs]
        for i, block in enumerate(self.blocks):
            rows[block].addmm_(getattr(self, f"B{i}"), getattr(self, f"A{i}"), alpha=self.scale)
        return F.linear(x, rows, self.base.bias)


    def _stacked(self, x: torch.Tensor) -> torch.Tensor:
        """Adapter c on the c-th part of the rows; the base map once where all parts still carry the same input."""
        copies = len(self.stacks["A0"])
        parts = x.reshape(copies, -1, x.shape[-1]).float()  # [copies, tokens, width]
        if torch.equal(parts[0, 0], parts[-1, 0]) and bool((parts[1:] == parts[:1]).all()):
            out = self.base(x[: len(x) // copies]).repeat(copies, *[1] * (x.dim() - 1))
        else:
            out = self.base(x)
        flat = out.view(copies, -1, out.shape[-1])
        for i, block in enumerate(self.blocks):
            low = torch.bmm(parts, self.stacks[f"A{i}"].transpose(1, 2))
            flat[..., block] += (self.scale * torch.bmm(low, self.stacks[f"B{i}"].transpose(1, 2))).to(out.dtype)
        return out


@contextmanager
def stacked(model: LanguageModel, stacks: dict[str, torch.Tensor]):
    """Inside, rows are read in equal parts, each by its own adapter: name -> [copies, ...], as `attach` names them."""
    adapters = [(name, m) for name, m in model.module.named_modules() if isinstance(m, Adapted)]
    try:
        for name, module in adapters:
            module.stacks = {part: stacks[f"{name}.{part}"] for part, _ in module.named_parameters(recurse=False)}
        yield
    finally:
        for _, module in adapters:
            module.stacks = {}


def _shape(module: torch.nn.Module) -> tuple[int, int] | None:
    """(inputs, outputs) of a linear map, whether nn.Linear or the transposed GPT-2 kind."""
    weight = getattr(module, "weight", None)
    if weight is None or weight.dim() != 2 or isinstance(module, torch.nn.Embedding):
        return None
    transposed = type(module).__name__ == "Conv1D"
    return tuple(weight.shape) if transposed else tuple(weight.shape)[::-1]


def attach(model: LanguageModel, rank: int = 8, alpha: float = 16.0, seed: int = 0) -> dict[str, torch.Tensor]:
    """Put adapters on every layer's q and v; returns the trainable tensors by name. A is drawn from `seed`."""
    if rank < 1:
        raise InputError("rank", f"{rank} is not a rank", "give at least 1")
    generator = torch.Generator().manual_seed(seed)
    trainable = {}
    for name, module in list(model.module.named_modules()):
        shape = _shape(module)
        if shape is None or not (SEPARATE.search(name) or FUSED.search(name)):
            continue
        inputs, outputs = shape
        blocks = [slice(0, outputs)]
        if FUSED.search(name):
            if outputs != 3 * inputs:
                raise InputError("track", f"{name} fuses q, k, v in an unknown layout", "use track=ft")
            blocks = [slice(0, inputs), slice(2 * inputs, outputs)]
        adapted = Adapted(module, inputs, blocks, rank, alpha, generator)
        model.module.set_submodule(name, adapted)
        for part, tensor in adapted.named_parameters(recurse=False):
            trainable[f"{name}.{part}"] = tensor
    if not trainable:
        raise InputError("track", "no query or value map was found in this model", "use track=ft")
    return trainable


def _adapters(model: LanguageModel):
    found = [(name, m) for name, m in model.module.named_modules() if isinstance(m, Adapted)]
    if not found:
        raise InputError("adapter", "this model carries no adapter", "attach one first")
    return found


def export_peft(model: LanguageModel, folder: Path) -> None:
    """Write the adapters as a peft folder: adapter_config.json and adapter_model.safetensors."""
    tensors, patterns, targets = {}, {}, set()
    for name, module in _adapters(model):
        key, n = f"base_model.model.{name}", len(module.blocks)
        full = _shape(module.base)[1]
        down = torch.cat([getattr(module, f"A{i}") for i in range(n)])
        up = torch.zeros(full, n * module.rank)
        for i, block in enumerate(module.blocks):
            up[block, i * module.rank:(i + 1) * module.rank] = getattr(module, f"B{i}").cpu()
        tensors[f"{key}.lora_A.weight"], tensors[f"{key}.lora_B.weight"] = down.cpu().contiguous(), up
        targets.add(name.rsplit(".", 1)[-1])
        patterns["rank"], patterns["alpha"] = n * module.rank, n * module.rank * module.scale
        patterns["transposed"] = module.transposed
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    write_json(folder / "adapter_config.json", {
        "peft_type": "LORA", "task_type": None if model.masked else "CAUSAL_LM",
        "base_model_name_or_path": model.source,
        "r": patterns["rank"], "lora_alpha": patterns["alpha"], "lora_dropout": 0.0, "bias": "none",
        "target_modules": sorted(targets), "fan_in_fan_out": patterns["transposed"], "inference_mode": True})


def import_peft(model: LanguageModel, folder: Path) -> None:
    """Load a peft folder that `export_peft` (or peft itself, on q and v maps) wrote into attached adapters."""
    folder = Path(folder)
    try:
        config = json.loads((folder / "adapter_config.json").read_text())
        tensors = load_file(folder / "adapter_model.safetensors")
    except (OSError, ValueError):
        raise InputError("adapter", f"{folder} holds no peft adapter", "give a folder with adapter_config.json "
                         "and adapter_model.safetensors") from None
    scale = config["lora_alpha"] / config["r"]
    for name, module in _adapters(model):
        key, n = f"base_model.model.{name}", len(module.blocks)
        if f"{key}.lora_A.weight" not in tensors:
            raise InputError("adapter", f"{folder} has no tensor for {name}", "use an adapter on q and v")
        down, up = tensors[f"{key}.lora_A.weight"], tensors[f"{key}.lora_B.weight"]
        if down.shape[0] != n * module.rank or scale != module.scale:
            raise InputError("adapter", f"rank {down.shape[0]} or scale {scale} differs from the attached "
                             f"{n * module.rank} and {module.scale}", "attach with the same rank and alpha")
        rest = up.clone()
        for i, block in enumerate(module.blocks):
            part = slice(i * module.rank, (i + 1) * module.rank)
            getattr(module, f"A{i}").copy_(down[part])
            getattr(module, f"B{i}").copy_(up[block, part])
            rest[block, part] = 0
        if rest.abs().max() > 0:
            raise InputError("adapter", f"{name} also adapts keys or mixes blocks", "use an adapter on q and v")
