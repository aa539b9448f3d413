"""The narrowed last block and side-by-side micro-batches change no loss."""

import copy

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, OPTConfig, OPTForCausalLM

from paclab.models import LanguageModel
from paclab.scoring import Scorer

SHAPES = {
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(vocab_size=90, n_positions=64, n_embd=32, n_layer=2, n_head=2,
                                               bos_token_id=0, eos_token_id=0)),
    "opt": lambda: OPTForCausalLM(OPTConfig(vocab_size=90, max_position_embeddings=64, hidden_size=32, ffn_dim=64,
                                            num_hidden_layers=2, num_attention_heads=2, word_embed_proj_dim=32)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(vocab_size=90, hidden_size=32, intermediate_size=64,
                                                  num_hidden_layers=2, num_attention_heads=2)),
}


class Tokenizer:
    pad_token_id = 1


@pytest.mark.parametrize("kind", SHAPES)
def test_only_token_wise_parts_are_narrowed_and_no_logit_moves(kind):
    torch.manual_seed(0)
    module = SHAPES[kind]().eval().requires_grad_(False)
    rng = np.random.default_rng(0)
    rows = [rng.integers(3, 90, n).tolist() for n in (9, 4, 17, 17, 30, 2, 11)]
    scorer = Scorer(LanguageModel(module, Tokenizer, torch.device("cpu"), kind), token_budget=60)
    logits = scorer.last_logits(scorer.batches(rows), [5, 7, 80])
    with torch.no_grad():
        alone = torch.stack([module(input_ids=torch.tensor([row])).logits[0, -1, [5, 7, 80]] for row in rows])
    assert torch.allclose(logits, alone, atol=1e-5)
    twin = copy.deepcopy(module)  # hooks do not get in the way of copies
    with torch.no_grad():
        ids = torch.tensor([rows[0]])
        assert torch.equal(twin(input_ids=ids).logits, module(input_ids=ids).logits)
    narrowed = [name for name, part in scorer.narrow.block.named_children() if part._forward_pre_hooks]
    assert not any("attn" in name for name in narrowed)
    assert bool(narrowed) == (kind != "opt")  # OPT flattens its rows before these parts: nothing is gained there


@pytest.mark.parametrize("batch", [None, np.array([3]), np.arange(40)])
def test_losses_do_not_depend_on_threads(embedded, batch):
    from paclab import tasks
    from paclab.sources import load_splits

    records, before = load_splits("sentiment", pool=200, dev=0, test=0).pool, torch.get_num_threads()
    objective = tasks.objective("sentiment", embedded, records)
    try:
        torch.set_num_threads(1)
        one = objective.losses(batch)
        torch.set_num_threads(3)
        three = objective.losses(batch)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    assert np.array_equal(one, three)
