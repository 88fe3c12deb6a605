/* Runs before the first paint, as a file of its own because the policy allows no inline script: light or dark, as
 * chosen here before, else as the system is. */
import { readTheme } from "./lib/prefs";

document.documentElement.dataset["theme"] =
  readTheme() ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
