/* Runs before the first paint, as a file of its own because the policy allows no inline script: light or dark, as
 * chosen here before, else as the system is; and whether there is a token, so that the frame of the page in
 * index.html is shown only where the page will follow and not the login. */
import { readTheme, readToken } from "./lib/prefs";

const { dataset } = document.documentElement;
dataset["theme"] = readTheme() ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
dataset["token"] = readToken() !== null || /^#(token|code)=/.test(location.hash) ? "yes" : "no";
