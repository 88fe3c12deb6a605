/* Selectors for tokens and certificates: which are valid, which expire soon. Pure. */
import type { Certificate, Heard, Token } from "../lib/api.gen";
import { t } from "../text/text";
import { word } from "../text/words";

const DAY_MS = 24 * 3600 * 1000;
/** A token that ends within this wants a look. */
export const SOON_MS = 7 * DAY_MS;

export type TokenState = "in use" | "good" | "expires soon" | "expired" | "revoked";

export function tokenState(token: Token, at: number): TokenState {
  if (token.revoked_at) return "revoked";
  const left = Date.parse(token.expires_at) - at;
  if (left <= 0) return "expired";
  // one that was made for a short time is not late because of that
  const whole = Date.parse(token.expires_at) - Date.parse(token.created_at);
  if (left < SOON_MS && left < whole / 3) return "expires soon";
  return token.sessions > 0 ? "in use" : "good";
}

/** When a token ends that lasts `seconds` from `at` (ms): never after the one that makes it, which ends at `maker`. */
export function tokenEnd(at: number, seconds: number, maker: string | null): { readonly end: number; readonly cut: boolean } {
  const end = at + seconds * 1000;
  const most = maker === null ? Infinity : Date.parse(maker);
  return most < end ? { end: most, cut: true } : { end, cut: false };
}

const order: TokenState[] = ["expires soon", "in use", "good", "expired", "revoked"];

/** Orders: those that need attention first, then the newest. */
export const sortedTokens = (tokens: readonly Token[], at: number): Token[] =>
  [...tokens].sort(
    (a, b) =>
      order.indexOf(tokenState(a, at)) - order.indexOf(tokenState(b, at)) || b.created_at.localeCompare(a.created_at),
  );

/** The tokens that end with this one, and have not yet. */
export function madeWith(tokens: readonly Token[], id: string): Token[] {
  const found: Token[] = [];
  const ids = new Set([id]);
  for (let before = -1; before < found.length; ) {
    before = found.length;
    for (const one of tokens)
      if (one.parent_id && ids.has(one.parent_id) && !ids.has(one.token_id)) {
        ids.add(one.token_id);
        found.push(one);
      }
  }
  return found.filter((one) => !one.revoked_at);
}

/** What a filter looks at. */
export const tokenWords = (token: Token, at: number): string[] => [token.name, token.token_id, ...token.scopes, word(tokenState(token, at))];

export type CertificateState = "good" | "renewal is due" | "expired" | "revoked";

export function certificateState(certificate: Certificate, at: number): CertificateState {
  if (certificate.revoked_at) return "revoked";
  if (Date.parse(certificate.not_after) <= at) return "expired";
  // by itself it is renewed at two thirds of its life: one that is a day past that was not
  const due = certificate.renews_at ? Date.parse(certificate.renews_at) + DAY_MS : Date.parse(certificate.not_after) - 14 * DAY_MS;
  return due <= at ? "renewal is due" : "good";
}

/** "CN=workstation,O=exogpu" is "workstation". */
export const commonName = (subject: string): string => /(?:^|,)CN=([^,]+)/.exec(subject)?.[1] ?? subject;

/** What a filter looks at. node: the name of the machine that it is of. */
export const certificateWords = (one: Certificate, node: string | undefined, at: number): (string | undefined)[] => [
  node ?? commonName(one.subject), ...one.names, fingerprint(one.sha256), word(certificateState(one, at)),
];

/** "3F:9C:0B …": as much of a fingerprint as a person compares. */
export const fingerprint = (sha256: string): string => (sha256.match(/../g) ?? []).join(":").toUpperCase();

/** Is this the machine that one sits at, whichever that is? */
export const isLoopback = (host: string): boolean =>
  host === "localhost" || host.endsWith(".localhost") || host === "[::1]" || /^127(\.\d+){3}$/.test(host);

/** The server's address for other machines: this page's, or on loopback the announced one. */
export function joinAddress(page: { readonly origin: string; readonly hostname: string }, heard: readonly Heard[] | null): string {
  const self = isLoopback(page.hostname) ? heard?.find((one) => one.verdict === "self" && one.port > 0) : undefined;
  const address = self?.addresses.find((one) => !one.includes(":")) ?? self?.addresses[0];
  if (!self || !address) return page.origin;
  return `https://${address.includes(":") ? `[${address}]` : address}:${self.port}`;
}

/** Who made a ticket or a link, by the name that a token has in the list of tokens: "alice", "the machine's owner". */
export function makerText(tokens: readonly Token[], madeBy: string): string {
  const [kind = "", id = ""] = madeBy.split(":");
  if (kind === "owner") return t`the machine's owner`;
  if (kind !== "token") return madeBy;
  const token = tokens.find((one) => one.token_id === id);
  return token ? token.name || t`token ${id}` : t`a deleted token (${id})`;
}
