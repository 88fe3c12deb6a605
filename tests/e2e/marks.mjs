// Runs in the page, in the test language: what it shows that no text of the page is. Texts of the page stand between ⟦ and ⟧,
// sentences of the server between ⟪ and ⟫. What is left over must be data (`data`: names and the like), or a unit.
export function unmarked(data) {
	const allowed = [
		/\b[a-z]+(?:_[a-z0-9]+)+\b|\b(?:nod|dev|tok|mod|ins|tic|lnd|alr|chn|ses|all|aud|swk)_\w+|\b[0-9a-f]{12,}\b|\b[\w.-]+\.(?:gguf|pem|json)\b|https?:\S+|\b\d+\.\d+[\w.-]*/gi, // ids, files, addresses, versions
		// units, the numbers of which stand before them
		/(?<=[\d\s]|^)(?:[kKMGT]?i?B(?:\/s)?|[kMG]?bit\/s|[kM]?W|k?Wh|J|MHz|ms|s|min|h|d|%|°C|px|tok\/s)(?![\p{L}])/gu,
		// names of things that are not this program's, and what is typed
		/\b(?:exogpu|CPUs?|GPUs?|CUDA|HIP|Vulkan|WebGPU|Metal|PCIe|TLS|HTTPS?|URL|UUID|SHA-256|sha256|JSON|CSV|NDJSON|ntfy|webhook|Ethernet|InfiniBand|Thunderbolt|Hugging Face|Ollama|GGUF|KV|Deutsch|English|Markdown|curl|Python|JavaScript|openai|ollama|Ctrl|Esc|g [a-z]|[A-Z])\b/g,
		/\b\d+ (?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\b/g,
		/\b(?:observe|allocate|compute|infer|join|admin)\b/g, // scopes, by which a token is made
		/\b(?:[QF]\d\w*|f16|f32|bf16)\b/g, // formats of weights
	];
	const known = [...data].sort((a, b) => b.length - a.length);
	const rest = (text) => {
		let left = text;
		for (const one of known) left = left.replaceAll(one, " ");
		for (const one of allowed) left = left.replace(one, " ");
		return /\p{Script=Latin}{2}/u.test(left) ? text.trim().replace(/\s+/g, " ") : null;
	};
	const outside = (text, depth = 0) => {
		let out = "";
		for (const letter of text) {
			if ("⟦⟪".includes(letter)) depth++;
			else if ("⟧⟫".includes(letter)) depth--;
			else out += depth > 0 ? " " : letter;
		}
		return { out, depth };
	};
	const isData = (element) => element.closest("[translate=no], code, pre, kbd, .code, .chip, .cmd, script, style, noscript, .log-lines p, .uplot, time") !== null;
	const faults = new Set();
	const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	let depth = 0;
	while (walker.nextNode()) {
		const { parentElement: parent, data: text } = walker.currentNode;
		if (parent.closest("script, style, noscript")) continue;
		const { out, depth: after } = outside(text, depth);
		depth = after;
		if (!isData(parent) && rest(out)) faults.add(`${parent.localName}: ${rest(out)}`);
	}
	if (depth !== 0) faults.add(`${depth} marks are open at the end`);
	for (const element of document.body.querySelectorAll("*"))
		for (const name of ["aria-label", "title", "placeholder", "alt", "data-name", "data-label", "aria-description"]) {
			const value = element.getAttribute(name);
			if (value === null || value.startsWith("[{") || element.closest(name === "title" ? "[translate=no], .cmd, .code" : "[translate=no], .cmd")) continue;
			const { out } = outside(value);
			if (rest(out)) faults.add(`${name}: ${rest(out)}`);
		}
	const { out } = outside(document.title);
	if (rest(out)) faults.add(`title of the document: ${rest(out)}`);
	return [...faults];
}
