"""Conversations rendered by jinja2 in the environment of transformers' chat templates.

    python tools/goldens/chat.py    # -> data/chat/testdata/rendered.json

The templates are ours; together they use what the published ones of Llama, Qwen and others do.
"""

import json
import pathlib

from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

TEMPLATES = {
    "chatml": """{%- for message in messages %}
    {{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
""",
    "headers": """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set system = messages[0].content|trim %}{% set rest = messages[1:] %}{% else %}
{% set system = "" %}{% set rest = messages %}
{% endif %}
{% if system is defined and system != "" %}
  <|h|>system<|/h|>

{{ system }}<|eot|>
{% endif %}
    {% for m in rest %}
    {# a comment #}
{{ '<|h|>' ~ m.role ~ '<|/h|>\\n\\n' ~ (m.content | trim) }}{{ eos_token if loop.last and m.role == 'assistant' else '<|eot|>' }}
    {%+ endfor %}
""",
    "alternate": """{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}
{% for message in loop_messages %}
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}
{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}
{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}
{% endfor %}""",
    "thinking": """{%- set ns = namespace(last=messages|length - 1, seen=false) %}
{%- for m in messages[::-1] %}
    {%- set i = (messages|length - 1) - loop.index0 %}
    {%- if not ns.seen and m.role == "user" and m.content is string and not (m.content.startswith('<tool>') and m.content.endswith('</tool>')) %}
        {%- set ns.seen = true %}{%- set ns.last = i %}
    {%- endif %}
{%- endfor %}
{%- for m in messages %}
    {%- set content = m.content if m.content is string else '' %}
    {%- if m.role in ["user", 'system'] or (m.role == "developer" and not loop.first) %}
        {{- '<|im_start|>' + m.role + '\\n' + content + '<|im_end|>\\n' }}
    {%- elif m.role == "assistant" %}
        {%- set thoughts = '' %}
        {%- if m.reasoning_content is defined and m.reasoning_content is not none %}{% set thoughts = m.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set thoughts = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last and (loop.last or thoughts) %}
            {{- '<|im_start|>assistant\\n<think>\\n' + thoughts.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') + '<|im_end|>\\n' }}
        {%- else %}
            {{- '<|im_start|>assistant\\n' + content + '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% if enable_thinking is defined and enable_thinking is false %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}{%- endif %}""",
    "lines": """<s>
{% for m in messages if m.role != 'system' -%}
    {{ loop.index }}/{{ loop.length }} {{ m['role'] | upper }}: {{ m.content | tojson }}{% if not loop.last %},{% endif %}

{% else %}
nothing
{% endfor %}
   {{- ' end ' -}}
   {{ [1, 2.5, 'a']|length }} {{ 7 // 2 }} {{ -7 % 3 }} {{ 1 + 2 * 3 }} {{ "a" in "cat" }} {{ none is none }} {{ x is defined }} {{ x | default('d') }} {{ {'k': 'v'}['k'] }} {{ {'k': 'v'}.get('z') }}
{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}
{% set joined = ['x', 'y', 'z'] %}{{ joined | join('-') }} {{ joined[-1] }} {{ joined[0:2] | last }} {{ 'Hello World'.title() }} {{ 'a,b,c'.split(',', 1)[1] }} {{ '%' ~ 'ABC'.lower() }} {{ 'x' if false }}|
""",
}

CONVERSATIONS = {
    "short": [("user", "Hi there "), ("assistant", " Hello!\n")],
    "system": [("system", " Be brief. "), ("user", "One?"), ("assistant", "1"), ("user", 'Two "2"?'), ("assistant", "2 é\n\nyes")],
    "prompted": [("system", "s"), ("user", "What is <b>?")],
    "thoughts": [("user", "a"), ("assistant", "<think>\nhm\n</think>\n\nb"), ("user", "c"), ("assistant", "<think>\nho\n</think>\n\nd")],
}


def main():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])

    def refuse(message):
        raise ValueError(message)

    env.globals["raise_exception"] = refuse
    env.filters["tojson"] = lambda x: json.dumps(x, ensure_ascii=False)
    cases = []
    for name, source in TEMPLATES.items():
        template = env.from_string(source)
        for which, turns in CONVERSATIONS.items():
            for prompt in (False, True):
                messages = [{"role": r, "content": c} for r, c in turns]
                text = template.render(messages=messages, add_generation_prompt=prompt, tools=None, documents=None, bos_token="<s>", eos_token="</s>")
                cases.append({"template": name, "conversation": which, "prompt": prompt, "text": text})
    out = {"templates": TEMPLATES, "conversations": {k: [{"role": r, "content": c} for r, c in v] for k, v in CONVERSATIONS.items()}, "cases": cases}
    path = pathlib.Path(__file__).resolve().parents[2] / "data" / "chat" / "testdata" / "rendered.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(out, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
