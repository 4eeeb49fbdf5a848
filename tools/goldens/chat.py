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
    # As the instruct models of 7 billion parameters that take tools: turns are counted and checked first.
    "counted": """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("users and assistants must take turns") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[TOOLS]" }}{% for tool in tools %}{% for key, val in tool.items() if key != "return" %}{{ key }}{% endfor %}{% endfor %}
        {%- endif %}
        {%- if message == user_messages[-1] and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- else %}
        {{- raise_exception("only users and assistants, after a system message") }}
    {%- endif %}
{%- endfor %}""",
    # As models with a macro for contents, and one that calls itself.
    "macros": """{%- macro content_of(message, before='', strip=true) -%}
    {%- if message.content is string -%}
        {{- before ~ (message.content | trim if strip else message.content) -}}
    {%- else -%}
        {%- for part in message.content if part.type == 'text' %}{{ part.text }}{% endfor -%}
    {%- endif -%}
{%- endmacro -%}
{%- macro spelled(spec, depth=0) -%}
    {%- if spec is mapping -%}
        {{- "{" -}}{%- for key, value in spec.items() -%}{{ key ~ ":" ~ spelled(value, depth + 1) }}{{ ", " if not loop.last }}{%- endfor -%}{{- "}" -}}
    {%- elif spec is string -%}{{- spec | tojson -}}
    {%- elif spec is iterable -%}[{% for s in spec %}{{ spelled(s, depth=depth + 1) }}{{ "," if not loop.last }}{% endfor %}]
    {%- else -%}{{- depth ~ "/" ~ spec -}}{%- endif -%}
{%- endmacro -%}
{%- set roles = messages | map(attribute='role') | list %}
{%- set systems = messages | selectattr('role', 'in', ['system', 'developer']) | map(attribute='content') | map('trim') | join('\\n') %}
{%- set others = messages | rejectattr('role', 'equalto', 'system') | list %}
{%- if systems -%}<|system|>{{ systems }}<|end|>{%- endif -%}
{%- for message in others %}
{{ '<|' ~ message.role ~ '|>' ~ content_of(message, strip=loop.first) }}<|end|>
{%- endfor %}
{%- set footer -%}
    {{ roles | join(',') }} {{ others | length }} {{ spelled({'b': [1, {'a': none}], 'a': "x"}) }}
{%- endset %}
{{ footer | upper }}
{%- if add_generation_prompt %}<|assistant|>{% endif %}""",
}

CONVERSATIONS = {
    "short": [("user", "Hi there "), ("assistant", " Hello!\n")],
    "system": [("system", " Be brief. "), ("user", "One?"), ("assistant", "1"), ("user", 'Two "2"?'), ("assistant", "2 é\n\nyes")],
    "prompted": [("system", "s"), ("user", "What is <b>?")],
    "thoughts": [("user", "a"), ("assistant", "<think>\nhm\n</think>\n\nb"), ("user", "c"), ("assistant", "<think>\nho\n</think>\n\nd")],
}

