/* What the browser stores: token, theme, the price of energy and the like. If storage is refused (private windows), nothing is stored. */

const TOKEN = "exogpu.token";
export const THEME = "exogpu.theme";

function attempt<T>(action: () => T, otherwise: T): T {
  try {
    return action();
  } catch {
    return otherwise;
  }
}

export const readToken = (): string | null =>
  attempt(() => sessionStorage.getItem(TOKEN) ?? localStorage.getItem(TOKEN), null);

/** For this tab; with `keep` for this device until logged out. */
export function writeToken(token: string, keep: boolean): void {
  attempt(() => sessionStorage.setItem(TOKEN, token), undefined);
  if (keep) attempt(() => localStorage.setItem(TOKEN, token), undefined);
}

export function forgetToken(): void {
  attempt(() => sessionStorage.removeItem(TOKEN), undefined);
  attempt(() => localStorage.removeItem(TOKEN), undefined);
  writeOwnToken(null);
}

export type Theme = "light" | "dark";

/** The chosen theme, null for the system's. */
export function readTheme(): Theme | null {
  const theme = attempt(() => localStorage.getItem(THEME), null);
  return theme === "light" || theme === "dark" ? theme : null;
}

export function writeTheme(theme: Theme | null): void {
  attempt(() => (theme ? localStorage.setItem(THEME, theme) : localStorage.removeItem(THEME)), undefined);
}

/** "zz" is for tests: English with each translated text in marks. */
export type Language = "en" | "de" | "zz";
const LANGUAGE = "exogpu.language";

/** The chosen language, null for the browser's. */
export function readLanguage(): Language | null {
  const language = attempt(() => localStorage.getItem(LANGUAGE), null);
  return language === "en" || language === "de" || language === "zz" ? language : null;
}

export function writeLanguage(language: Language): void {
  attempt(() => localStorage.setItem(LANGUAGE, language), undefined);
}

const PRICE = "exogpu.price-per-kwh";

/** The price of a kWh as it was typed, "" if none was. */
export const readPriceText = (): string => attempt(() => localStorage.getItem(PRICE) ?? "", "");

export function writePriceText(text: string): void {
  attempt(() => (text.trim() ? localStorage.setItem(PRICE, text) : localStorage.removeItem(PRICE)), undefined);
}

/** The last head of an audit log that this browser saw. */
export interface Pin {
  readonly size: number;
  readonly root: string;
  readonly firstKey: string;
  /** The page's own clock, ms. */
  readonly seenAt: number;
}

const pinName = (origin: string): string => `exogpu.audit.${origin}`;

export function readPin(origin: string): Pin | null {
  return attempt(() => {
    const pin: unknown = JSON.parse(localStorage.getItem(pinName(origin)) ?? "null");
    return isPin(pin) ? pin : null;
  }, null);
}

export function writePin(origin: string, pin: Pin): void {
  attempt(() => localStorage.setItem(pinName(origin), JSON.stringify(pin)), undefined);
}

function isPin(pin: unknown): pin is Pin {
  if (!pin || typeof pin !== "object") return false;
  const { size, root, firstKey, seenAt } = pin as Record<string, unknown>;
  return typeof size === "number" && typeof root === "string" && typeof firstKey === "string" && typeof seenAt === "number";
}

const KEEP_CHATS = "exogpu.keep-chats";

/** Whether this browser keeps conversations on the server, with this token. */
export const readKeepsChats = (tokenId: string): boolean => attempt(() => localStorage.getItem(KEEP_CHATS), null) === tokenId;

export function writeKeepsChats(tokenId: string | null): void {
  attempt(() => (tokenId ? localStorage.setItem(KEEP_CHATS, tokenId) : localStorage.removeItem(KEEP_CHATS)), undefined);
}

const NOTIFY = "exogpu.notify";

/** Whether this browser shows notifications of its own for alerts. */
export const readNotify = (): boolean => attempt(() => localStorage.getItem(NOTIFY), null) === "yes";

export function writeNotify(wanted: boolean): void {
  attempt(() => (wanted ? localStorage.setItem(NOTIFY, "yes") : localStorage.removeItem(NOTIFY)), undefined);
}

const PROMPTS = "exogpu.prompts";
const MOST_PROMPTS = 20;

/** System prompts that are kept, the newest first. */
export const readPrompts = (): readonly string[] =>
  attempt(() => {
    const all: unknown = JSON.parse(localStorage.getItem(PROMPTS) ?? "[]");
    return Array.isArray(all) ? all.filter((one): one is string => typeof one === "string").slice(0, MOST_PROMPTS) : [];
  }, []);

export function writePrompts(all: readonly string[]): void {
  attempt(() => (all.length ? localStorage.setItem(PROMPTS, JSON.stringify(all.slice(0, MOST_PROMPTS))) : localStorage.removeItem(PROMPTS)), undefined);
}

const OWN = "exogpu.own-token";

/** The id of the token that a login code gave this tab, which ends when somebody logs out here. */
export const readOwnToken = (): string | null => attempt(() => sessionStorage.getItem(OWN), null);

export function writeOwnToken(tokenId: string | null): void {
  attempt(() => (tokenId ? sessionStorage.setItem(OWN, tokenId) : sessionStorage.removeItem(OWN)), undefined);
}
