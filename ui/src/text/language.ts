/* The language of the page: as chosen in this browser, else the first that the browser asks for and that there is, else
 * English. It does not change while the page is open. Modules that import this one begin once the texts are here, so that
 * constants of theirs can be in the language. */
import { type Language, readLanguage } from "../lib/prefs";

export type Texts = Readonly<Record<string, string>>;

function wanted(): Language {
  const chosen = readLanguage();
  if (chosen) return chosen;
  for (const one of globalThis.navigator?.languages ?? []) {
    if (/^en\b/i.test(one)) return "en";
    if (/^de\b/i.test(one)) return "de";
  }
  return "en";
}

async function fetched(): Promise<Texts | null> {
  try {
    return (await import("./de")).default;
  } catch {
    return null; // no connection: English is here already
  }
}

const asked = wanted();
export const texts: Texts | null = asked === "de" ? await fetched() : null;
/** "zz" marks each text that goes through here, for tests. */
export const language: Language = asked === "de" && !texts ? "en" : asked;
if (typeof document !== "undefined") document.documentElement.lang = language === "zz" ? "en" : language;
