"""What submissions share: the loop, and where a model keeps its MLPs."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from bench.api import MEASURED_AFTER, Batch, Data, blocks, descend, mlps
from bench.tasks import TASKS
from tests.bench.tiny import TASK, tiny_model


def endless() -> Data:
    batch = Batch(torch.zeros(1, 4, dtype=torch.int64), torch.tensor([4]))
    return Data(forget=iter([batch] * 10), retain=iter([batch] * 9))


def test_descent_is_sgd_on_the_objective_and_ends_with_the_shorter_stream() -> None:
    model = tiny_model()
    weight = model.transformer.ln_f.weight
    start = weight.detach().clone()
    optimizer = torch.optim.SGD([weight], lr=0.25)
    yields = list(descend(model, endless(), optimizer, lambda _f, _r: 2 * weight.sum(), clip=None))
    assert yields == [model, model]  # after 4 and 8 of 9 steps
    torch.testing.assert_close(weight.detach(), start - 9 * 0.25 * 2)


def test_descent_clips_the_norm_over_all_that_moves() -> None:
    model = tiny_model()
    weight = model.transformer.ln_f.weight
    start = weight.detach().clone()
    optimizer = torch.optim.SGD([weight], lr=0.5)
    next(descend(model, endless(), optimizer, lambda _f, _r: 100 * weight.sum(), clip=2.0))
    assert (weight - start).norm().item() == 4 * 0.5 * 2.0


def test_the_last_measured_step_uses_the_last_tokens_of_a_run() -> None:
    task = TASKS["vital"]
    per_step = 2 * task.batch_blocks * 128
    assert MEASURED_AFTER[-1] * per_step == task.limits.tokens
    assert len(MEASURED_AFTER) <= task.limits.yields == TASK.limits.yields


def test_the_mlps_of_gpt_neo_and_llama_are_found_without_their_names() -> None:
    llama = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=32,
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=3,
            num_attention_heads=2,
        )
    )
    neo = tiny_model()
    assert len(blocks(neo)) == 2
    assert list(blocks(llama)) == list(llama.model.layers)
    assert [set(linears) for linears in mlps(neo)] == [{"c_fc", "c_proj"}] * 2
    assert [set(linears) for linears in mlps(llama)] == [{"gate_proj", "up_proj", "down_proj"}] * 3
    assert mlps(neo)[1]["c_fc"] is neo.transformer.h[1].mlp.c_fc
