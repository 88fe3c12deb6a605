// The main jobs by keyboard alone, in Chromium.
import { byKeyboard } from "./flows.mjs";

byKeyboard("chromium");
