// What an English sentence consists of, as the server tells it beside the sentence: Said of schema/api.json.
const conversion = /%[-+#0]*(?:\d+|\*)?(?:\.(?:\d+|\*)?)?(?:hh|h|ll|l|z|j|t)?[a-zA-Z]/g;

// The text that a Said gives when it is printed.
export function printed({ key, args }) {
	const left = [...args];
	const fill = (part) => part.replace(conversion, () => {
		const arg = left.shift() ?? "(an arg is missing)";
		return typeof arg === "string" ? arg : printed(arg);
	});
	return key.split("%%").map(fill).join("%") + (left.length ? " (too many args)" : "");
}

// Why something in a message is not what the sentence beside it says; undefined: all is well. The sentence of an error
// stands outside its data.
export function saidFault(tree, error) {
	if (tree === null || typeof tree !== "object") return undefined;
	for (const [name, value] of Object.entries(tree)) {
		if (name.endsWith("_said")) {
			const beside = name === "message_said" ? tree.message ?? error : tree[name.slice(0, -5)], texts = Array.isArray(value) ? value.map((one) => one && printed(one)) : printed(value);
			if (Array.isArray(value) ? texts.length !== beside?.length || texts.some((text, i) => text !== null && text !== beside[i]) : texts !== beside)
				return `${name} gives ${JSON.stringify(texts)} beside ${JSON.stringify(beside)}`;
		} else {
			const fault = saidFault(value, tree.message);
			if (fault) return fault;
		}
	}
	return undefined;
}
