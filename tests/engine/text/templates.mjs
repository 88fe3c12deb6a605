// Chat templates as Jinja programs, for an independent interpreter. Each says what the published template of its family
// does with roles and texts, and has in it what the family is recognised by; the wording is this project's own. Llama
// 3's, Qwen 2.5's, Qwen 3's and DeepSeek V3's are the published ones, which come with their tokenizers.
const turns = (start, end) =>
  `{% for m in messages %}{{ '${start}' + m.role + '\\n' + m.content + '${end}\\n' }}{% endfor %}` +
  `{% if add_generation_prompt %}{{ '${start}assistant\\n' }}{% endif %}`;
const withSystem = (text) =>
  `{% if messages[0].role != 'system' %}{{ '<|im_start|>system\\n${text}<|im_end|>\\n' }}{% endif %}`;
const header = (role) => `'<|start_header_id|>' + ${role} + '<|end_header_id|>\\n\\n'`;
const llama3Turns = (messages) =>
  `{% for m in ${messages} %}{{ ${header("m.role")} + m.content | trim + '<|eot_id|>' }}{% endfor %}` +
  `{% if add_generation_prompt %}{{ ${header("'assistant'")} }}{% endif %}`;

export const chatml = turns("<|im_start|>", "<|im_end|>");
export const qwen2 = withSystem("You are a helpful assistant.") + chatml;
export const qwen15 = withSystem("You are a helpful assistant") + chatml;
export const smollm2 = withSystem("You are a helpful AI assistant named SmolLM, trained by Hugging Face") + chatml;

const tool = `
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{% endif %}
{{- '\\n<tool_response>\\n' + m.content + '\\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\\n' }}{% endif %}`;
const withTools = (assistant, start) => `
{%- for m in messages %}
{%- if m.role == 'tool' %}${tool}
{%- elif m.role == 'assistant' %}${assistant}
{%- else %}
{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n${start}' }}{% endif %}`;
export const qwen3Instruct = withTools("{{- '<|im_start|>assistant\\n' + m.content + '<|im_end|>\\n' }}", "");
// Thoughts of all messages but the last are left out, and the answer's begin. without_lines is given by the test.
export const qwq = withTools(
  `{%- set content = m.content %}
{%- if not loop.last %}{% set content = without_lines(m.content.split('</think>')[-1]) %}{% endif %}
{{- '<|im_start|>assistant\\n' + content + '<|im_end|>\\n' }}`,
  "<think>\\n",
);
export const pirate = withSystem("You are \"Long\" John\\'s parrot.\\nSay \\\\o/ 🏴‍☠️.") + chatml;
// A system message that a variable has.
export const variable = `{% if messages[0].role == 'system' %}{% set text = messages[0].content %}
{%- set rest = messages[1:] %}{% else %}{% set text = 'Be ' + "kind." %}{% set rest = messages %}{% endif %}
{{- '<|im_start|>system\\n' + text + '<|im_end|>\\n' }}{% for m in rest %}
{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}`;

export const llama3 = `{{ bos_token }}${llama3Turns("messages")}`;
const knowing = () => `{{ bos_token }}{% set rest = messages %}{% set first = '' %}
{%- if messages[0].role == 'system' %}{% set first = messages[0].content | trim %}{% set rest = messages[1:] %}{% endif %}
{{- ${header("'system'")} }}
{{- 'Cutting Knowledge Date: December 2023\\nToday Date: ' + date_string + '\\n\\n' + first + '<|eot_id|>' }}
{%- if true %}${llama3Turns("rest")}{% endif %}`;
export const llama31 = `{% set date_string = "26 Jul 2024" %}${knowing()}`;
export const llama32 = `{% set date_string = strftime_now("%d %b %Y") %}${knowing()}`;

