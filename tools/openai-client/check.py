#!/usr/bin/env python3
"""Talks to a server of `snug serve RUN` with the openai client: check.py URL.

Opt in: it needs `pip install openai`, and nothing in the product does. The same
protocol is spoken by TestOverSocket of inference/openai.
"""
import sys
from concurrent.futures import ThreadPoolExecutor

import openai

client = openai.OpenAI(base_url=sys.argv[1].rstrip("/") + "/v1", api_key="none", max_retries=0)
(model,) = [m.id for m in client.models.list()]
assert client.models.retrieve(model).id == model


def ask(**more):
    return client.completions.create(**({"model": model, "prompt": "func main", "max_tokens": 16, "temperature": 0} | more))


def refused(kind, param, **more):
    try:
        ask(**more)
    except kind as e:
        assert e.param == param, (e.param, param, e)
        return e
    raise AssertionError(f"{more} was not refused")


plain = ask()
text = plain.choices[0].text
assert plain.usage.total_tokens == plain.usage.prompt_tokens + plain.usage.completion_tokens
assert plain.choices[0].finish_reason in ("length", "stop") and plain.object == "text_completion"
assert ask().choices[0].text == text, "greedy text differs"

streamed = list(ask(stream=True, stream_options={"include_usage": True}))
assert "".join(c.choices[0].text for c in streamed if c.choices) == text
assert streamed[-1].usage == plain.usage and streamed[-2].choices[0].finish_reason == plain.choices[0].finish_reason

several = ask(prompt=["func main", "package"], n=3, temperature=1, seed=7)
assert [c.index for c in several.choices] == list(range(6))
assert [c.text for c in ask(prompt=["func main", "package"], n=3, temperature=1, seed=7).choices] == [c.text for c in several.choices]
assert several.choices[0].text == ask(temperature=1, seed=7).choices[0].text

scored = ask(logprobs=2, echo=True)
p = scored.choices[0].logprobs
assert scored.choices[0].text == "func main" + text
assert p.token_logprobs[0] is None and all(x <= 0 for x in p.token_logprobs[1:])
assert len(p.tokens) == len(p.token_logprobs) == len(p.top_logprobs) == len(p.text_offset)
assert all(len(t) in (2, 3) for t in p.top_logprobs[1:])
assert ask(max_tokens=0, echo=True, logprobs=0).choices[0].text == "func main"

if len(text) > 3:
    stop = text[2:4]
    cut = ask(stop=[stop, "never"])
    assert cut.choices[0].text == text[: text.index(stop)] and cut.choices[0].finish_reason == "stop"
    assert "".join(c.choices[0].text for c in ask(stop=stop, stream=True)) == cut.choices[0].text

assert ask(prompt=[1, 2, 3]).usage.prompt_tokens == 3
assert len(ask(prompt=[[1, 2], [3]]).choices) == 2

refused(openai.BadRequestError, "suffix", suffix="x")
refused(openai.BadRequestError, "best_of", best_of=3)
refused(openai.BadRequestError, "logit_bias", logit_bias={"1": 2})
refused(openai.BadRequestError, "presence_penalty", presence_penalty=0.5)
refused(openai.BadRequestError, "frobnicate", extra_body={"frobnicate": 1})
refused(openai.BadRequestError, "temperature", temperature=3)
refused(openai.BadRequestError, "stop", stop=["a", "b", "c", "d", "e"])
assert refused(openai.BadRequestError, "prompt", max_tokens=10**6).code == "context_length_exceeded"
assert refused(openai.NotFoundError, "model", model="another").code == "model_not_found"

with ThreadPoolExecutor(16) as pool:
    seeds = list(range(16)) * 2
    together = list(pool.map(lambda s: ask(temperature=1, seed=s, max_tokens=24).choices[0].text, seeds))
alone = [ask(temperature=1, seed=s, max_tokens=24).choices[0].text for s in range(16)]
assert together == alone * 2, "a text depends on its neighbors"

left = ask(stream=True, max_tokens=64)
next(iter(left))
left.close()
print(f"openai {openai.__version__}: all answers are as they should be")