# Expressions of one line each. What jinja2 refuses is refused here too.
EXPRESSIONS = r"""
{{ 'a' 'b' ~ 1 * 2 }} {{ -3 | string }} {{ 'x' ~ 'yz' | length }}
{{ 'a' ~ 1 + 2 }}
{{ -'x' | length }}
{{ -2 // 3 }} {{ -2 % 3 }} {{ 2 % -3 }} {{ 7 // -2 }} {{ 2 + 3 * 4 - 1 }} {{ 1 < 2 < 2 }} {{ 3 > 2 > 1 }} {{ 1 == 1.0 }} {{ true + true }}
{{ 'ab' * 3 }} {{ 2 * 'x' }} {{ 'x' * -1 }}|
{{ "they're here-now (x) ßa ǆb" | title }} {{ "they're here-now ßa ǆb".title() }}
{{ 'straße ΑΣ'.upper() }} {{ 'ΑΣ BΣ'.lower() }} {{ 'ßAB cD'.capitalize() }} {{ 'hELLO wORLD' | capitalize }} {{ 'ΑΣ'.title() }}
{{ 'a\x41\u00e9\101\
b' }}
{{ '  a b '.strip() ~ '|' ~ 'xxaxx'.strip('x') ~ '|' ~ 'xyaxy'.lstrip('yx') ~ '|' ~ 'aé'.rstrip('é') }}
{{ 'a b  c'.split() | join('|') }} {{ 'a,b,c'.split(',', 1) | join('|') }} {{ 'a,,b'.split(',') | length }}
{{ 'abc'.startswith(('x', 'a')) }} {{ 'abc'.endswith('bc') }} {{ 'abcabc'.find('c') }} {{ 'éa'.find('a') }} {{ 'aaa'.count('a') }} {{ 'ab'.count('') }}
{{ 'aaa'.replace('a', 'bb') }} {{ 'abc' | replace('b', '') }} {{ 'ab'.replace('', '-') }} {{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.y'.removesuffix('.y') }}
{{ 'héllo'[1] }} {{ 'héllo'[-1] }} {{ 'héllo'[1:3] }} {{ 'héllo'[::-1] }} {{ 'héllo'[::2] }} {{ 'abc'[5] }}| {{ 'abc'[-9:9] }} {{ 'abc'[3:0:-1] }} {{ [1,2,3][:-1] | join }} {{ 'abc'[none:2] }}
{{ [1, 2, 3] | map('string') | join('+') }} {{ ['a ', ' b'] | map('trim') | join('|') }} {{ ['ab', 'ba'] | map('replace', 'a', 'x') | join }}
{{ [{'a': 1}, {'a': 2}] | map(attribute='a') | join(',') }} {{ [{'a': {'b': 1}}] | map(attribute='a.b') | first }} {{ [{'a': 1}, {}] | map(attribute='a', default='-') | join }}
{{ [[1, 2], [3, 4]] | map(attribute=1) | join(',') }} {{ [[1, 2], [3, 4]] | map('last') | join }}
{{ [1, 2, 3, 4] | select('odd') | join }} {{ [1, 2, 3, 4] | reject('gt', 2) | join }} {{ [0, 1, '', 'a'] | select | join(',') }} {{ ['a', 1] | select('string') | list | length }}
{{ [{'a': 1, 'b': 0}, {'a': 0}] | selectattr('a') | list | length }} {{ [{'a': 1}, {}] | selectattr('a', 'defined') | list | length }} {{ [{'a': 1}, {'a': 2}] | rejectattr('a', 'eq', 2) | map(attribute='a') | join }}
{{ 'yes' if [] | select else 'no' }} {{ 'yes' if [] | select | list else 'no' }} {% set g = [1, 2] | select %}{{ g | join }}{{ g | join }}|
{{ [] | select | length }}
{{ [{'a': 1}] | selectattr('a', 'divisible', 2) | list }}
{{ {'b': 1, 'a': 2}.items() | list | length }} {% for k, v in {'b': 1, 'a': 2}.items() %}{{ k }}{{ v }}{% endfor %} {{ {'b': 1, 'a': 2} | join }} {{ {'b': 1} == {'b': 1.0} }} {{ {'b': 1}.get('c', 3) }} {{ dict(z=1, a=2).keys() | join }}
{% for k, v in {'b': 1} | items %}{{ k }}{{ v }}{% endfor %} {{ nothing | items | list | length }}
{{ x | default('d') }} {{ '' | default('d', true) }} {{ '' | default('d', boolean=true) }} {{ none | default('d') }} {{ '' | d('e', false) }}|
{{ 1 is number }} {{ true is number }} {{ true is integer }} {{ 1.5 is float }} {{ 'a' is iterable }} {{ {} is mapping }} {{ x is undefined }} {{ none is none }} {{ 3 is odd }} {{ 2 is not odd }} {{ 'a' is eq 'a' }} {{ 3 is ge(2) }} {{ 'a' is in ['a'] }} {{ [] is sequence }}
{{ not true == false }} {{ not 1 in [2] }} {{ 1 not in [2] }} {{ 'a' in 'cat' and 'b' }} {{ '' or 'x' }} {{ 1 and 0 }}
{{ 'é"<\u2028\n' | tojson }} {{ 1 | tojson }} {{ none | tojson }} {{ true | tojson }} {{ 'C:\\u2028' | tojson }} {{ 'a' | tojson(indent=4) }}
{{ 'a,b' | trim(',b') }} {{ 'xax' | trim(chars='x') }} {{ ' é\u00a0\u2003' | trim }}|{{ '\x1c a \x1f'.strip() }}|
{{ ['a', 1, none, true] | join('-') }} {{ [{'n': 1}, {'n': 2}] | join(', ', attribute='n') }} {{ 'abc' | join('.') }} {{ 3 | string ~ 'x' }} {{ 3.7 | int }} {{ true | int }} {{ 'héé' | length }} {{ 'abc' | first }} {{ 'abc' | last }} {{ [] | first }}|
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set c, d = [3, 4] %}{{ c }}{{ d }}{% set t = 5, 6 %}{{ t[1] }}{% set block %} x{{ a }} {% endset %}[{{ block }}]{% set block %}{% set a = 9 %}{% endset %}{{ a }}
{% set a, b = [1] %}
{% macro f(a, b=2, c=b) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }} {{ f(1, 3) }} {{ f(1, c=4) }} {{ f(b=1, a=0) }} {{ f() }}|
{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}
{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, a=2) }}
{% macro f(a) %}{{ a }}{% endmacro %}{{ f(b=2) }}
{% macro f(a=1, b) %}{{ a }}{% endmacro %}
{% set x = 1 %}{% macro f() %}{{ x }}{% set x = 2 %}{{ x }}{% endmacro %}{{ f() }}{{ x }}{% set x = 3 %}{{ f() }}
{% for i in [1, 2] %}{% macro g() %}{{ i }}{% endmacro %}{{ g() }}{% endfor %}{% macro h() %}{{ i }}|{% endmacro %}{% for i in [1] %}{{ h() }}{% endfor %}
{% macro fib(n) %}{% if n < 2 %}{{ n }}{% else %}{{ fib(n - 1) | length + 1 }}{% endif %}{% endmacro %}{{ fib(6) }} {% if fib(0) == '0' %}text{% endif %} {{ fib(3) ~ '!' }}
{{ f() }}{% macro f() %}{% endmacro %}
{% macro f() %}a{% endmacro f %}{{ f() | upper }}
{% macro f() %}{% break %}{% endmacro %}
{% for i in range(3) %}{{ loop.revindex }}{{ loop.previtem }}{{ loop.nextitem }}{% else %}none{% endfor %} {% for i in [] %}{% else %}none{% endfor %} {% for i in range(5, 0, -2) %}{{ i }}{% endfor %} {{ range(3) | join }} {{ range(3)[1] }} {{ 2 in range(3) }}
{% for i in range(100001) %}{% endfor %}
{% for i in [1, 2, 3] if i != 2 %}{{ loop.index }}{{ i }}{% endfor %} {% for a, b in [[1, 2]] %}{{ a }}{{ b }}{% endfor %} {% for c in 'ab' %}{{ c }}.{% endfor %} {% for k in {'z': 1, 'a': 2} %}{{ k }}{% endfor %}
{% set n = namespace(a=1) %}{% for i in [1, 2] %}{% set n.a = n.a + i %}{% endfor %}{{ n.a }} {{ n.b is defined }} {{ n == n }}
{{ 1 / 0 }}
{{ 'a' + 1 }}
{{ missing.x }}
{{ 'a' | nofilter }}
{{ [1] + [2] == [1, 2] }} {{ (1,) | length }} {{ [1, [2]] == [1, [2]] }} {{ 'a' < 'b' }}
{{ 'a' < 1 }}
{{ 9007199254740993 == 9007199254740992 }} {{ 9007199254740993 // 2 }}
{{ 'a' if 0 }}| {{ 'a' if 0 else 'b' if 0 else 'c' }} {{ (x is defined) ~ '' }} {{ loop is defined }} {{ 'x'.nope is defined }}
{{ 'a'.strip(1) }}
{{ 'a'.replace('a') }}
""".strip().replace("\\\n", "\\\x00").split("\n")


