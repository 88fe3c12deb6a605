/* Light and dark: the system's, until the person chooses the other one. */
import { signal } from "@preact/signals";
import { type Theme, readTheme, writeTheme } from "./prefs";

const dark = matchMedia("(prefers-color-scheme: dark)");
const ofSystem = (): Theme => (dark.matches ? "dark" : "light");

/** The current theme. Charts read it, so that their colours follow. */
export const theme = signal<Theme>(readTheme() ?? ofSystem());

function show(next: Theme): void {
  document.documentElement.dataset["theme"] = next;
  theme.value = next;
}

/** Choosing what the system shows anyway goes back to following it. */
export function switchTheme(): void {
  const next: Theme = theme.value === "dark" ? "light" : "dark";
  writeTheme(next === ofSystem() ? null : next);
  show(next);
}

export function followSystem(): void {
  dark.addEventListener("change", () => {
    if (readTheme() === null) show(ofSystem());
  });
}