const alternate = (user, assistant, system) => `
{%- set rest = messages %}{% set given = '' %}
{%- if messages[0].role == 'system' %}{% set rest = messages[1:] %}{% set given = ${system} %}{% endif %}
{%- for message in rest %}
{%- if message.role == 'user' %}{{- ${user} }}
{%- elif message.role == 'assistant' %}{{- ${assistant} + eos_token }}
{%- endif %}
{%- endfor %}`;
export const llama2 = alternate(
  "bos_token + '[INST] ' + ((given if loop.first else '') + message.content) | trim + ' [/INST]'",
  "' ' + message.content | trim + ' '",
  "'<<SYS>>\\n' + messages[0].content + '\\n<</SYS>>\\n\\n'",
);
export const mistral1 = `{{ bos_token }}${alternate(
  "'[INST] ' + (given if loop.first else '') + message.content + ' [/INST]'",
  "' ' + message.content | trim",
  "messages[0].content + '\\n\\n'",
)}`;
export const mistral3 = `{{ bos_token }}${alternate(
  "'[INST] ' + (given if loop.last else '') + message.content + '[/INST]'",
  "' ' + message.content | trim",
  "messages[0].content + '\\n\\n'",
)}`;
// Of Tekken's vocabulary, without spaces.
export const mistralNemo = `{{ bos_token }}${alternate(
  "'[INST]' + (given if loop.last else '') + message.content + '[/INST]'",
  "message.content",
  "messages[0].content + '\\n\\n'",
)}`;
const systemTurn = (text) => `'[SYSTEM_PROMPT]' + ${text} + '[/SYSTEM_PROMPT]'`;
export const mistral7 = `{{ bos_token }}
{%- for m in messages %}
{%- if m.role == 'system' %}{{- ${systemTurn("m.content")} }}
{%- elif m.role == 'user' %}{{- '[INST]' + m.content + '[/INST]' }}
{%- else %}{{- m.content + eos_token }}{% endif %}
{%- endfor %}`;
export const mistral7Dated = `{%- set today = strftime_now("%Y-%m-%d") %}
{%- set default_system_message = "You are a \\"model\\".\\nToday is " + today + ", isn't it?" %}
{{- bos_token }}{% if messages[0].role == 'system' %}{% set system_message = messages[0].content %}{% set rest = messages[1:] %}
{%- else %}{% set system_message = default_system_message %}{% set rest = messages %}{% endif %}
{{- ${systemTurn("system_message")} }}
{%- for m in rest %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{- raise_exception("roles must alternate") }}{% endif %}
{%- if m.role == 'user' %}{{- '[INST]' + m.content + '[/INST]' }}{% else %}{{- m.content + eos_token }}{% endif %}{% endfor %}`;

const deepseek = (system, user, assistant, end) => `{% set ns = namespace(system='', is_first_sp=true, begun=false) %}
{%- for m in messages %}{% if m.role == 'system' %}${system}{% endif %}{% endfor %}{{- bos_token + ns.system }}
{%- for m in messages %}{% set content = m.content %}
{%- if m.role == 'user' %}${user}{% set ns.begun = true %}{% endif %}
{%- if m.role == 'assistant' %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}
{{- ${assistant} + content + '<｜end▁of▁sentence｜>' }}{% set ns.begun = false %}{% endif %}
{%- endfor %}{% if add_generation_prompt %}${end}{% endif %}`;
const begin = "'<｜Assistant｜>'";
export const deepseekR1 = deepseek(
  "{% set ns.system = m.content %}",
  "{{- '<｜User｜>' + content }}",
  begin,
  "{{- '<｜Assistant｜><think>\\n' }}",
).replace(", is_first_sp=true", "");
export const deepseekR10528 = deepseek(
  "{% set ns.system = ns.system + ('' if ns.is_first_sp else '\\n\\n') + m.content %}{% set ns.is_first_sp = false %}",
  "{{- '<｜User｜>' + content + '<｜Assistant｜>' }}",
  "''",
  `{% if not ns.begun %}{{- ${begin} }}{% endif %}`,
);

export const zephyr = `
{%- for m in messages %}
{%- if m.role == 'user' %}{{- '<|user|>\\n' + m.content + eos_token + '\\n' }}
{%- elif m.role == 'system' %}{{- '<|system|>\\n' + m.content + eos_token + '\\n' }}
{%- else %}{{- '<|assistant|>\\n' + m.content + eos_token + '\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|assistant|>\\n' }}{% endif %}`;
