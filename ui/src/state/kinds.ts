/* What a token is made for: the kinds that are offered first, and how each is used then. Pure. */
import type { Scope } from "../lib/api.gen";
import { t } from "../text/text";

export type Kind = "chat" | "viewer" | "lend" | "admin" | "other";

interface KindText {
  readonly kind: Kind;
  readonly name: string;
  readonly what: string;
  /** What such a token may do; null: it is chosen, or no token is needed. */
  readonly scopes: readonly Scope[] | null;
}

export const kinds: readonly KindText[] = [
  { kind: "chat", name: t`App or chat`, what: t`a program or a person who talks to models, and sees nothing else`, scopes: ["infer"] },
  { kind: "viewer", name: t`Viewer`, what: t`sees machines, devices, models and readings, and changes nothing`, scopes: ["observe"] },
  { kind: "lend", name: t`Lend a device`, what: t`another machine, a phone or a browser joins, and its devices are used`, scopes: null },
  { kind: "admin", name: t`Admin`, what: t`may do everything, also make tokens`, scopes: ["admin"] },
  { kind: "other", name: t`Other`, what: t`choose what it may do`, scopes: null },
];

/** The kind that these scopes are of. */
export const kindOf = (scopes: readonly Scope[]): Kind =>
  kinds.find((one) => one.scopes && [...one.scopes].sort().join() === [...scopes].sort().join())?.kind ?? "other";

export interface Snippet {
  readonly name: string;
  readonly text: string;
}

export interface Made {
  readonly token: string;
  /** The server's address as whoever has the token reaches it. */
  readonly address: string;
  /** A model that can be asked; null: none is known. */
  readonly model: string | null;
}

/** A text in single quotes for a shell: what it holds stays as it is. */
const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;

const secure = (address: string): boolean => address.startsWith("https:");

function chatSnippets({ token, address, model }: Made): Snippet[] {
  const body = JSON.stringify({ model: model ?? "MODEL", messages: [{ role: "user", content: "Hello" }] });
  const trust = secure(address) ? " --cacert exogpu-authority.pem" : "";
  const client = secure(address)
    ? `import httpx, ssl\nfrom openai import OpenAI\n\ntrust = ssl.create_default_context(cafile="exogpu-authority.pem")\nclient = OpenAI(base_url="${address}/v1", api_key="${token}",\n                http_client=httpx.Client(verify=trust))`
    : `from openai import OpenAI\n\nclient = OpenAI(base_url="${address}/v1", api_key="${token}")`;
  const ask = `answer = client.chat.completions.create(\n    model=${JSON.stringify(model ?? "MODEL")}, messages=[{"role": "user", "content": "Hello"}])\nprint(answer.choices[0].message.content)`;
  return [
    { name: "curl", text: `curl${trust} ${address}/v1/chat/completions -H 'Authorization: Bearer ${token}' -H 'Content-Type: application/json' -d ${quoted(body)}` },
    { name: "Python, openai", text: `${client}\n${ask}` },
    {
      name: "JavaScript, ollama",
      text: `import { Ollama } from "ollama";\nconst client = new Ollama({ host: "${address}", headers: { authorization: "Bearer ${token}" } });\nconst { message } = await client.chat({ model: ${JSON.stringify(model ?? "MODEL")}, messages: [{ role: "user", content: "Hello" }] });\nconsole.log(message.content);`,
    },
    { name: t`Programs for OpenAI's API`, text: `OPENAI_BASE_URL=${address}/v1\nOPENAI_API_KEY=${token}` },
  ];
}

/** How a token is used that may do this: lines that can be copied as they are. */
export function snippets(scopes: readonly Scope[], made: Made): Snippet[] {
  const all = scopes.includes("admin");
  const shell: Snippet = { name: t`Command line`, text: `export EXOGPU_URL=${made.address} EXOGPU_TOKEN=${made.token}` };
  return [...(scopes.includes("infer") ? chatSnippets(made) : []), ...(all || scopes.includes("observe") ? [shell] : [])];
}

/** The page, logged in with the token; null where it shows such a token nothing. */
export const pageLink = (scopes: readonly Scope[], { token, address }: Made): string | null =>
  scopes.some((one) => one === "admin" || one === "observe" || one === "infer") ? `${address}/#token=${token}` : null;
