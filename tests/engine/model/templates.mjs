// Chat templates as Jinja programs, for an independent interpreter. Each says what the published template of its family
// does with roles and texts, and has in it what the family is recognised by; the wording is this project's own. Qwen
// 2.5's is the published one, which comes with its tokenizer.
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

// Tools' answers are part of a user's turn; thoughts of the assistant before its answer are left out.
export const qwen3 = `
{%- for m in messages %}
{%- if m.role == 'tool' %}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{% endif %}
{{- '\\n<tool_response>\\n' + m.content + '\\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\\n' }}{% endif %}
{%- elif m.role == 'assistant' and '</think>' in m.content %}
{{- '<|im_start|>assistant\\n' + m.content.split('</think>')[-1].lstrip('\\n') + '<|im_end|>\\n' }}
{%- else %}
{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}`;

export const llama3 = `{{ bos_token }}${llama3Turns("messages")}`;
export const llama31 = `{{ bos_token }}{% set rest = messages %}{% set first = '' %}
{%- if messages[0].role == 'system' %}{% set first = messages[0].content | trim %}{% set rest = messages[1:] %}{% endif %}
{{- ${header("'system'")} }}
{{- 'Cutting Knowledge Date: December 2023\\nToday Date: 26 Jul 2024\\n\\n' + first + '<|eot_id|>' }}
{%- if true %}${llama3Turns("rest")}{% endif %}`;

const alternate = (user, assistant, system) => `
{%- set rest = messages %}{% set given = '' %}
{%- if messages[0].role == 'system' %}{% set rest = messages[1:] %}{% set given = ${system} %}{% endif %}
{%- for m in rest %}
{%- if m.role == 'user' %}{{- ${user} }}
{%- elif m.role == 'assistant' %}{{- ${assistant} + eos_token }}
{%- endif %}
{%- endfor %}`;
export const llama2 = alternate(
  "bos_token + '[INST] ' + ((given if loop.first else '') + m.content) | trim + ' [/INST]'",
  "' ' + m.content | trim + ' '",
  "'<<SYS>>\\n' + messages[0].content + '\\n<</SYS>>\\n\\n'",
);
export const mistral1 = `{{ bos_token }}${alternate(
  "'[INST] ' + (given if loop.first else '') + m.content + ' [/INST]'",
  "' ' + m.content | trim",
  "messages[0].content + '\\n\\n'",
)}`;
export const mistral3 = `{{ bos_token }}${alternate(
  "'[INST] ' + (given if loop.last else '') + m.content + '[/INST]'",
  "' ' + m.content | trim",
  "messages[0].content + '\\n\\n'",
)}`;
export const zephyr = `
{%- for m in messages %}
{%- if m.role == 'user' %}{{- '<|user|>\\n' + m.content + eos_token + '\\n' }}
{%- elif m.role == 'system' %}{{- '<|system|>\\n' + m.content + eos_token + '\\n' }}
{%- else %}{{- '<|assistant|>\\n' + m.content + eos_token + '\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|assistant|>\\n' }}{% endif %}`;
