"""Adapters: untouched at the start, exact through peft, on fused and on separate query and value maps."""

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, OPTConfig, OPTForCausalLM

from paclab import lora
from paclab.errors import InputError
from paclab.models import LanguageModel


def small(kind: str) -> LanguageModel:
    torch.manual_seed(0)
    if kind == "gpt2":
        module = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=32, n_embd=16, n_layer=2, n_head=2))
    else:
        module = OPTForCausalLM(OPTConfig(vocab_size=50, max_position_embeddings=32, hidden_size=16, ffn_dim=32,
                                          num_hidden_layers=2, num_attention_heads=2, word_embed_proj_dim=16))
    return LanguageModel(module.eval(), None, torch.device("cpu"), kind)


IDS = torch.arange(20).view(2, 10)


@pytest.mark.parametrize("kind", ["gpt2", "opt"])
def test_zero_b_changes_nothing_and_peft_reads_the_export(kind, tmp_path):
    from peft import PeftModel

    model = small(kind)
    with torch.no_grad():
        before = model.module(IDS).logits
        trainable = lora.attach(model, rank=4, alpha=8)
        assert sum(t.numel() for t in trainable.values()) == 2 * 2 * (4 * 16 + 4 * 16)  # layers, q and v, A and B
        assert torch.equal(model.module(IDS).logits, before)
        for tensor in trainable.values():
            tensor.add_(torch.randn(tensor.shape) * 0.1)
        after = model.module(IDS).logits
        assert (after - before).abs().max() > 1e-3
        lora.export_peft(model, tmp_path / "adapter")
        fresh = small(kind)
        theirs = PeftModel.from_pretrained(fresh.module, tmp_path / "adapter")
        assert torch.allclose(theirs(IDS).logits, after, atol=1e-5)
        again = small(kind)
        lora.attach(again, rank=4, alpha=8, seed=5)
        lora.import_peft(again, tmp_path / "adapter")
        assert torch.equal(again.module(IDS).logits, after)


def test_adapters_of_another_shape_are_refused(tmp_path):
    model = small("gpt2")
    with pytest.raises(InputError, match="carries no adapter"):
        lora.export_peft(model, tmp_path)
    lora.attach(model, rank=2)
    lora.export_peft(model, tmp_path)
    other = small("gpt2")
    lora.attach(other, rank=4)
    with pytest.raises(InputError, match="attach with the same rank"):
        lora.import_peft(other, tmp_path)
    with pytest.raises(InputError, match="rank"):
        lora.attach(small("gpt2"), rank=0)
