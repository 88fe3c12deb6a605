// Models that call tools, one for each syntax of calls that is known (engine/dialogue/syntax.c), and how they say a call.

// Small templates that hold what tells each syntax.
const turns = (call, more = "") => `{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ '<' + m.role + '>' }}{% if m.content %}{{ m.content }}{% endif %}` +
	`{% for c in m.tool_calls or [] %}${call}{% endfor %}{{ '\n' }}{% endfor %}{{ '<assistant>' }}${more}`;
const object = (name) => `{"name": "{{ c.function.name }}", "${name}": {{ c.function.arguments | tojson }}}`;
export const templates = {
	hermes: { template: turns(`<tool_call>\n${object("arguments")}\n</tool_call>`), marks: [] },
	"hermes-tokens": { template: turns(`<tool_call>\n${object("arguments")}\n</tool_call>`), marks: ["<tool_call>", "</tool_call>"] },
	llama3: { template: turns(`<|start_header_id|>${object("parameters")}`), marks: ["<|python_tag|>"] },
	mistral: { template: turns(`[TOOL_CALLS][${object("arguments")}]`), marks: ["[TOOL_CALLS]"] },
	"mistral-args": { template: turns("[TOOL_CALLS]{{ c.function.name }}[ARGS]{{ c.function.arguments | tojson }}"), marks: ["[TOOL_CALLS]", "[ARGS]"] },
	deepseek: { architecture: "deepseek2", template: turns("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>{{ c.function.name + '\\n```json\\n' + c.function.arguments + '\\n```' }}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
		marks: ["<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"] },
	"deepseek-v3.1": { architecture: "deepseek2", template: turns("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{{ c.function.name }}<｜tool▁sep｜>{{ c.function.arguments | tojson }}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
		marks: ["<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"] },
	harmony: { template: turns("<|channel|>commentary to=functions.{{ c.function.name }}<|message|>{{ c.function.arguments | tojson }}<|call|>"),
		marks: ["<|channel|>", "<|message|>", "<|constrain|>", "<|start|>", "<|end|>"] },
	"qwen3-coder": { template: turns("<tool_call>\n<function={{ c.function.name }}>\n{% for k, v in c.function.arguments | items %}<parameter={{ k }}>\n{{ v }}\n</parameter>\n{% endfor %}</function>\n</tool_call>"), marks: [] },
	glm: { template: turns("<tool_call>{{ c.function.name }}\n{% for k, v in c.function.arguments | items %}<arg_key>{{ k }}</arg_key>\n<arg_value>{{ v }}</arg_value>\n{% endfor %}</tool_call>"),
		marks: ["<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"] },
	gemma: { template: turns("```tool_code\n{{ c.function.name }}()\n```"), marks: [] },
	thinker: { template: turns(`<tool_call>\n${object("arguments")}\n</tool_call>`, "{% if enable_thinking is not defined or enable_thinking %}{{ '<think>' }}{% else %}<think>\n\n</think>{% endif %}"), marks: ["<think>", "</think>"] },
	toolless: { template: "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system here') }}{% endif %}{{ '<' + m.role + '>' + m.content + '\n' }}{% endfor %}{{ '<assistant>' }}", marks: [] },
};

// What a model of each syntax says to call these tools, [[name, arguments], ...]. Of harmony it is one call an answer.
const json = JSON.stringify, shown = (value) => typeof value === "string" ? value : json(value);
const tagged = (calls) => calls.map(([name, args]) => `<tool_call>\n{"name": "${name}", "arguments": ${json(args)}}\n</tool_call>`).join("\n");
const deep = (calls, one) => `<｜tool▁calls▁begin｜>${calls.map(([name, args]) => `<｜tool▁call▁begin｜>${one(name, json(args))}<｜tool▁call▁end｜>`).join("\n")}<｜tool▁calls▁end｜>`;
export const callings = {
	hermes: tagged, "hermes-tokens": tagged, thinker: tagged, toolless: tagged,
	llama3: (calls) => calls.map(([name, args]) => `{"name": "${name}", "parameters": ${json(args)}}`).join("; "),
	mistral: (calls) => `[TOOL_CALLS][${calls.map(([name, args]) => `{"name": "${name}", "arguments": ${json(args)}}`).join(", ")}]`,
	"mistral-args": (calls) => calls.map(([name, args]) => `[TOOL_CALLS]${name}[ARGS]${json(args)}`).join(""),
	deepseek: (calls) => deep(calls, (name, args) => `function<｜tool▁sep｜>${name}\n\`\`\`json\n${args}\n\`\`\``),
	"deepseek-v3.1": (calls) => deep(calls, (name, args) => `${name}<｜tool▁sep｜>${args}`).replaceAll(">\n<", "><"),
	harmony: ([[name, args]]) => `<|channel|>commentary to=functions.${name} <|constrain|>json<|message|>${json(args)}`,
	"qwen3-coder": (calls) => calls.map(([name, args]) => `<tool_call>\n<function=${name}>\n` +
		`${Object.entries(args).map(([key, value]) => `<parameter=${key}>\n${shown(value)}\n</parameter>\n`).join("")}</function>\n</tool_call>`).join("\n"),
	glm: (calls) => calls.map(([name, args]) => `<tool_call>${name}\n` +
		`${Object.entries(args).map(([key, value]) => `<arg_key>${key}</arg_key>\n<arg_value>${shown(value)}</arg_value>\n`).join("")}</tool_call>`).join("\n"),
	gemma: (calls) => calls.map(([name, args]) => `\`\`\`tool_code\n${name}(${Object.entries(args).map(([key, value]) => `${key}=${json(value)}`).join(", ")})\n\`\`\``).join("\n"),
};