def main():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])

    def refuse(message):
        raise ValueError(message)

    env.globals["raise_exception"] = refuse
    env.filters["tojson"] = lambda x, indent=None: json.dumps(x, ensure_ascii=False, indent=indent)
    cases = []
    for name, source in TEMPLATES.items():
        template = env.from_string(source)
        for which, turns in CONVERSATIONS.items():
            for prompt in (False, True):
                messages = [{"role": r, "content": c} for r, c in turns]
                text = template.render(messages=messages, add_generation_prompt=prompt, tools=None, documents=None, bos_token="<s>", eos_token="</s>")
                cases.append({"template": name, "conversation": which, "prompt": prompt, "text": text})
    expressions = []
    for source in (e.replace("\x00", "\n") for e in EXPRESSIONS):
        try:
            expressions.append({"source": source, "text": env.from_string(source).render()})
        except Exception as e:  # whatever it is, jinja2 refuses the template
            expressions.append({"source": source, "refused": f"{type(e).__name__}: {e}"})
    out = {"expressions": expressions, "templates": TEMPLATES, "conversations": {k: [{"role": r, "content": c} for r, c in v] for k, v in CONVERSATIONS.items()}, "cases": cases}
    path = pathlib.Path(__file__).resolve().parents[2] / "data" / "chat" / "testdata" / "rendered.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(out, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
