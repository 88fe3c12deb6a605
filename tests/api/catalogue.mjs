// A catalogue of the tests' own, for serve --catalog: entries whose files lie at the tests' hub.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { sha256 } from "./hub.mjs";
import { temporary } from "./server.mjs";

// What modelFile() of gguf.mjs makes.
export const smallGeometry = { architecture: "llama", layers: 1, embedding: 64, feed_forward: 160, heads: 4, kv_heads: 4, head_size: 16,
	vocabulary: 300, context: 256, tied: false };

export function catalogueEntry(id, { repository = "maker/small", file = "model-Q8_0.gguf", bytes, format = "F32", geometry = smallGeometry, ...more } = {}) {
	return { id, name: `The ${id} one`, publisher: "maker", licence: "apache-2.0", languages: "English", good_at: "being tested",
		repository, revision: null, file, bytes: bytes?.length ?? bytes ?? null, sha256: bytes?.length ? sha256(bytes) : null, format, geometry, read: [
			{ what: ["licence", "languages", ...(bytes ? ["bytes"] : []), ...(bytes?.length ? ["sha256"] : []), ...(geometry ? ["geometry"] : [])],
				from: "the test", on: "2026-11-28" }], ...more };
}

// The path of a file with these entries.
export function catalogueFile(models) {
	const path = join(temporary(), "catalogue.json");
	writeFileSync(path, JSON.stringify({ models }));
	return path;
}
